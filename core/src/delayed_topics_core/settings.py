"""The topic settings on which the promises rest. The operator enforces them, and restores them when somebody changes them."""

from hashlib import sha256
from typing import Literal

TopicRole = Literal["front", "delays", "ready", "dead-letter", "control"]

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

MARK_SETTING = "delete.retention.ms"
"""The setting that holds the mark of a topic that was created for a claim. Kafka has no labels for topics, and this setting has no effect
on a topic that is never compacted. A control topic is compacted: it keeps tombstones for so long, unless its retention ends earlier."""
_DEFAULT_DELETE_RETENTION_MS = 86_400_000
_MARKS = 2**35
"""The number of marks: about a year in milliseconds. Managed services that limit this setting allow two years."""

AUDIT_INTERVAL_SECONDS = 86_400
"""Records must be kept for at least two of these intervals, so that an audit can read them."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default for `max.message.bytes`, which limits a batch as the broker sees it, compressed. By default, producers send no batch that
is larger than this before compression."""
FRONT_MAX_MESSAGE_BYTES = 2 * DEFAULT_MAX_MESSAGE_BYTES
COPY_MAX_MESSAGE_BYTES = 8 * 1_048_576
"""A copy has further headers, and may compress worse than the original, because a consumer does not know the codec of its source. A retry,
which goes to the front topic, is such a copy as well. 8 MiB is the most that several managed services allow."""

INPUT_COMPRESSION = "lz4"
"""The compression of topics that applications write to. Brokers decompress batches with another one, and compress their records anew. Java
reads some batches of which librdkafka (2.16) sees only the first records, or at which it aborts the process. No client library is known to
write such batches. The same value as in the client's producers, whose batches brokers keep as they are."""

CONTROL_MAX_COMPACTION_LAG_MS = 3_600_000
"""Kafka also rolls a new segment at least this often, because it does not compact the active segment."""
CONTROL_SEGMENT_BYTES = 16 * 1_048_576
"""The maximum size of a segment, which must not be below the maximum size of a batch. Kafka compacts several segments into one of up to
this size, and removes that segment when its latest record is old enough. Larger segments would keep expired records for years."""

NEEDED = {
    "message.timestamp.type": "workers release records by the time at which the broker received them",
    "cleanup.policy": "compaction would remove waiting records (only a control topic must be compacted, and also deleted by time)",
    "retention.ms": "records must be kept for their longest delay, the outage budget and two days",
    "retention.bytes": "Kafka would remove waiting records when there are many",
}
"""Settings without which a promise can't be kept, and why. If Kafka refuses one of them and has another value, the delayed topic is not
served."""
DURABLE = (MIN_ISR, UNCLEAN_ELECTION)
"""Settings that determine how many disks must fail before a record is lost."""
LESSER = {
    "max.message.bytes": "A copy that does not fit becomes a dead letter",
    "compression.type": "A producer that compresses as no client library does can hide its records from workers, or end workers",
    "max.compaction.lag.ms": "Workers take longer to read the control topic when they start",
    "segment.bytes": "Workers take longer to read the control topic when they start",
}
"""Other settings, and what follows if Kafka refuses one of them."""


def creation_mark(uid: str) -> int:
    """Returns the mark of topics that are created for the resource with this uid. It never equals Kafka's default.

    The client library does not return the id of a topic that it has created. If the operator stops before it has looked up and recorded
    the id, it later recognizes by the mark which topics it created, and which came from somebody else.
    """
    digest = sha256(uid.encode()).digest()
    return _DEFAULT_DELETE_RETENTION_MS + 1 + int.from_bytes(digest[:8], "big") % _MARKS


def least_in_sync(replication_factor: int) -> int:
    """Returns how many replicas must have a record before it counts as written. One may be missing if there are enough replicas."""
    return max(1, replication_factor - 1)


def least_retention_seconds(delay_seconds: tuple[int, ...]) -> int:
    """Returns how long the front and delays topics must keep a record, without any outage budget. For `delay_seconds`, see
    `topic_settings`."""
    return max(delay_seconds) + 2 * AUDIT_INTERVAL_SECONDS


def topic_settings(
    *,
    role: TopicRole,
    delay_seconds: tuple[int, ...],
    outage_budget_seconds: int,
    dead_letter_retention_seconds: int,
    replication_factor: int,
) -> dict[str, str]:
    """Returns the Kafka topic configuration of one of the topics of a delayed topic.

    `delay_seconds` has the delays of all kinds of the layout, including retired ones, and how far ahead a due time may lie.
    """
    retention_seconds = least_retention_seconds(delay_seconds) + outage_budget_seconds
    if role == "dead-letter":
        retention_seconds = max(retention_seconds, dead_letter_retention_seconds)
    compacted = {
        "max.compaction.lag.ms": str(CONTROL_MAX_COMPACTION_LAG_MS),
        "segment.bytes": str(CONTROL_SEGMENT_BYTES),
    }
    return {
        "cleanup.policy": "compact,delete" if role == "control" else "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(retention_seconds * 1000),
        "retention.bytes": "-1",
        MIN_ISR: str(least_in_sync(replication_factor)),
        UNCLEAN_ELECTION: "false",
        "max.message.bytes": str(FRONT_MAX_MESSAGE_BYTES if role == "front" else COPY_MAX_MESSAGE_BYTES),
        **({"compression.type": INPUT_COMPRESSION} if role in ("front", "control") else {}),
        **(compacted if role == "control" else {}),
    }
