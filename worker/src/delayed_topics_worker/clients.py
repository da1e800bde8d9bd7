"""The settings of Kafka's clients, declared once, each with its reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.stranded import LOOK_SECONDS
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS

from delayed_topics_worker.config import Protocol

Properties = list[tuple[str, str]]
"""librdkafka's."""

SOCKET_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 10_000
MAX_POLL_INTERVAL_MS = 60_000
PROBE_TIMEOUT_MS = 1000
"""A probe that could not be sent within its freshness is worth nothing."""

_ALL: dict[str, Any] = {
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,  # 60 s would be how long a frozen broker is noticed late
    "reconnect.backoff.max.ms": 1000,  # 10 s would be how long a healed broker is noticed late
    "topic.metadata.refresh.interval.ms": 5000,  # a grown topic is seen only then
    "statistics.interval.ms": LOOK_SECONDS * 1000,  # only they say that a client knows no broker any more
}

BACKGROUND: dict[str, Any] = {
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,  # what fails is said by those who call
}
"""For the clients of registry, events and topic watch."""

_STATIC_CLASSIC: dict[str, Any] = {
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 500,
    # The registry tells that topics have grown. A client that sees it by itself while partitions are to be given up joins again
    # and doesn't wait for that (2.16, `rd_kafka_cgrp_metadata_update_check`), and what was on its way comes twice.
    "topic.metadata.refresh.interval.ms": 300_000,
}


@dataclass(frozen=True, kw_only=True)
class Fetching:
    """How a consumer asks for records. It goes on so for as long as it lives.

    `hurried`: some records are due when they come in. `partitions`: of the group.
    """

    hurried: bool
    partitions: int

    @property
    def wait_ms(self) -> int:
        """A request asks for all partitions, and is answered at once if one has something. If none has, each request costs the broker
        some 50 µs a partition. A partition that is new waits for the answer to the request before."""
        return min(500, max(100, self.partitions // 8))

    @property
    def statistics_seconds(self) -> int:
        """With statistics each partition of the group has a timer in one sorted list, and 1.5 kB in the text."""
        return min(30, max(LOOK_SECONDS, self.partitions // 125))

    def is_outgrown_by(self, wanted: "Fetching") -> bool:
        """Whether a new client is worth that its partitions pause."""
        slower_or_faster = not 0.5 < wanted.wait_ms / self.wait_ms < 2
        return slower_or_faster or (wanted.hurried and not self.hurried)


def librdkafka() -> str:
    """The path of the library that confluent-kafka brings, which the engine uses too."""
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
    """A static member under classic: a restart within the session costs no rebalance. Under `consumer` a static member
    that was killed is refused for 42 s, so there it is a dynamic one."""
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
            "auto.offset.reset": "error",  # any other value skips or repeats without a word
            "enable.partition.eof": True,  # nothing else says that only transaction marks are left
            "check.crcs": True,  # what was damaged on its way must not be released
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": fetching.wait_ms,
            "statistics.interval.ms": fetching.statistics_seconds * 1000,
            # whoever waits for a second can wait for the next 64 KiB: an answer for every few records costs broker and worker
            "fetch.min.bytes": 1 if fetching.hurried else 64 << 10,
            "fetch.queue.backoff.ms": 10,  # the default refills a drained queue a second late
            "fetch.error.backoff.ms": 100,
            # 1 MB would bring thousands of one partition in a row, which use up what it may send before the others' come
            "max.partition.fetch.bytes": 256 << 10,
            "fetch.max.bytes": 4 << 20,  # compressed; unpacked it has no bound, and is not in our window yet
            "queued.max.messages.kbytes": 16 << 10,
            "queued.min.messages": 20_000,  # each has some 450 bytes besides
            **own,
        }
    )


def producer_properties(connection: Connection, *, member: str, transactional_id: str | None) -> Properties:
    """Idempotent, without an end to its patience: a copy is delivered, refused for good, or still on its way."""
    transactions = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return _properties(
        {
            **connection.client_config(),
            **_ALL,
            "client.id": member,
            "enable.idempotence": True,  # what else that needs, the engine does: see engine/src/kafka/batching.rs
            "message.timeout.ms": 0,
            "linger.ms": 1,
            "message.max.bytes": 1_000_000_000,  # the topic decides, not the client
            "topic.metadata.propagation.max.ms": 3000,  # for so long nobody knows whether a topic is missing
            "queue.buffering.max.messages": 1_000_000,  # what a partition may send is bounded by the engine
            **(transactions if transactional_id else {}),
        }
    )


def clock_properties(connection: Connection, *, member: str) -> Properties:
    """Of the producer of probes: each is sent at once, and by itself."""
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
