"""Reads the committed records in ranges of offsets with a plain consumer, until the caller has what it looks for."""

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
from delayed_topics_kafka.reader import IGNORED_ERRORS, MAX_AT_ONCE, reader_config

from delayed_topics.record import number_in

SILENT_SECONDS = 30.0
"""How long Kafka may send nothing before reading fails. There is no limit for reading as a whole, which may be long."""


class Range(NamedTuple):
    """The offsets from `start` up to, but not including, `end`."""

    start: int
    end: int


Ranges = Mapping[TopicPartitionKey, Range]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A record and its place. `at_ms` is its append time. `headers` is None if the name of a header is not UTF-8. `own` has the headers of
    this project, and of several with one name the last."""

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
        """Returns the due time of a record in the delays topic: the one that the worker wrote that copied it there, or else the one that
        the record requests."""
        written = number_in(self.own.get(DUE_AT))
        return self.requested_due_at_ms(delay_seconds) if written is None else written

    def requested_due_at_ms(self, delay_seconds: int) -> int:
        """Returns the due time that the record requests, or else the time after `delay_seconds`."""
        requested = number_in(self.own.get(DELIVER_AT))
        return self.at_ms + delay_seconds * 1000 if requested is None else max(requested, self.at_ms)


Take = Callable[[Found], bool]
"""Takes each record. Returns True to end the reading."""
Progress = Callable[[int, int], object]
"""Takes how many offsets are read, and how many there are. Called before the first read and after each batch."""


class Scanner(Closing):
    def __init__(self, connection: Connection, progress: Progress) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._progress = progress
        self._auth_errors: list[KafkaError] = []
        config = {
            **reader_config(connection, "delayed-topics-client", stranded=Event(), auth_errors=self._auth_errors),
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 0,  # a command ends before a stranded client would be replaced
        }
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(config)

    def read(self, ranges: Ranges, take: Take) -> None:
        """Reads all ranges at the same time. Each must end at or below the last stable offset of its partition. Raises KafkaCallError."""
        left = {key: span for key, span in ranges.items() if span.start < span.end}
        if not left:
            return
        total = sum(span.end - span.start for span in left.values())
        missing = {key: span.end - span.start for key, span in left.items()}
        self._progress(0, total)
        self._consumer.assign([TopicPartition(*key, span.start) for key, span in left.items()])
        deadline = Deadline(SILENT_SECONDS)
        while left:
            messages = self._consumer.consume(MAX_AT_ONCE, 0.2)
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
        """Returns the partition of the message and the next offset to read in it, or -1 if the message does not tell that offset."""
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
