"""Reads ranges of offsets with a plain consumer, committed records only, as far as somebody wants them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_core.headers import DELIVER_AT, DUE_AT, OWN_HEADERS, Header
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable, call_error, making_client
from delayed_topics_kafka.messages import headers_of
from delayed_topics_kafka.reader import IGNORED_ERRORS, MOST_AT_ONCE, reader_config

from delayed_topics.record import number_in

SILENT_SECONDS = 30.0
"""Without a word of Kafka; how much there is to read says nothing about it."""


class Range(NamedTuple):
    """Offsets from `start` up to, and without, `end`."""

    start: int
    end: int


Ranges = Mapping[TopicPartitionKey, Range]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A record and where it lies. `at_ms`: its append time. `headers`: None if a name is not UTF-8. `own`: those headers that are ours,
    the last of a name."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None = ()
    own: Mapping[str, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    def due_at_ms(self, delay_seconds: int) -> int:
        """In the delays topic: what the worker says that copied it there, or else as it asked itself."""
        said = number_in(self.own.get(DUE_AT))
        return self.asked_at_ms(delay_seconds) if said is None else said

    def asked_at_ms(self, delay_seconds: int) -> int:
        """At a time of its own, or after that delay."""
        asked = number_in(self.own.get(DELIVER_AT))
        return self.at_ms + delay_seconds * 1000 if asked is None else max(asked, self.at_ms)


Take = Callable[[Found], bool]
"""Is given each record; True: that was all that was wanted."""
Progress = Callable[[int, int], object]
"""Is told how many of how many offsets are read: once before the first, and after each piece."""


class Scanner(Closing):
    def __init__(self, connection: Connection, progress: Progress) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._progress = progress
        self._auth_errors: list[KafkaError] = []
        config = {
            **reader_config(connection, "delayed-topics-client", stranded=Event(), auth_errors=self._auth_errors),
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 0,  # a command ends before it would be replaced
        }
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(config)

    def read(self, ranges: Ranges, take: Take) -> None:
        """All ranges side by side; each has to end at or below its partition's last stable offset. Raises KafkaCallError."""
        left = {key: span for key, span in ranges.items() if span.start < span.end}
        if not left:
            return
        total = sum(span.end - span.start for span in left.values())
        missing = {key: span.end - span.start for key, span in left.items()}
        self._progress(0, total)
        self._consumer.assign([TopicPartition(*key, span.start) for key, span in left.items()])
        deadline = Deadline(SILENT_SECONDS)
        while left:
            messages = self._consumer.consume(MOST_AT_ONCE, 0.2)
            if messages:
                deadline = Deadline(SILENT_SECONDS)
            elif deadline.over:
                raise self._silence(list(left))
            for message in messages:
                key, position = self._position(message)
                if key not in left:
                    continue
                missing[key] = max(0, left[key].end - position)
                if message.error() is None and position <= left[key].end and take(_found(message)):
                    return
                if not missing[key]:
                    del left[key]
            self._progress(total - sum(missing.values()), total)

    def close(self) -> None:
        self._consumer.close()

    def _silence(self, unread: list[TopicPartitionKey]) -> KafkaCallError:
        places = ", ".join(f"{topic} [{partition}]" for topic, partition in sorted(unread))
        if self._auth_errors:
            return call_error(
                self._auth_errors[-1], doing=f"reading {places}", bootstrap_servers=self._bootstrap_servers
            )
        return KafkaUnreachable(
            f"Kafka at {self._bootstrap_servers} sent nothing for {SILENT_SECONDS:g} s while the client read {places}. Check the "
            "address, the network and the brokers"
        )

    def _position(self, message: Message) -> tuple[TopicPartitionKey, int]:
        """The offset that comes next in its partition; -1 if the message tells nothing about that."""
        key, error, offset = (message.topic() or "", message.partition() or 0), message.error(), message.offset()
        if error is None:
            return key, (offset or 0) + 1
        if error.code() == KafkaError._PARTITION_EOF:
            return key, offset or 0
        if error.code() in IGNORED_ERRORS:
            return ("", 0), -1
        raise call_error(error, doing=f"reading {key[0]}", bootstrap_servers=self._bootstrap_servers)


def _found(message: Message) -> Found:
    headers = headers_of(message)
    return Found(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        at_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=headers,
        own={name: value for name, value in headers or () if name in OWN_HEADERS and value is not None},
    )
