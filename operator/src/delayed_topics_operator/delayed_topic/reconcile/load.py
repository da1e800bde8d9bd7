"""Computes how much work the workers of a delayed topic have, and how much of it they do, by offsets alone: no record is read. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from delayed_topics_core.offsets import TopicPartitionKey

LOOK_SECONDS = 4.0
"""The time between two looks at the offsets. It takes three looks to see that workers do not catch up, so this is a third of the time that
may take."""
KEPT_SECONDS = 300.0
"""The time for which the load is remembered."""
MIN_LAG = 1000
"""A smaller due lag is no reason to add a worker."""
ASSUMED_PER_SECOND = 1000.0
"""Records that a worker is assumed to be able to release before this was measured. The number is low, because an estimate that is too high
makes records late."""
MIN_SHARE = 0.2
"""The fraction of the lag of a worker that another worker must at least be able to take from it to be of use."""


@dataclass(frozen=True, kw_only=True)
class BrokerTime:
    """A lower bound of the time by the brokers' clock, which does not depend on the clock of this machine. `newest_ms`: the append time of
    the newest record. `seen_at_seconds`: when this record was first seen, in monotonic seconds."""

    newest_ms: int
    seen_at_seconds: float

    def after(self, newest_ms: int, seen_at_seconds: float) -> "BrokerTime":
        """Returns the bound after another answer of Kafka. It keeps the newest record even if retention has removed it since."""
        return self if newest_ms <= self.newest_ms else BrokerTime(newest_ms=newest_ms, seen_at_seconds=seen_at_seconds)

    def at_ms(self, at_seconds: float) -> int:
        """Returns the bound at a time, in milliseconds. It goes on while no record arrives, and never back: a record that is appended after
        `at_seconds` has no earlier time."""
        return self.newest_ms + max(0, int(1000 * (at_seconds - self.seen_at_seconds)))


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at all partitions at once. `due`: how many offsets were due (for a second or longer). `released`: how many were finished.
    Both are by partition, and count from offset 0. `workers`: how many workers are ready; 0 while some stop or the group rebalances.

    `shared`: whether another worker could take a good part from one that lags, see `can_be_shared`.
    """

    at_seconds: float
    due: Mapping[TopicPartitionKey, int]
    released: Mapping[TopicPartitionKey, int]
    workers: int
    shared: bool

    @property
    def due_lag(self) -> int:
        return sum(lag_of(self.due, self.released).values())


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The time between two looks. `due_lag`: at its end. `behind`: whether at both ends more than a second's work was due and not
    released."""

    seconds: float
    due_per_second: float
    released_per_second: float
    due_lag: int
    behind: bool
    workers: int
    shared: bool


@dataclass(frozen=True, kw_only=True)
class Load:
    """`intervals`: those of the last minutes, the latest last. `worker_per_second`: the records that one worker is assumed to be able to
    release in a second. This is its rate when it had more to do than it could, or else the highest rate that was ever needed."""

    latest: Look | None = None
    intervals: tuple[Interval, ...] = ()
    worker_per_second: float = ASSUMED_PER_SECOND

    def after(self, look: Look) -> "Load":
        """Returns the load with one more look."""
        interval = _between(self.latest, look) if self.latest is not None else None
        if interval is None:
            return Load(latest=look, worker_per_second=self.worker_per_second)
        kept, span = [interval], interval.seconds
        for former in reversed(self.intervals):
            if span >= KEPT_SECONDS:
                break
            kept.append(former)
            span += former.seconds
        return Load(latest=look, intervals=tuple(reversed(kept)), worker_per_second=self._worker_per_second(interval))

    def unchanged(self) -> tuple[Interval, ...]:
        """Returns the latest intervals with as many workers as now, without a gap. Empty while workers stop or rebalance."""
        workers = self.intervals[-1].workers if self.intervals else 0
        if not workers:
            return ()
        return tuple(takewhile(lambda interval: interval.workers == workers, reversed(self.intervals)))[::-1]

    def _worker_per_second(self, interval: Interval) -> float:
        known = self.worker_per_second
        if not interval.workers:
            return known
        found = interval.released_per_second / interval.workers
        if not interval.behind:
            return max(known, found)
        if not found:
            return known  # something else holds the workers up, such as a stopped broker or target topic
        before = self.intervals[-1] if self.intervals else None
        return (known + found) / 2 if before is not None and before.behind else found


def lag_of(
    due: Mapping[TopicPartitionKey, int], released: Mapping[TopicPartitionKey, int]
) -> dict[TopicPartitionKey, int]:
    """Returns the number of due records that are not released, by partition. Partitions without such records are left out."""
    return {key: offset - released[key] for key, offset in due.items() if offset > released[key]}


def can_be_shared(lags: Sequence[int]) -> bool:
    """Whether a worker with these lags has more than one partition that matters. Two workers cannot share one partition."""
    return sum(lags) - max(lags, default=0) >= max(1, MIN_SHARE * sum(lags))


def _between(before: Look, look: Look) -> Interval | None:
    """Returns None if the two looks cannot be compared, because partitions were added or topics were created again."""
    seconds = look.at_seconds - before.at_seconds
    became_due = sum(look.due.values()) - sum(before.due.values())
    were_released = sum(look.released.values()) - sum(before.released.values())
    if before.due.keys() != look.due.keys() or seconds <= 0 or became_due < 0 or were_released < 0:
        return None
    due_per_second, released_per_second = became_due / seconds, were_released / seconds
    most = max(MIN_LAG, due_per_second, released_per_second)
    return Interval(
        seconds=seconds,
        due_per_second=due_per_second,
        released_per_second=released_per_second,
        due_lag=look.due_lag,
        behind=before.due_lag > most and look.due_lag > most,
        workers=look.workers if look.workers == before.workers else 0,
        shared=look.shared,
    )
