"""Finds waiting records that retention may remove before they are released. Retention only depends on the age of a record.

The records of a partition wait for its delay, and Kafka keeps them for longer than that, by the outage budget and the time of two audits.
A record is at risk if it is not released when three quarters of this additional time are over. A record that waits as it should is
therefore never at risk, however long the delay.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError, NotAuthorized

from delayed_topics_worker.background import Watch
from delayed_topics_worker.questions import ask

HALVINGS: Final = 8
"""Steps of the bisection that finds the age of a record at risk, to a 256th of the time that is left when it comes to be at risk."""


class Unreleased(NamedTuple):
    """A partition that may have unreleased records, the first of them at `offset`. `delay_ms`: how long records wait there.
    `least_retention_ms`: the retention to assume for its topic if Kafka does not report it."""

    place: TopicPartitionKey
    offset: int
    delay_ms: int
    least_retention_ms: int


class Retention(NamedTuple):
    """`ms`: None if records are kept forever. `reported`: by Kafka; otherwise `ms` is the least that the operator sets."""

    ms: int | None
    reported: bool


class Risk(NamedTuple):
    """Unreleased records, from the offset `first` up to, but not including, `below`. `removable_at_ms`: when Kafka may remove the first."""

    first: int
    below: int
    removable_at_ms: int
    delay_ms: int
    retention_ms: int
    retention_reported: bool


class _Limits(NamedTuple):
    """The limits of a partition at this moment. A record that was appended before `risky_ms` is at risk, and may be gone if it was appended
    before `removable_ms`."""

    unreleased: Unreleased
    retention_ms: int
    retention_reported: bool
    removable_ms: int
    risky_ms: int


def margin_ms(retention_ms: int, delay_ms: int) -> int:
    """Returns for how long a record is at risk before it may be removed: always, if it may be removed before its delay is over."""
    return (retention_ms - delay_ms) // 4 if retention_ms > delay_ms else retention_ms


class RetentionWatch(Watch[Unreleased]):
    """Finds the risks on a thread of its own, which replaces `risks` as a whole. The worker's thread reads it."""

    def __init__(self, admin: KafkaAdmin) -> None:
        super().__init__("retention-watch")
        self.risks: Mapping[TopicPartitionKey, Risk] = {}
        self._admin = admin
        self._retentions: dict[str, Retention] = {}

    def see(self, places: Sequence[Unreleased], now_ms: int) -> None:
        self._read_retentions({u.place[0]: u.least_retention_ms for u in places})
        limits = {u.place: limit for u in places if (limit := self._limits(u, now_ms))}
        found = self._find(limits)
        unanswered = {place: risk for place, risk in self.risks.items() if place in limits and place not in found}
        self.risks = unanswered | {place: risk for place, risk in found.items() if risk is not None}

    def _read_retentions(self, least_ms: Mapping[str, int]) -> None:
        """Reads the retention of each topic. Without an answer, the last known value stays."""
        for topic, settings in self._admin.topic_configs(list(least_ms)).items():
            if isinstance(settings, NotAuthorized):
                self._retentions[topic] = Retention(least_ms[topic], reported=False)
            elif not isinstance(settings, KafkaCallError):
                ms = int(settings["retention.ms"])
                self._retentions[topic] = Retention(ms if ms >= 0 else None, reported=True)

    def _limits(self, unreleased: Unreleased, now_ms: int) -> _Limits | None:
        """Returns None if Kafka keeps all records, or if nothing is known."""
        retention = self._retentions.get(unreleased.place[0])
        if retention is None or retention.ms is None:
            return None
        risky_ms = now_ms - retention.ms + margin_ms(retention.ms, unreleased.delay_ms)
        if risky_ms <= 0:  # a lookup by a time before 1970 would mean one of Kafka's special offsets
            return None
        return _Limits(unreleased, retention.ms, retention.reported, max(0, now_ms - retention.ms), risky_ms)

    def _find(self, limits: Mapping[TopicPartitionKey, _Limits]) -> dict[TopicPartitionKey, Risk | None]:
        """Returns the risk of each partition; None: it has none. Partitions that Kafka did not answer for are missing."""
        below = self._below({place: limit.risky_ms for place, limit in limits.items()})
        behind = [place for place, offset in below.items() if limits[place].unreleased.offset < offset]
        starts = ask(lambda part: self._admin.list_offsets(part, "earliest"), behind)
        first = {place: max(start, limits[place].unreleased.offset) for place, start in starts.items()}
        at_risk = {place: offset for place, offset in first.items() if offset < below[place]}
        appended_ms = self._append_times(at_risk, limits)
        calm: dict[TopicPartitionKey, Risk | None] = dict.fromkeys((below.keys() - set(behind)) | first.keys())
        return calm | {
            place: Risk(
                first=first[place],
                below=below[place],
                removable_at_ms=at_ms + limits[place].retention_ms,
                delay_ms=limits[place].unreleased.delay_ms,
                retention_ms=limits[place].retention_ms,
                retention_reported=limits[place].retention_reported,
            )
            for place, at_ms in appended_ms.items()
        }

    def _below(self, times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int]:
        """Returns the first offset that was appended at these times or later. If there is none, returns the end offset from before that
        lookup, because records that come in meanwhile are new."""
        ends = ask(lambda part: self._admin.list_offsets(part, "latest"), times_ms)
        found = self._first_since({place: times_ms[place] for place in ends})
        return {place: ends[place] if offset is None else offset for place, offset in found.items()}

    def _append_times(
        self, offsets: Mapping[TopicPartitionKey, int], limits: Mapping[TopicPartitionKey, _Limits]
    ) -> dict[TopicPartitionKey, int]:
        """Returns the append times of the records at these offsets, or slightly earlier times, by bisection. Kafka reports the offset for a
        time, but not the time of an offset."""
        after = {place: limits[place].removable_ms for place in offsets}
        before = {place: limits[place].risky_ms for place in offsets}
        for _ in range(HALVINGS):
            middle = {place: (after[place] + before[place]) // 2 for place in offsets}
            for place, offset in self._first_since(middle).items():
                older = offset is None or offset > offsets[place]
                (before if older else after)[place] = middle[place]
        return after

    def _first_since(self, times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
        return ask(lambda part: self._admin.offsets_for_times({place: times_ms[place] for place in part}), times_ms)
