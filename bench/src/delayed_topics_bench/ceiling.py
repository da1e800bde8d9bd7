"""What the broker gives at most: Kafka's own perf tools, on the same broker, at the same size on the wire."""

import uuid
from dataclasses import dataclass

from delayed_topics_devcluster.kafka import java_tool
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_bench.stand import PARTITIONS, Stand

__all__ = ["Ceiling", "ceiling", "wire_bytes"]

KEY_BYTES = 8
HEADERS = {"trace": 16, "kind": 5, "source": 5}
"""Name → bytes of its value, as java/kafka/Backlog.java writes them."""
PRODUCER = ("acks=all", "enable.idempotence=true", "linger.ms=5", "batch.size=65536", "buffer.memory=67108864")
JAVA = ("-Xmx256m",)
"""With Java's own choice of compilers: what is measured is what it gets to, not how soon."""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """Records a second of a process that only produces, and of one that only consumes."""

    produce: float
    consume: float

    @property
    def relay(self) -> float:
        """Of anything that does both: 1 / (1/P + 1/C)."""
        return 1 / (1 / self.produce + 1 / self.consume)


def wire_bytes(size: int) -> int:
    """Of a record: value, key, headers, and the two lengths of each header. What a batch adds is the same for all."""
    return size + KEY_BYTES + sum(len(name) + value + 2 for name, value in HEADERS.items())


def ceiling(stand: Stand, *, size: int, records: int) -> Ceiling:
    """Produce `records` with ProducerPerformance, then consume them with ConsumerPerformance."""
    topic = f"ceiling-{uuid.uuid4().hex[:8]}"
    spec = NewTopicSpec(name=topic, partitions=PARTITIONS, replication_factor=1, config={})
    stand.world.admin.create_topics([spec])
    produced = java_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(wire_bytes(size))),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={stand.bootstrap}", *PRODUCER),
        options=JAVA,
    )
    consumed = java_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", stand.bootstrap, "--topic", topic, "--messages", str(records), "--timeout", "60000"),
        options=JAVA,
    )
    stand.world.admin.delete_topics([topic])
    return Ceiling(produce=_produced(produced), consume=_consumed(consumed))


def _produced(printed: str) -> float:
    """Of its last line, `3000000 records sent, 423728.8 records/sec (…`."""
    last = [line for line in printed.splitlines() if "records sent" in line][-1]
    return float(last.split(",")[1].split()[0])


def _consumed(printed: str) -> float:
    """Of its table `start.time, …, fetch.nMsg.sec`: without the time that joining the group took."""
    header, *rows = [line.split(", ") for line in printed.splitlines() if line.count(",") >= 8]
    return float(rows[-1][header.index("fetch.nMsg.sec")])
