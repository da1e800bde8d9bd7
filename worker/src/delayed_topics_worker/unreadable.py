"""Partitions that have something to read and give nothing: a transaction is open, or a batch can't be decoded."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey

from delayed_topics_worker.assigned import AssignedPartition

UNREADABLE_SECONDS: Final = 30.0
SUSPECT_SECONDS: Final = 10.0
"""Then Kafka is asked why, so that the reason is known when it is said."""
MOST_AT_ONCE_SECONDS: Final = 2.0
"""Of the time between two looks: a worker that stood still has not waited in vain meanwhile."""


class Span(NamedTuple):
    """What is unread of a partition: from `position` up to `end`, as far as the client knows without asking. An end below 0
    isn't known."""

    position: int
    end: int

    @property
    def unread(self) -> int:
        return max(0, self.end - self.position)


class Silent(NamedTuple):
    """A partition from which nothing was read for so long, though there is something."""

    place: TopicPartitionKey
    span: Span
    seconds: float


def unread_span(owned: AssignedPartition) -> Span:
    """As the engine had it when somebody looked last."""
    seen = owned.seen
    return Span(0, -1) if seen is None or seen.state == "unplaced" else Span(seen.position, seen.end)


class SilentPartitions:
    """For how long each partition has given nothing. `now`: seconds of any steady clock."""

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
        """Those that are silent for long enough to be suspected. `reading`: all that should be read now. `rewinding`: those
        that are about to be read again; their time stands still. Others are forgotten."""
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, MOST_AT_ONCE_SECONDS)
        self._looked_at = now
        before = self._quiet
        self._quiet = {place: before[place] for place in rewinding if place in before}
        for place, span in reading.items():
            last, seconds = before.get(place, (span, 0.0))
            silent = span.unread and last.unread and span.position == last.position
            self._quiet[place] = span, seconds + passed if silent else 0.0
        return [
            Silent(place, span, seconds) for place, (span, seconds) in self._quiet.items() if seconds >= SUSPECT_SECONDS
        ]
