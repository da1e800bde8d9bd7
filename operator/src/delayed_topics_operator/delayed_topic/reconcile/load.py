"""How much work the workers of a delayed topic have, and how much of it they do, by offsets alone: no record is read. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from delayed_topics_core.offsets import TopicPartitionKey

LOOK_SECONDS = 4.0
"""Between two looks at the offsets. Three of them show that workers do not catch up, so this is a third of what that may take."""
KEPT_SECONDS = 300.0
"""For how long it is remembered what there was to do."""
LEAST_LAG = 1000
"""Fewer records that are due and not released are no reason for another worker."""
ASSUMED_PER_SECOND = 1000.0
"""Records that a worker is taken to be able to release before it was seen: few, since a wrong guess makes records late."""
LEAST_SHARE = 0.2
"""Of what a worker has to do, what another must be able to take from it to be of use."""


@dataclass(frozen=True, kw_only=True)
class BrokerTime:
    """What the brokers' clock shows at least, whatever this machine's shows. `newest_ms`: when the newest record was appended.
    `seen_at_seconds`: when that was first known, by a clock that counts monotonic seconds."""

    newest_ms: int
    seen_at_seconds: float

    def after(self, newest_ms: int, seen_at_seconds: float) -> "BrokerTime":
        """With another answer of Kafka. What retention has removed was there all the same."""
        return self if newest_ms <= self.newest_ms else BrokerTime(newest_ms=newest_ms, seen_at_seconds=seen_at_seconds)

    def at_ms(self, at_seconds: float) -> int:
        """It goes on while no record comes, and never back: what was appended after `at_seconds` has no earlier time."""
        return self.newest_ms + max(0, int(1000 * (at_seconds - self.seen_at_seconds)))


@dataclass(frozen=True, kw_only=True)
class Look:
    """At all partitions at once. `due`: how many offsets were due (for a second or longer). `released`: how many were finished; both by
    partition, from offset 0. `workers`: how many serve them, 0 while some stop or rebalance. Pods that are not ready do not count.

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
    """Between two looks. `due_lag`: at its end. `behind`: at both ends more than a second's work was due and not released."""

    seconds: float
    due_per_second: float
    released_per_second: float
    due_lag: int
    behind: bool
    workers: int
    shared: bool


@dataclass(frozen=True, kw_only=True)
class Load:
    """`intervals`: of the last minutes, the latest last. `worker_per_second`: records that one worker is taken to be able to release: as
    many as it did when there was more to do than it could, or else the most that it ever had to."""

    latest: Look | None = None
    intervals: tuple[Interval, ...] = ()
    worker_per_second: float = ASSUMED_PER_SECOND

    def after(self, look: Look) -> "Load":
        """With one look more."""
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
        """The latest intervals, as far back as there were as many workers as now; none while some stop or rebalance."""
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
            return known  # something else keeps them: a stopped broker, a target that takes nothing
        before = self.intervals[-1] if self.intervals else None
        return (known + found) / 2 if before is not None and before.behind else found


def lag_of(
    due: Mapping[TopicPartitionKey, int], released: Mapping[TopicPartitionKey, int]
) -> dict[TopicPartitionKey, int]:
    """Records that are due and not released, by partition; those that have none are left out."""
    return {key: offset - released[key] for key, offset in due.items() if offset > released[key]}


def can_be_shared(lags: Sequence[int]) -> bool:
    """Whether a worker whose partitions lag so much has several that matter, since no two workers share one."""
    return sum(lags) - max(lags, default=0) >= max(1, LEAST_SHARE * sum(lags))


def _between(before: Look, look: Look) -> Interval | None:
    """None: the two can't be compared, since partitions came or topics were made again."""
    seconds = look.at_seconds - before.at_seconds
    came = sum(look.due.values()) - sum(before.due.values())
    went = sum(look.released.values()) - sum(before.released.values())
    if before.due.keys() != look.due.keys() or seconds <= 0 or came < 0 or went < 0:
        return None
    due_per_second, released_per_second = came / seconds, went / seconds
    most = max(LEAST_LAG, due_per_second, released_per_second)
    return Interval(
        seconds=seconds,
        due_per_second=due_per_second,
        released_per_second=released_per_second,
        due_lag=look.due_lag,
        behind=before.due_lag > most and look.due_lag > most,
        workers=look.workers if look.workers == before.workers else 0,
        shared=look.shared,
    )
