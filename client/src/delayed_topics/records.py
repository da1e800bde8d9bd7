"""Iterates over the records of a ready topic, and settles the outcomes of those that are done."""

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
"""How often outcomes are settled, unless a handler takes longer. A crash therefore repeats the records of at most this time, and a retry is
written at most this much later."""
MAX_POLL_INTERVAL_MS = 300_000
"""The client library's own default."""


@dataclass(slots=True)
class _CurrentRecord:
    """The record that the user's code handles. `is_revoked` is True if this consumer no longer has its partition."""

    message: Message
    record: Record
    outcome_known: bool = False
    is_revoked: bool = False


class Records(Closing):
    """A member of a consumer group of the ready topic. Use it as a context manager and iterate over it. A record is done when the loop
    requests the next one, unless you called `retry` or `reject` for it. If a loop is left in any other way, its current record is not done,
    and the next loop begins with it. Belongs to one thread; only `stop` and `close` may be called from other threads.

    Handling a record may take as long as it needs, because the membership is kept. If Kafka assigns the record's partition to another
    member meanwhile, that member gets the record too and decides its outcome.
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
        """See `DelayedTopic.records`, which creates instances of this class."""
        if not group.isascii() or not 0 < len(group) <= MAX_GROUP_BYTES:
            raise GroupInvalid(
                f"group must be 1 to {MAX_GROUP_BYTES} ASCII characters, but it is {group[:32]!r}. Retries carry it in a header"
            )
        self._process = ProcessOf(self, f"the consumer of group {group}")
        self._bootstrap_servers = connection.bootstrap_servers
        self._names = names
        self._ready = ready_topic or names.ready
        self._group = group
        self._stopping = self._closed = False
        self._settled_at = time.monotonic()
        self._paused = False
        self._stranded = Event()
        self._interrupted = False
        """Whether an exception interrupted a call for the next record. The client library drops a record that it had for that call."""
        self._current: _CurrentRecord | None = None
        self._buffered = deque[Message]()
        """Messages that arrived while another record was handled, or whose loop was left before they were done."""
        self._paused_while_handling = False
        """Whether the partitions are paused because the user's code handles a record."""
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
            **statistics,  # the properties of a connection can turn them off
            **connection.config_with(needed),
            "stats_cb": statistics["stats_cb"],
        }
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)
        of_topic = names.front if self._ready == names.ready else f"{names.front}.{self._ready}"
        transactional_id = f"delayedtopics.{of_topic}.{group}.{member or uuid.uuid4()}"
        self._settling = Settling(connection, self._consumer, self._ready, transactional_id=transactional_id)
        max_poll_interval_ms = float(self._config.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))
        self._membership = KeptMembership(self._poll_while_handling, max_poll_interval_ms=max_poll_interval_ms)
        self._subscribe()

    def __iter__(self) -> Iterator[Record]:
        """Yields records until `stop`. Raises KafkaCallError if Kafka refuses permanently, because the topic is gone or a right to read it
        or to write copies is missing. Records that are done and not settled are then handed out again. Raises ClientForked, and
        RuntimeError after `close`."""
        record: Record | None = None
        self._process.check()  # before a lock that a thread of the parent may have held at the fork
        if self._closed:
            raise RuntimeError(
                f"the consumer of group {self._group} is closed. Join the group again with DelayedTopic.records"
            )
        with self._membership.kept():
            while True:
                self._process.check()
                with self._membership.turn:
                    self._end_handling(record)
                    if self._stopping:
                        return
                    try:
                        record = self._next()
                    except BaseException as e:
                        self._interrupted = not isinstance(e, KafkaCallError)
                        raise
                if record is not None:
                    self._membership.begin_handling()
                    yield record

    def retry(self, record: Record, error: BaseException) -> None:
        """Sends the record back for another attempt. It comes out again after its next delay, or becomes a dead letter if it has reached
        the retry cap. Raises ClientForked, and ValueError unless this is the current record and its outcome is still open: the records
        before it are done."""
        self._check_open(record)
        done_at_ms = int(time.time() * 1000)
        self._done(retry(record, self._names, group=self._group, error=error, done_at_ms=done_at_ms))

    def reject(self, record: Record, reason: object) -> None:
        """Sends the record to the dead-letter topic. `reason` is for people, and may be a text or an exception. Raises what `retry`
        raises."""
        self._check_open(record)
        self._reject(record, DeadLetterReason.REJECTED, reason)

    def stop(self) -> None:
        """Ends the iteration after the current record. May be called from signal handlers and other threads."""
        self._stopping = True

    def close(self) -> None:
        """Settles the outcomes of records that are done, and leaves the group. A record that is still handled is handed out again. Raises
        NotAuthorized if Kafka refuses the outcomes, and ConnectionInvalid if the properties allow no producer. Does nothing in a process
        that was forked from the one that joined."""
        if not self._process.is_here:
            return
        self._stopping = self._closed = True
        with self._membership.turn:
            self._membership.end_handling()
            self._paused_while_handling = False
            if self._settling.refusal is None and not self._settling.settle():
                self._settling.settle()  # the result of a failed transaction can't be looked up while the consumer leaves
            refusal = self._settling.refusal
            if refusal is not None:
                self._settling.forget(tp.partition for tp in self._consumer.assignment())
            self._consumer.close()  # revokes the partitions, which settles what the lines above could not
        if refusal is not None:
            raise refusal

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._ready], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _next(self) -> Record | None:
        """Returns the next record, None if none has arrived or the next one is not for a handler."""
        # polls even if a message is buffered, because its partition may belong to another member by now
        self._poll(0 if self._buffered and not self._paused else POLL_SECONDS)
        if self._paused or not self._buffered:
            return None
        message = self._buffered.popleft()
        record = self._take(message)
        if record is not None:
            self._current = _CurrentRecord(message, record)
        return record

    def _poll(self, timeout_seconds: float) -> None:
        """Polls until a record or nothing arrives, because an error, such as that of a late poll, may be queued before a rebalance."""
        while (message := self._consumer.poll(timeout_seconds)) is not None:
            if (error := message.error()) is None:
                self._buffered.append(message)
                return
            self._raise_if_fatal(error)
            timeout_seconds = 0

    def _end_handling(self, record: Record | None) -> None:
        """Called when the user's code requests the next record. `record` is the one that is done, None if the loop has just begun."""
        if record is not None:
            self._done(Outcome(record))
        problem = self._membership.end_handling()
        current = self._current
        if current is not None and not (current.outcome_known or current.is_revoked):
            self._buffered.appendleft(current.message)
        self._current = None
        if self._paused_while_handling:
            self._paused_while_handling = False
            if not self._paused:
                self._consumer.resume(self._consumer.assignment())
        self._settle_if_due()
        if problem is not None:
            raise problem
        if self._stranded.is_set() or self._interrupted:
            self._join_again()

    def _poll_while_handling(self) -> None:
        """Polls while the user's code handles a record."""
        self._settle_if_due()
        self._paused_while_handling = True
        self._consumer.pause(self._consumer.assignment())
        self._poll(0)  # only a partition that was assigned just now can deliver a record

    def _done(self, outcome: Outcome) -> None:
        record = outcome.record
        with self._membership.turn:
            current = self._current if self._is_current(record) else None
            if current is not None and current.is_revoked:
                what = (
                    "%s [%d] offset %d will be handed out again, because its partition was revoked while it was handled"
                )
                log.warning(what, record.topic, record.partition, record.offset)
                return
            self._settling.done(outcome)
            if current is not None:
                current.outcome_known = True

    def _is_current(self, record: Record) -> bool:
        """Whether it is the current record, perhaps with other values, which the user's code has given it."""
        if self._current is None:
            return False
        current = self._current.record
        return (current.partition, current.offset) == (record.partition, record.offset)

    def _check_open(self, record: Record) -> None:
        self._process.check()
        if not self._is_current(record):
            raise ValueError(
                f"{record.topic} [{record.partition}] offset {record.offset} is done, because the loop has asked for the next one since. "
                "Call `retry` or `reject` before that"
            )
        if self._current is not None and self._current.outcome_known:
            raise ValueError(
                f"{record.topic} [{record.partition}] offset {record.offset} has had its `retry` or `reject` already"
            )

    def _join_again(self) -> None:
        why = "was interrupted" if self._interrupted else "has lost the addresses of all brokers"
        log.warning("the Kafka client of group %s %s. The consumer joins again with a new client", self._group, why)
        self._consumer.close()  # records that are done and not settled will be handed out again
        self._consumer = Consumer(self._config)
        self._settling.rejoined(self._consumer)
        self._subscribe()
        self._stranded.clear()
        self._interrupted = False

    def _take(self, message: Message) -> Record | None:
        """Returns the record of a message, None if it isn't for this group or can't be given to any handler."""
        headers = headers_of(message)
        if headers is None:
            # these headers can't be read, and every retry would end here again
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

    def _target(self, requested: str | None) -> str | None:
        """Returns the target with which a retry comes back into the topic that this consumer reads. The record itself may request another
        topic, if it was forwarded with its headers."""
        if self._ready == self._names.ready:
            return None
        try:
            returns = requested is not None and Target.decode(requested.encode()).topic == self._ready
        except ValueError:
            returns = False
        return requested if returns else self._ready

    def _reject(self, record: Record, reason: DeadLetterReason, error: object) -> None:
        self._done(rejected(record, self._names, group=self._group, reason=reason, error=error))

    def _raise_if_fatal(self, error: KafkaError) -> None:
        found = call_error(error, doing=f"reading {self._ready}", bootstrap_servers=self._bootstrap_servers)
        if isinstance(found, KafkaUnreachable) or error.code() in _NON_FATAL:
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
            # while Kafka accepts nothing, hand out no more records; polling continues, to keep the membership
            change = self._consumer.resume if settled else self._consumer.pause
            change(self._consumer.assignment())
            self._paused = not settled

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # a pause survives a revocation; if settling fails again, it pauses all partitions again
        consumer.resume([*consumer.assignment(), *partitions])
        self._paused = False

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._current is not None and self._current.record.partition in {tp.partition for tp in partitions}:
            self._membership.await_end_of_handling()
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
        self._buffered = deque(message for message in self._buffered if message.partition() not in gone)
        if self._current is not None and self._current.record.partition in gone:
            self._current.is_revoked = True


_NON_FATAL = TRANSIENT | {KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF}
