"""An audit as one would write it without Spark: one Python process that reads the four topics and keeps what it has read in a dict."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from confluent_kafka import Consumer, Message, TopicPartition
from delayed_topics_core import headers as own
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_kafka.connection import Connection

BATCH = 5000


class Record(NamedTuple):
    """A record of Kafka. `content` is a hash of everything that must stay unchanged."""

    partition: int
    offset: int
    at_ms: int
    headers: dict[str, bytes]
    content: int


@dataclass
class PlainAudit:
    """Counts lost, early, doubled and changed records, which is less than the audit on Spark checks."""

    window: AuditWindow
    connection: Connection
    lost: int = 0
    early: int = 0
    doubled: int = 0
    changed: int = 0
    cancelled: int = 0
    _settled: set[tuple[str, int, int]] = field(default_factory=set)
    _roots: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    _ended: set[tuple[str, int]] = field(default_factory=set)

    def run(self) -> int:
        """Returns the number of records in the account."""
        names, delay_seconds = TopicNames.of(self.window.topic), self.window.delay_lists[-1].delay_seconds
        for message in self._read(names.front):
            level = int(message.headers.get(own.DELAY_LEVEL, 0)) or int(message.headers.get(own.ATTEMPT, 0)) + 1
            delay_ms = 1000 * delay_seconds[min(level, len(delay_seconds)) - 1]
            self._roots[message.partition, message.offset] = (message.at_ms, delay_ms, message.content)
        produced = len(self._roots)
        for message in self._read(names.delays):
            produced += 1
            self._outcome(message.headers)
        for message in self._read(names.ready):
            headers = message.headers
            self._outcome(headers)
            root = headers[own.ROOT].decode()
            _, partition, offset, _ = root.split(":")
            at_ms, delay_ms, content = self._roots[int(partition), int(offset)]
            self.early += message.at_ms < at_ms + delay_ms
            self.changed += content != message.content
            self.doubled += (root, int(headers[own.ATTEMPT])) in self._ended
            self._ended.add((root, int(headers[own.ATTEMPT])))
        for message in self._read(names.dead_letter):
            self._outcome(message.headers)
            self.cancelled += message.headers.get(own.REASON) == DeadLetterReason.CANCELLED.encode()
        committed = sum(map(sum, self.window.committed_offsets.values()))
        self.lost = committed - len(self._settled)
        return produced

    def _outcome(self, headers: dict[str, bytes]) -> None:
        topic_letter, partition, offset = headers[own.ORIGIN].decode().split(":")
        self._settled.add((topic_letter, int(partition), int(offset)))

    def _read(self, topic: str) -> Iterator[Record]:
        config = {
            **self.connection.client_config(),
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
        left = sum(self.window.end_offsets[topic])
        consumer = Consumer(config)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(len(self.window.end_offsets[topic]))])
        while left:
            for message in consumer.consume(BATCH, 1.0):
                left -= 1
                headers = {header[0]: header[1] for header in _headers(message) if header[1] is not None}
                yield Record(
                    partition=message.partition() or 0,
                    offset=message.offset() or 0,
                    at_ms=message.timestamp()[1],
                    headers=headers,
                    content=hash((message.key(), message.value(), headers.get("trace"), headers.get("source"))),
                )
        consumer.close()


def _headers(message: Message) -> list[own.Header]:
    return cast("list[own.Header]", message.headers() or [])
