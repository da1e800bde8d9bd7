"""Finds partitions that deliver nothing although they have something to read, because a transaction is open or a batch can't be decoded.
Finds those to whose leader the worker has no connection, too."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey

from delayed_topics_worker.assigned import AssignedPartition

UNREADABLE_SECONDS: Final = 30.0
SUSPECT_SECONDS: Final = 10.0
"""After this time Kafka is asked why, so that the reason is known when the alarm is raised."""
MAX_AT_ONCE_SECONDS: Final = 2.0
"""The time between two looks that counts at most, because a worker that stood still did not wait for records meanwhile."""


class Span(NamedTuple):
    """The unread offsets of a partition, from `position` up to `end`, as far as the client knows without a request. An `end` below 0 is
    not known. `out_of_reach`: the client has no connection to the leader, so there may be more."""

    position: int
    end: int
    out_of_reach: bool = False

    @property
    def unread(self) -> int:
        return max(0, self.end - self.position)

    @property
    def may_have_more(self) -> bool:
        return self.out_of_reach or self.unread > 0


class Silent(NamedTuple):
    """A partition that has delivered nothing for `seconds`, although it has something to read or is out of reach."""

    place: TopicPartitionKey
    span: Span
    seconds: float


def unread_span(owned: AssignedPartition) -> Span:
    """Returns what was unread when the state of the engine was last taken in."""
    seen = owned.seen
    return Span(0, -1) if seen is None or seen.state == "unplaced" else Span(seen.position, seen.end, seen.out_of_reach)


class SilentPartitions:
    """Measures for how long each partition has delivered nothing. `now`: seconds of any steady clock."""

    def __init__(self) -> None:
        self._quiet: dict[TopicPartitionKey, tuple[Span, float]] = {}
        self._looked_at: float | None = None

    def look(
        self,
        reading: Mapping[TopicPartitionKey, Span],
        rewinding: Iterable[TopicPartitionKey] = (),
        *,
        now: float,
    ) -> list[Silent]:
        """Returns the partitions that have been silent for at least SUSPECT_SECONDS. `reading`: all partitions that should be read now.
        `rewinding`: partitions that are about to be read again, whose time stands still. All others are forgotten."""
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, MAX_AT_ONCE_SECONDS)
        self._looked_at = now
        before = self._quiet
        self._quiet = {place: before[place] for place in rewinding if place in before}
        for place, span in reading.items():
            last, seconds = before.get(place, (span, 0.0))
            silent = span.may_have_more and last.may_have_more and span.position == last.position
            self._quiet[place] = span, seconds + passed if silent else 0.0
        return [
            Silent(place, span, seconds) for place, (span, seconds) in self._quiet.items() if seconds >= SUSPECT_SECONDS
        ]
