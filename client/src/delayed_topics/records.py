"""The records of a ready topic, one after the other, with their outcomes settled as they go."""

import logging
import time
import uuid
from collections.abc import Iterator
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_core.headers import MAX_GROUP_BYTES
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import PASSING, KafkaUnreachable, door_error
from delayed_topics_kafka.messages import headers_of
from delayed_topics_kafka.stranded import when_stranded

from delayed_topics.copies import rejected, retry
from delayed_topics.errors import GroupInvalid
from delayed_topics.record import Record, read_record
from delayed_topics.settling import Settling

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
SETTLE_SECONDS = 0.1
"""What a crash repeats at most, and what a retry waits at most before it is written, unless a handler takes longer."""


class Records(Closing):
    """A member of a consumer group of the ready topic. Use it as a context and iterate over it; asking for the next record says
    that the one before is done, unless `retry` or `reject` said otherwise. Belongs to one thread, only `stop` may be called from any.
    """

    def __init__(self, connection: Connection, names: TopicNames, group: str, *, member: str | None = None) -> None:
        """`member` is a name that stays the same over restarts and that no other member has, such as the pod's: a restart after
        a SIGKILL then ends at once a transaction that was left open, which else holds readers back for ten seconds.
        Raises GroupInvalid for a group that a retry's header couldn't carry.
        """
        if not group.isascii() or not 0 < len(group) <= MAX_GROUP_BYTES:
            raise GroupInvalid(
                f"group must be 1 to {MAX_GROUP_BYTES} ASCII characters, it is {group[:32]!r}: retries carry it in a header"
            )
        self._bootstrap_servers = connection.bootstrap_servers
        self._names = names
        self._group = group
        self._stopping = False
        self._settled_at = time.monotonic()
        self._paused = False
        self._stranded = Event()
        self._config: dict[str, Any] = {
            **connection.client_config(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 50,
            "allow.auto.create.topics": False,
            **when_stranded(self._stranded.set),
        }
        self._consumer = Consumer(self._config)
        transactional_id = f"delayedtopics.{names.front}.{group}.{member or uuid.uuid4()}"
        self._settling = Settling(connection, self._consumer, names.ready, transactional_id=transactional_id)
        self._subscribe()

    def __iter__(self) -> Iterator[Record]:
        """Until `stop`. Raises KafkaDoorError if Kafka refuses for good: the topic is gone, or may not be read."""
        while not self._stopping:
            message = self._consumer.poll(POLL_SECONDS)
            record = self._take(message) if message is not None else None
            if record is not None:
                yield record
                self._settling.done(record)
            self._settle_if_due()
            if self._stranded.is_set():
                self._join_again()

    def retry(self, record: Record, error: BaseException) -> None:
        """The record comes back after its next delay, or becomes a dead letter if it was retried often enough."""
        done_at_ms = int(time.time() * 1000)
        outcome = retry(record, self._names, group=self._group, error=error, done_at_ms=done_at_ms)
        self._settling.done(record, outcome)

    def reject(self, record: Record, reason: str) -> None:
        """The record goes to the dead-letter topic. `reason` is for people."""
        self._reject(record, DeadLetterReason.REJECTED, reason)

    def stop(self) -> None:
        """The iteration ends after the record at hand. To be called from signal handlers and other threads, too."""
        self._stopping = True

    def close(self) -> None:
        """Settles what is done, and leaves the group."""
        self._settling.settle()
        self._consumer.close()  # revokes, and settles what the line above could not

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._names.ready], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _join_again(self) -> None:
        log.warning("the Kafka client of group %s knows no broker any more; joining again with a new one", self._group)
        self._consumer.close()  # loses its partitions: what was done and not settled is handed out again
        self._consumer = Consumer(self._config)
        self._settling.rejoined(self._consumer)
        self._subscribe()
        self._stranded.clear()

    def _take(self, message: Message) -> Record | None:
        """None: it isn't for this group, or for no handler at all."""
        error = message.error()
        if error is not None:
            self._judge(error)
            return None
        headers = headers_of(message)
        if headers is None:
            # nothing can be done with these headers, and every retry would end here again
            self._reject(read_record(message, ()), DeadLetterReason.HEADER_UNREADABLE, "a header's name is not UTF-8")
            return None
        record = read_record(message, headers)
        if record.group is not None and record.group != self._group:
            self._settling.done(record)
            return None
        return record

    def _reject(self, record: Record, reason: DeadLetterReason, error: str) -> None:
        self._settling.done(record, rejected(record, self._names, reason=reason, error=error))

    def _judge(self, error: KafkaError) -> None:
        found = door_error(error, doing=f"reading {self._names.ready}", bootstrap_servers=self._bootstrap_servers)
        if isinstance(found, KafkaUnreachable) or error.code() in _GOES_ON:
            log.warning("%s", found)
        else:
            raise found

    def _settle_if_due(self) -> None:
        if self._settling.clean or time.monotonic() < self._settled_at + SETTLE_SECONDS:
            return
        settled = self._settling.settle()
        self._settled_at = time.monotonic()
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
        if not self._settling.settle():
            log.warning("records of %s that were done will be handed out again", self._names.ready)
        self._settling.forget(tp.partition for tp in partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._settling.forget(tp.partition for tp in partitions)


_GOES_ON = PASSING | {KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF}
