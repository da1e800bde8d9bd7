"""The settings of the Kafka clients, declared once, each with its reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.stranded import LOOK_SECONDS
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS

from delayed_topics_worker.config import Protocol

Properties = list[tuple[str, str]]
"""Properties of librdkafka."""

SOCKET_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 10_000
MAX_POLL_INTERVAL_MS = 60_000
PROBE_TIMEOUT_MS = 1000
"""A probe that could not be sent in this time is no longer fresh, and worthless."""

_ALL: dict[str, Any] = {
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,  # with the default, a client notices a frozen broker only after 60 s
    "reconnect.backoff.max.ms": 1000,  # with the default, a client notices a healed broker up to 10 s late
    "topic.metadata.refresh.interval.ms": 5000,  # a client sees new partitions only at a refresh
    "statistics.interval.ms": LOOK_SECONDS * 1000,  # only statistics show that a client has lost all brokers' addresses
}

BACKGROUND: dict[str, Any] = {
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,  # the callers report failures
}
"""For the clients of registry, events and topic watch."""

_STATIC_CLASSIC: dict[str, Any] = {
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 500,
    # The registry announces that topics have grown. If a client sees that by itself while it gives up partitions, it joins again without
    # waiting for that (2.16, `rd_kafka_cgrp_metadata_update_check`), and copies in flight come out twice.
    "topic.metadata.refresh.interval.ms": 300_000,
}


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """How a consumer fetches records, for as long as it lives.

    `hurried`: some records are due when they come in. `partitions`: the number of partitions of the group.
    """

    hurried: bool
    partitions: int

    @property
    def wait_ms(self) -> int:
        """A fetch request names all partitions, and is answered at once if one of them has records. If none has, each request costs the
        broker some 50 µs for each partition. A partition that is new waits for the answer to the previous request."""
        return min(500, max(100, self.partitions // 8))

    @property
    def statistics_seconds(self) -> int:
        """With statistics, each partition of the group has a timer in one sorted list, and takes 1.5 kB of the text."""
        return min(30, max(LOOK_SECONDS, self.partitions // 125))

    def is_outgrown_by(self, wanted: "Fetching") -> bool:
        """Returns whether the wanted settings are worth a new client, although its partitions pause meanwhile."""
        slower_or_faster = not 0.5 < wanted.wait_ms / self.wait_ms < 2
        return slower_or_faster or (wanted.hurried and not self.hurried)


def librdkafka() -> str:
    """Returns the path of the library that confluent-kafka contains. The engine uses the same library."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    return str(next(folder.glob("librdkafka-*.so*")))


def consumer_properties(
    connection: Connection,
    *,
    group: str,
    member: str,
    protocol: Protocol,
    assignor: str,
    fetching: Fetching,
) -> Properties:
    """Returns the properties of the group's consumer. With `classic` it is a static member, so that a restart within the session costs no
    rebalance. With `consumer` it is a dynamic member, because Kafka refuses a static member for 42 s after it was killed."""
    own: dict[str, Any] = {"group.remote.assignor": assignor}
    if protocol == "classic":
        own = {**_STATIC_CLASSIC, "partition.assignment.strategy": assignor, "group.instance.id": member}
    return _properties(
        {
            **connection.client_config(),
            **_ALL,
            "client.id": member,
            "group.id": group,
            "group.protocol": protocol,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # any other value skips or repeats records silently
            "enable.partition.eof": True,  # nothing else shows that only transaction markers are left
            "check.crcs": True,  # a batch that was damaged in transit must not be released
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": fetching.wait_ms,
            "statistics.interval.ms": fetching.statistics_seconds * 1000,
            # Records that wait for a second or more can also wait for 64 KiB: an answer for every few records costs broker and worker.
            "fetch.min.bytes": 1 if fetching.hurried else 64 << 10,
            "fetch.queue.backoff.ms": 10,  # the default refills a drained queue a second late
            "fetch.error.backoff.ms": 100,
            # 1 MB would bring thousands of records of one partition in a row. They use up what it may send before others have records.
            "max.partition.fetch.bytes": 256 << 10,
            "fetch.max.bytes": 4 << 20,  # compressed; decompressed, it has no bound, and is not in our window yet
            "queued.max.messages.kbytes": 16 << 10,
            "queued.min.messages": 20_000,  # each takes some 450 bytes besides its data
            **own,
        }
    )


def producer_properties(connection: Connection, *, member: str, transactional_id: str | None) -> Properties:
    """Returns the properties of an idempotent producer that never gives up: a copy is delivered, permanently refused, or in flight."""
    transactions = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return _properties(
        {
            **connection.client_config(),
            **_ALL,
            "client.id": member,
            "enable.idempotence": True,  # the engine does what else that needs, see engine/src/kafka/batching.rs
            "message.timeout.ms": 0,
            "linger.ms": 1,
            "message.max.bytes": 1_000_000_000,  # the limit of the topic applies, not one of the client
            "topic.metadata.propagation.max.ms": 3000,  # until then, it is open whether a topic is missing
            "queue.buffering.max.messages": 1_000_000,  # the engine limits what a partition may send
            **(transactions if transactional_id else {}),
        }
    )


def clock_properties(connection: Connection, *, member: str) -> Properties:
    """Returns the properties of the producer of clock probes, which sends each probe at once and alone."""
    return _properties(
        {
            **connection.client_config(),
            **_ALL,
            "client.id": f"{member}-clock",
            "acks": 1,
            "linger.ms": 0,
            "message.timeout.ms": PROBE_TIMEOUT_MS,
            "topic.metadata.propagation.max.ms": PROBE_TIMEOUT_MS,
        }
    )


def _properties(settings: dict[str, Any]) -> Properties:
    return [(name, _text(value)) for name, value in settings.items()]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
