"""Finds out which dead letters were sent, from the committed offsets of the group of redrives, which Kafka keeps only for some time."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import values_of
from delayed_topics_kafka.model import TopicInfo

from delayed_topics.errors import RedrivePositionUnknown
from delayed_topics.scan import Ranges

TIMEOUT_SECONDS: Final = 30.0
SHORTEST_RETENTION_MS: Final = 86_400_000
"""The retention of committed offsets to assume if Kafka does not tell it. Few brokers have less than the default of seven days."""

LEFT_UNLESS_ASKED_FOR: Final = frozenset(
    {DeadLetterReason.CANCELLED, DeadLetterReason.TOO_LARGE, DeadLetterReason.HEADER_UNREADABLE}
)
"""The reasons of dead letters that a redrive leaves unless they are requested. Cancelled records were cancelled on purpose. The others may
have lost their values or their headers."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Which dead letters of a partition were sent. For a reason in `of_reason`, these are the dead letters below the offset there, which
    may be lower or higher than `others`. For any other reason, these are the dead letters below the offset `others`.

    In a commit, `others` is the offset. The metadata have the id of the topic and then `<reason>=<offset>` for each of `of_reason`,
    separated by spaces. The id tells the commit from one for a former topic with the same name.
    """

    others: int
    of_reason: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, committed: OffsetAndMetadata, topic_id: str) -> "Sent | None":
        """Returns None if the commit is not for the topic with this id. An offset that was set by hand has no metadata, and counts for all
        reasons."""
        of_topic, *of_reason = committed.metadata.split(" ")
        if of_topic not in ("", topic_id):
            return None
        entries = (reason.partition("=") for reason in of_reason)
        return cls(committed.offset, {reason: int(offset) for reason, _, offset in entries})

    def metadata(self, topic_id: str) -> str:
        return " ".join([topic_id, *(f"{reason}={offset}" for reason, offset in sorted(self.of_reason.items()))])

    def of(self, reason: str) -> int:
        return self.of_reason.get(reason, self.others)

    def of_all(self, reasons: Collection[str]) -> int:
        """Returns the offset below which all dead letters with one of `reasons` were sent. Without `reasons`, these are all dead letters
        that a redrive sends by default."""
        if reasons:
            return min(self.of(reason) for reason in reasons)
        return min([self.others, *(at for reason, at in self.of_reason.items() if is_wanted(reason, ()))])

    def moved(self, at: int, reasons: Collection[str]) -> "Sent":
        """Returns the value after the wanted dead letters below the offset `at` are sent, too. It never moves back: otherwise the next
        redrive would send again what this one sends a second time from the beginning."""
        others = self.others if reasons else max(self.others, at)
        of_reason = {
            reason: max(self.of(reason), at) if is_wanted(reason, reasons) else self.of(reason)
            for reason in {*reasons, *LEFT_UNLESS_ASKED_FOR, *self.of_reason}
        }
        return Sent(others, {reason: offset for reason, offset in of_reason.items() if offset != others})


def is_wanted(reason: str, reasons: Collection[str]) -> bool:
    return reason in reasons if reasons else reason not in LEFT_UNLESS_ASKED_FOR


def committed(connection: Connection, names: TopicNames, dead_letters: TopicInfo) -> dict[TopicPartitionKey, Sent]:
    """Returns the committed positions, without partitions that have none. Offsets of a former topic with the same name are left out.

    Raises KafkaCallError.
    """
    places = [(dead_letters.name, partition) for partition in range(dead_letters.partitions)]
    found = committed_offsets(connection, names.redrive_group, places, timeout_seconds=TIMEOUT_SECONDS, ended=True)
    decoded = {place: Sent.decode(at, dead_letters.id) for place, at in found.items()}
    return {place: sent for place, sent in decoded.items() if sent is not None}


def begun(
    admin: KafkaAdmin,
    there: Ranges,
    known: Mapping[TopicPartitionKey, Sent],
    *,
    assume_sent_until_ms: int | None,
    all_wanted: bool,
) -> dict[TopicPartitionKey, Sent]:
    """Returns where a redrive begins, also in partitions for which Kafka has no position. With `all_wanted`, it does not matter which dead
    letters were sent before.

    Kafka forgets the position of a partition some time after the last redrive. If all dead letters of a partition without a position are
    younger than this time, none of them was sent. Otherwise that is unknown. Raises KafkaCallError, and RedrivePositionUnknown.
    """
    unknown = {place: span for place, span in there.items() if place not in known}
    nothing = {place: Sent(span.start) for place, span in unknown.items()}
    if all_wanted or not unknown:
        return {**known, **nothing}
    if assume_sent_until_ms is not None:
        return {**known, **_since(admin, unknown, assume_sent_until_ms)}
    retention_ms = admin.offsets_retention_ms() or SHORTEST_RETENTION_MS
    young = _since(admin, unknown, int(time.time() * 1000) - retention_ms)
    if old := sorted(place for place, at in young.items() if at.others > nothing[place].others):
        topic, partition = old[0]
        raise RedrivePositionUnknown(
            f"it can't be known whether old dead letters of {topic} [{partition}] were sent before, because Kafka forgets that "
            f"{retention_ms / 86_400_000:.3g} days after the last redrive. Set either --from-beginning to send all of {topic}, "
            "or --assume-sent-until TIME to send only those that came at that time or later"
        )
    return {**known, **nothing}


def _since(admin: KafkaAdmin, there: Ranges, at_ms: int) -> dict[TopicPartitionKey, Sent]:
    """Returns the positions as if all dead letters that were appended before `at_ms` had been sent."""
    found = values_of(admin.offsets_for_times(dict.fromkeys(there, max(0, at_ms))))
    ends = {place: span.end for place, span in there.items()}
    return {place: Sent(ends[place] if at is None else min(at, ends[place])) for place, at in found.items()}
