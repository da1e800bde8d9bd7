"""The records of a ready topic, one after the other, with their outcomes settled as they go."""

import logging
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_core.headers import MAX_GROUP_BYTES, Target
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import TRANSIENT, KafkaCallError, KafkaUnreachable, call_error, making_client
from delayed_topics_kafka.messages import headers_of
from delayed_topics_kafka.stranded import when_stranded

from delayed_topics.copies import Outcome, rejected, retry
from delayed_topics.errors import GroupInvalid
from delayed_topics.membership import KeptMembership
from delayed_topics.process import ProcessOf
from delayed_topics.record import Record, read_record
from delayed_topics.settling import Settling

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
SETTLE_SECONDS = 0.1
"""What a crash repeats at most, and what a retry waits at most before it is written, unless a handler takes longer."""
MAX_POLL_INTERVAL_MS = 300_000
"""The client library's own default."""


@dataclass(slots=True)
class _AtHand:
    """The record that the user's code works on. `said`: what becomes of it is known. `taken_away`: its partition isn't ours any more."""

    message: Message
    record: Record
    said: bool = False
    taken_away: bool = False


class Records(Closing):
    """A member of a consumer group of the ready topic. Use it as a context and iterate over it; asking for the next record says
    that the one before is done, unless `retry` or `reject` said otherwise. A loop that is left in any other way says nothing of the
    record at hand: the next loop begins with it. Belongs to one thread, only `stop` and `close` may be called from any.

    Work on a record may take as long as it needs, the membership is kept. If Kafka gives its partition to another member
    meanwhile, that one gets the record too, and what becomes of it is for that one to say.
    """

    def __init__(
        self,
        connection: Connection,
        names: TopicNames,
        group: str,
        *,
        member: str | None = None,
        ready_topic: str | None = None,
    ) -> None:
        """See `DelayedTopic.records`, which makes these."""
        if not group.isascii() or not 0 < len(group) <= MAX_GROUP_BYTES:
            raise GroupInvalid(
                f"group must be 1 to {MAX_GROUP_BYTES} ASCII characters, but it is {group[:32]!r}. Retries carry it in a header"
            )
        self._process = ProcessOf(f"the consumer of group {group}")
        self._bootstrap_servers = connection.bootstrap_servers
        self._names = names
        self._ready = ready_topic or names.ready
        self._group = group
        self._stopping = False
        self._settled_at = time.monotonic()
        self._paused = False
        self._stranded = Event()
        self._interrupted = False
        """While it asked for a record: the client library drops one that has come by then."""
        self._at_hand: _AtHand | None = None
        self._early = deque[Message]()
        """They came while another record was at hand, or were at hand when a loop was left."""
        self._resting = False
        """Partitions are paused, since nobody asks for records."""
        needed = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
        }
        statistics = when_stranded(self._stranded.set, connection.further.get("stats_cb"))
        self._config: dict[str, Any] = {
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 50,
            **statistics,  # a connection can turn them off
            **connection.config_with(needed),
            "stats_cb": statistics["stats_cb"],
        }
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)
        of_topic = names.front if self._ready == names.ready else f"{names.front}.{self._ready}"
        transactional_id = f"delayedtopics.{of_topic}.{group}.{member or uuid.uuid4()}"
        self._settling = Settling(connection, self._consumer, self._ready, transactional_id=transactional_id)
        max_poll_interval_ms = float(self._config.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))
        self._membership = KeptMembership(self._rest, max_poll_interval_ms=max_poll_interval_ms)
        self._subscribe()

    def __iter__(self) -> Iterator[Record]:
        """Until `stop`. Raises KafkaCallError if Kafka refuses for good: the topic is gone or may not be read, copies may not be written.
        What is done and was not settled is handed out again then. Raises ClientForked."""
        record: Record | None = None
        with self._membership.kept():
            while True:
                self._process.check()
                with self._membership.turn:
                    self._come_back(record)
                    if self._stopping:
                        return
                    try:
                        record = self._next()
                    except BaseException as e:
                        self._interrupted = not isinstance(e, KafkaCallError)
                        raise
                if record is not None:
                    self._membership.leave()
                    yield record

    def retry(self, record: Record, error: BaseException) -> None:
        """The record comes back after its next delay, or becomes a dead letter if it has reached the retry cap. Raises ClientForked."""
        done_at_ms = int(time.time() * 1000)
        self._done(retry(record, self._names, group=self._group, error=error, done_at_ms=done_at_ms))

    def reject(self, record: Record, reason: object) -> None:
        """The record goes to the dead-letter topic. `reason` is for people: a text, or an exception."""
        self._reject(record, DeadLetterReason.REJECTED, reason)

    def stop(self) -> None:
        """The iteration ends after the record at hand. To be called from signal handlers and other threads, too."""
        self._stopping = True

    def close(self) -> None:
        """Settles what is done, and leaves the group; a record that is still worked on is handed out again. Raises NotAuthorized if Kafka
        refuses what is to be settled. Does nothing in a process that was forked from the one that joined."""
        if not self._process.is_here:
            return
        self._stopping = True
        with self._membership.turn:
            self._membership.come_back()
            self._resting = False
            if self._settling.refusal is None and not self._settling.settle():
                self._settling.settle()  # what became of a transaction that failed can't be asked any more while leaving
            refusal = self._settling.refusal
            if refusal is not None:
                self._settling.forget(tp.partition for tp in self._consumer.assignment())
            self._consumer.close()  # revokes, and settles what the lines above could not
        if refusal is not None:
            raise refusal

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._ready], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _next(self) -> Record | None:
        """None: nothing has come, or nothing for a handler."""
        # also where one has come already: its partition may be another member's by now
        self._poll(0 if self._early and not self._paused else POLL_SECONDS)
        if self._paused or not self._early:
            return None
        message = self._early.popleft()
        record = self._take(message)
        if record is not None:
            self._at_hand = _AtHand(message, record)
        return record

    def _poll(self, timeout_seconds: float) -> None:
        """Until a record or nothing comes: a rebalance may stand behind an error, such as that polls came too late."""
        while (message := self._consumer.poll(timeout_seconds)) is not None:
            if (error := message.error()) is None:
                self._early.append(message)
                return
            self._judge(error)
            timeout_seconds = 0

    def _come_back(self, record: Record | None) -> None:
        """The user's code asks for the next record."""
        if record is not None:
            self._done(Outcome(record))
        problem = self._membership.come_back()
        left = self._at_hand
        if left is not None and not (left.said or left.taken_away):
            self._early.appendleft(left.message)
        self._at_hand = None
        if self._resting:
            self._resting = False
            if not self._paused:
                self._consumer.resume(self._consumer.assignment())
        self._settle_if_due()
        if problem is not None:
            raise problem
        if self._stranded.is_set() or self._interrupted:
            self._join_again()

    def _rest(self) -> None:
        """A poll while the user's code works on a record."""
        self._settle_if_due()
        self._resting = True
        self._consumer.pause(self._consumer.assignment())
        self._poll(0)  # what comes is of a partition that was assigned just now

    def _done(self, outcome: Outcome) -> None:
        self._process.check()
        record = outcome.record
        with self._membership.turn:
            at_hand = self._at_hand if self._at_hand is not None and self._at_hand.record is record else None
            if at_hand is not None and at_hand.taken_away:
                what = (
                    "%s [%d] offset %d will be handed out again, because its partition was revoked while it was handled"
                )
                log.warning(what, record.topic, record.partition, record.offset)
                return
            self._settling.done(outcome)
            if at_hand is not None:
                at_hand.said = True

    def _join_again(self) -> None:
        why = "was interrupted" if self._interrupted else "has lost the addresses of all brokers"
        log.warning("the Kafka client of group %s %s. The consumer joins again with a new client", self._group, why)
        self._consumer.close()  # loses its partitions: what was done and not settled is handed out again
        self._consumer = Consumer(self._config)
        self._settling.rejoined(self._consumer)
        self._subscribe()
        self._stranded.clear()
        self._interrupted = False

    def _take(self, message: Message) -> Record | None:
        """None: it isn't for this group, or for no handler at all."""
        headers = headers_of(message)
        if headers is None:
            # nothing can be done with these headers, and every retry would end here again
            record, why = read_record(message, ()), "a header's name is not UTF-8"
            log.warning(
                "%s [%d] offset %d becomes a dead letter: %s", record.topic, record.partition, record.offset, why
            )
            self._reject(record, DeadLetterReason.HEADER_UNREADABLE, why)
            return None
        record = read_record(message, headers)
        if record.group is not None and record.group != self._group:
            self._done(Outcome(record))
            return None
        return replace(record, target=self._target(record.target))

    def _target(self, asked: str | None) -> str | None:
        """A retry comes back into the topic that is read. Who forwards a record with its headers leaves it to ask for another one."""
        if self._ready == self._names.ready:
            return None
        try:
            returns = asked is not None and Target.decode(asked.encode()).topic == self._ready
        except ValueError:
            returns = False
        return asked if returns else self._ready

    def _reject(self, record: Record, reason: DeadLetterReason, error: object) -> None:
        self._done(rejected(record, self._names, group=self._group, reason=reason, error=error))

    def _judge(self, error: KafkaError) -> None:
        found = call_error(error, doing=f"reading {self._ready}", bootstrap_servers=self._bootstrap_servers)
        if isinstance(found, KafkaUnreachable) or error.code() in _GOES_ON:
            log.warning("%s", found)
        else:
            raise found

    def _settle_if_due(self) -> None:
        if self._settling.clean or time.monotonic() < self._settled_at + SETTLE_SECONDS:
            return
        settled = self._settling.settle()
        self._settled_at = time.monotonic()
        if self._settling.refusal is not None:
            raise self._settling.refusal
        if settled == self._paused:
            # nothing more is handed out while Kafka takes nothing; polling goes on, so that the membership does
            change = self._consumer.resume if settled else self._consumer.pause
            change(self._consumer.assignment())
            self._paused = not settled

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # a pause outlives the revocation; the next settling that fails pauses all of them again
        consumer.resume([*consumer.assignment(), *partitions])
        self._paused = False

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._at_hand is not None and self._at_hand.record.partition in {tp.partition for tp in partitions}:
            self._membership.await_return()
        if not self._settling.settle():
            log.warning(
                "handled records of %s will be handed out again, because they could not be committed", self._ready
            )
        self._forget(partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = {tp.partition for tp in partitions}
        self._settling.forget(gone)
        self._early = deque(message for message in self._early if message.partition() not in gone)
        if self._at_hand is not None and self._at_hand.record.partition in gone:
            self._at_hand.taken_away = True


_GOES_ON = TRANSIENT | {KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF}
