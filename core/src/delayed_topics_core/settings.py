"""The topic settings that the promises rest on; enforced, and repaired when somebody changes them."""

from hashlib import sha256
from typing import Literal

TopicRole = Literal["front", "delays", "ready", "dead-letter", "control"]

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

MARK_SETTING = "delete.retention.ms"
"""Has the mark of a topic that was made for a claim. Kafka has no labels for topics, and to a topic that is never compacted this
setting means nothing. In a control topic, which is, tombstones stay for that long, unless its retention is over before."""
_DEFAULT_DELETE_RETENTION_MS = 86_400_000
_MARKS = 2**35
"""About a year in milliseconds: services that bound this setting allow two."""

AUDIT_INTERVAL_SECONDS = 86_400
"""What an audit looks at has to outlive two of these."""

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default for `max.message.bytes`: a batch as the broker sees it, compressed. Producers send none that is larger before it is
compressed, unless they are told to."""
FRONT_MAX_MESSAGE_BYTES = 2 * DEFAULT_MAX_MESSAGE_BYTES
COPY_MAX_MESSAGE_BYTES = 8 * 1_048_576
"""A copy has our headers too, and may compress worse than the original: the source's codec is not known to a consumer. A retry, which
goes to the front topic, is such a copy as well. It is the most that several managed services allow."""

CONTROL_MAX_COMPACTION_LAG_MS = 3_600_000
"""Kafka begins another segment as often, since it does not compact the one that it writes to."""
CONTROL_SEGMENT_BYTES = 16 * 1_048_576
"""At most, and at least what a batch may have. Kafka compacts several segments into one, up to this size, and removes that one when its
latest record is old enough. In a larger one, records that are over would stay for years."""

NEEDED = {
    "message.timestamp.type": "workers release records by the time at which the broker received them",
    "cleanup.policy": "compaction would remove waiting records (only a control topic must be compacted, and also deleted by time)",
    "retention.ms": "records must be kept for their longest delay, the outage budget and two days",
    "retention.bytes": "Kafka would remove waiting records when there are many",
}
"""Settings without which a promise can't be kept, and why. If Kafka refuses one of them and has another value, nothing is served."""
DURABLE = (MIN_ISR, UNCLEAN_ELECTION)
"""Settings that decide how many lost disks lose a record."""
LESSER = {
    "max.message.bytes": "A copy that does not fit becomes a dead letter",
    "max.compaction.lag.ms": "Workers take longer to read the control topic when they start",
    "segment.bytes": "Workers take longer to read the control topic when they start",
}
"""Other settings, and what follows if Kafka refuses one of them."""


def creation_mark(uid: str) -> int:
    """The mark of topics that are made for the resource with this uid: never Kafka's default.

    The client library doesn't tell the id of a topic that it has made. Whoever is stopped before the id was looked up and noted
    tells by the mark which topics were made, and which came from somebody else.
    """
    digest = sha256(uid.encode()).digest()
    return _DEFAULT_DELETE_RETENTION_MS + 1 + int.from_bytes(digest[:8], "big") % _MARKS


def least_in_sync(replication_factor: int) -> int:
    """How many brokers have a record before it counts as written: one may be away, where there are enough replicas for that."""
    return max(1, replication_factor - 1)


def least_retention_seconds(delay_seconds: tuple[int, ...]) -> int:
    """What front and delays topic keep a record for, before any outage budget. `delay_seconds` as of `topic_settings`."""
    return max(delay_seconds) + 2 * AUDIT_INTERVAL_SECONDS


def topic_settings(
    *,
    role: TopicRole,
    delay_seconds: tuple[int, ...],
    outage_budget_seconds: int,
    dead_letter_retention_seconds: int,
    replication_factor: int,
) -> dict[str, str]:
    """Topic configuration of one of a delayed topic's topics, as Kafka spells it.

    `delay_seconds` has every kind of the layout, retired ones included, and how far ahead a due time may lie.
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
        **(compacted if role == "control" else {}),
    }
