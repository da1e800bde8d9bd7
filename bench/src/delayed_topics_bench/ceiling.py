"""Measures the most that the broker can do, with Kafka's own perf tools once they are warm, at the same size on the wire."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self

from delayed_topics_devcluster.kafka import java_tool

from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Ceiling", "ceiling", "wire_bytes"]

KEY_BYTES = 8
HEADERS = {"trace": 16, "kind": 5, "source": 5}
"""Header → bytes of its value, as java/kafka/Backlog.java writes it."""
PRODUCER = (
    *("acks=all", "enable.idempotence=true", "linger.ms=5", "batch.size=65536", "buffer.memory=67108864"),
    *("send.buffer.bytes=-1", "receive.buffer.bytes=-1", "compression.type=lz4"),
)
"""`compression.type` is the default of DelayedTopics for copies."""
JAVA = ("-Xmx256m",)
"""Java chooses its compilers, because only the final speed is measured, and not how soon it is reached."""
REPORT_MS = 100
WARM_SHARE = 0.5
"""The share of the records during which the JVM warms up; they don't count."""
SENT = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
"""A line of ProducerPerformance. It prints one every five seconds, and at the end one of the whole run."""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The records a second of a process that only produces, and of one that only consumes."""

    produce: float
    consume: float

    @property
    def relay(self) -> float:
        """The ceiling of a process that does both: 1 / (1/P + 1/C)."""
        return 1 / (1 / self.produce + 1 / self.consume)

    @classmethod
    def mean(cls, several: Sequence[Self]) -> Self:
        return cls(produce=fmean(one.produce for one in several), consume=fmean(one.consume for one in several))


def wire_bytes(size: int) -> int:
    """Returns the size of a record: value, key, headers, and the two lengths of each header. A batch adds the same for all records."""
    return size + KEY_BYTES + sum(len(name) + value + 2 for name, value in HEADERS.items())


def ceiling(testbed: Testbed, *, size: int, records: int) -> Ceiling:
    """Produces `records` with ProducerPerformance, then consumes them with ConsumerPerformance."""
    with testbed.topic(f"ceiling-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS) as topic:
        produced = java_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(wire_bytes(size))),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={testbed.bootstrap}", *PRODUCER),
            options=JAVA,
        )
        consumed = java_tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", testbed.bootstrap, "--topic", topic, "--messages", str(records)),
            *("--timeout", "60000", "--show-detailed-stats", "--reporting-interval", str(REPORT_MS)),
            options=JAVA,
        )
    return Ceiling(produce=_produced(produced), consume=_consumed(consumed))


def _produced(printed: str) -> float:
    *intervals, whole = [(int(count), float(rate)) for count, rate in SENT.findall(printed)]
    return _warm(intervals or [whole])


def _consumed(printed: str) -> float:
    header, *rows = [line.split(", ") for line in printed.splitlines() if line.count(",") >= 8]
    count, rate = header.index("data.consumed.in.nMsg"), header.index("nMsg.sec")
    totals = [0, *(int(row[count]) for row in rows)]
    return _warm([
        (after - before, float(row[rate])) for before, after, row in zip(totals[:-1], totals[1:], rows, strict=True)
    ])  # fmt: skip


def _warm(intervals: Sequence[tuple[int, float]]) -> float:
    """Returns the records a second of the intervals in which the JVM is warm. Each interval has its records and its rate."""
    whole = sum(count for count, _ in intervals)
    counted, seconds, passed = 0, 0.0, 0
    for count, rate in intervals:
        passed += count
        if count and passed > whole * WARM_SHARE:
            counted += count
            seconds += count / rate
    return counted / seconds
