"""The Kafka client's settings, declared once, each with its reason."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.stranded import when_stranded

from delayed_topics_worker.config import Protocol
from delayed_topics_worker.log import kafka_log

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
OnError = Callable[[KafkaError], None]
OnStranded = Callable[[], None]

SOCKET_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 10_000
MAX_POLL_INTERVAL_MS = 60_000
TRANSACTION_TIMEOUT_MS = 10_000
"""For how long a worker that died for good holds read_committed readers back; the broker looks for such every 10 s."""

_BOTH: dict[str, Any] = {
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,  # 60 s would be how long a frozen broker is noticed late
    "reconnect.backoff.max.ms": 1000,  # 10 s would be how long a healed broker is noticed late
    "topic.metadata.refresh.interval.ms": 5000,  # a grown topic is seen only then
    "logger": kafka_log,
}

ASIDE: dict[str, Any] = {
    "reconnect.backoff.max.ms": 1000,
    "log_level": 2,  # what fails is said by those who call
}
"""For the clients of clock, registry, events and topic watch."""

_STATIC_CLASSIC: dict[str, Any] = {
    "partition.assignment.strategy": "range",  # the only one that switches to `consumer` and back while running
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 2000,
}


def new_consumer(
    connection: Connection,
    *,
    group: str,
    member: str,
    protocol: Protocol,
    hurried: bool,
    on_commit: OnCommit,
    on_error: OnError,
    on_stranded: OnStranded,
) -> Consumer:
    """A static member under classic: a restart within the session costs no rebalance. Under `consumer` a static member
    that was killed is refused for 42 s, so there it is a dynamic one. `hurried`: some records are due when they come in."""
    own = {**_STATIC_CLASSIC, "group.instance.id": member} if protocol == "classic" else {}
    return Consumer(
        {
            **connection.client_config(),
            **_BOTH,
            "client.id": member,
            "group.id": group,
            "group.protocol": protocol,
            **own,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # any other value skips or repeats without a word
            "enable.partition.eof": True,  # nothing else says that only transaction marks are left
            "check.crcs": True,  # what was damaged on its way must not be released
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            # whoever waits for a second can wait for the next 64 KiB: at 10,000 records/s an answer for every few records
            # cost broker and worker so much that p99 of the lateness was three times as high
            "fetch.min.bytes": 1 if hurried else 64 << 10,
            "fetch.queue.backoff.ms": 10,  # the default refills a drained queue a second late
            "fetch.error.backoff.ms": 100,
            # 1 MB would bring thousands of one partition in a row, which close the barrier before the others' come: four times
            # as many barriers for a backlog
            "max.partition.fetch.bytes": 256 << 10,
            "fetch.max.bytes": 4 << 20,  # compressed; unpacked it is many times that, and not in our window yet
            "queued.max.messages.kbytes": 16 << 10,
            "queued.min.messages": 20_000,  # each has some 450 bytes besides
            "on_commit": on_commit,
            "error_cb": on_error,
            **when_stranded(on_stranded),
        }
    )


def new_producer(
    connection: Connection,
    *,
    member: str,
    compression: str,
    on_error: OnError,
    on_stranded: OnStranded,
    transactional_id: str | None = None,
) -> Producer:
    """Idempotent, without an end to its patience: a copy is delivered, refused for good, or still on its way."""
    transactions = {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    return Producer(
        {
            **connection.client_config(),
            **_BOTH,
            "client.id": member,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "compression.type": compression,
            "linger.ms": 1,
            "message.max.bytes": 1_000_000_000,  # the topic decides, not the client
            "topic.metadata.propagation.max.ms": 3000,  # a missing topic holds the barrier for that long
            "allow.auto.create.topics": False,
            "delivery.report.only.error": True,
            "error_cb": on_error,
            **when_stranded(on_stranded),
            **(transactions if transactional_id else {}),
        }
    )
