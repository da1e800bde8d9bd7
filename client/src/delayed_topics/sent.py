"""Up to where dead letters were sent: what the committed offsets of the group of redrives say, and for how long they say it."""

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
"""Of offsets, where Kafka does not say for how long it keeps them: few brokers have less than its own default of seven days."""

LEFT_UNLESS_ASKED_FOR: Final = frozenset(
    {DeadLetterReason.CANCELLED, DeadLetterReason.TOO_LARGE, DeadLetterReason.HEADER_UNREADABLE}
)
"""Somebody cancelled the first on purpose. The others may not have their value, or their headers, any more."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Which dead letters of a partition were sent: those with an offset below `others`. Those with a reason in `of_reason` were sent below
    the offset there, which may be lower or higher.

    As committed: `others` is the offset. The metadata are the id of the topic, which tells the commit from one for a former topic of the
    name, and `<reason>=<offset>` for each of `of_reason`, with spaces between.
    """

    others: int
    of_reason: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, committed: OffsetAndMetadata, topic_id: str) -> "Sent | None":
        """None: it says nothing of the topic with this id. What somebody has set by hand has no metadata, and says so of all reasons."""
        of_topic, *of_reason = committed.metadata.split(" ")
        if of_topic not in ("", topic_id):
            return None
        said = (reason.partition("=") for reason in of_reason)
        return cls(committed.offset, {reason: int(offset) for reason, _, offset in said})

    def metadata(self, topic_id: str) -> str:
        return " ".join([topic_id, *(f"{reason}={offset}" for reason, offset in sorted(self.of_reason.items()))])

    def of(self, reason: str) -> int:
        return self.of_reason.get(reason, self.others)

    def of_all(self, reasons: Collection[str]) -> int:
        """Up to where all dead letters were sent that have one of the reasons, or without any: that are wanted then."""
        if reasons:
            return min(self.of(reason) for reason in reasons)
        return min([self.others, *(at for reason, at in self.of_reason.items() if is_wanted(reason, ()))])

    def moved(self, at: int, reasons: Collection[str]) -> "Sent":
        """When the wanted ones before that offset are sent, too. Never back: else what is sent once more from the beginning would be sent
        again by the next redrive."""
        others = self.others if reasons else max(self.others, at)
        of_reason = {
            reason: max(self.of(reason), at) if is_wanted(reason, reasons) else self.of(reason)
            for reason in {*reasons, *LEFT_UNLESS_ASKED_FOR, *self.of_reason}
        }
        return Sent(others, {reason: offset for reason, offset in of_reason.items() if offset != others})


def is_wanted(reason: str, reasons: Collection[str]) -> bool:
    return reason in reasons if reasons else reason not in LEFT_UNLESS_ASKED_FOR


def committed(connection: Connection, names: TopicNames, dead_letters: TopicInfo) -> dict[TopicPartitionKey, Sent]:
    """Of the partitions of which Kafka has it. Offsets of a former topic of the same name say nothing of this one.

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
    """Where a redrive begins, also in the partitions of which Kafka has no position. `all_wanted`: whether or not they were sent before.

    Kafka forgets the position of a partition some time after the last redrive. Only if all dead letters that are there are younger is
    it known that none was sent. Raises KafkaCallError, and RedrivePositionUnknown.
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
    """As if all were sent that came before that time."""
    found = values_of(admin.offsets_for_times(dict.fromkeys(there, max(0, at_ms))))
    ends = {place: span.end for place, span in there.items()}
    return {place: Sent(ends[place] if at is None else min(at, ends[place])) for place, at in found.items()}
