"""The layout: a table that says which partition of the delays topic stands for which delay. Only this module creates or changes tables;
the engine and the client look partitions up in them.

`initial` returns the first table, and `evolve` every later one. The delay of a partition never changes: whatever a manifest becomes,
partitions are only appended. So no record that waits changes its meaning, and no stale client can make a record early.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

Role = Literal["main", "delay", "ladder", "retired"]

MAX_RANGED: Final = 100_000
"""The maximum number of partitions of one kind. Kafka does not cope with more in one topic."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutSpec:
    """The layout that a manifest requests. `delay_seconds` has the delays in list order. `partitions` is the wanted number of partitions
    of the delays topic, without those of the ladder. `lanes_per_delay` is the number of lanes of each delay after the first; with None,
    each gets an even share of `partitions`. For `ladder_seconds`, see `ladder`; empty means that there is no ladder."""

    delay_seconds: tuple[int, ...]
    partitions: int
    lanes_per_delay: int | None = None
    ladder_seconds: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[int, ...]:
        """The distinct delays, in the order in which each first appears."""
        return tuple(dict.fromkeys(self.delay_seconds))

    @property
    def lanes(self) -> int:
        """The number of partitions of each delay after the first. With a first delay of 0 s, only records that were produced to the delays
        topic itself are in its partitions. So this delay has no share, and gets the partitions that the others leave."""
        if self.lanes_per_delay is not None:
            return self.lanes_per_delay
        first, *further = self.kinds
        shared, sharing = (self.partitions - 1, len(further)) if first == 0 else (self.partitions, len(self.kinds))
        return max(1, shared // max(1, sharing))

    @property
    def main_partitions(self) -> int:
        return self._left_by(self.lanes)

    @property
    def front_partitions(self) -> int:
        """The default number of partitions of the front topic and of the ready topic. An even share for lanes does not lower it."""
        return self._left_by(self._least_lanes)

    def _left_by(self, lanes: int) -> int:
        return max(1, self.partitions - lanes * (len(self.kinds) - 1))

    @property
    def ladder_partitions(self) -> int:
        """The number of partitions that only the ladder needs."""
        return self._least_lanes * len(self._only_of_ladder)

    def wanted(self) -> dict[int, int]:
        """Returns the wanted number of partitions for each delay in seconds, first in list order, then those of the ladder."""
        first, *further = self.kinds
        of_list = {first: self.main_partitions, **dict.fromkeys(further, self.lanes)}
        return {**of_list, **dict.fromkeys(self._only_of_ladder, self._least_lanes)}

    @property
    def _least_lanes(self) -> int:
        """The number of lanes of a delay that gets no share of `partitions`."""
        return self.lanes_per_delay or 1

    @property
    def _only_of_ladder(self) -> tuple[int, ...]:
        return tuple(delay for delay in self.ladder_seconds if delay not in self.delay_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A delay, in seconds, and its partitions of the delays topic, ascending."""

    delay_seconds: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The table at one generation. `delay_seconds` is the delay list, and `ladder_seconds` is the ladder (see `ladder`). `kinds` also has
    the retired kinds, which are in neither any more."""

    generation: int
    delay_seconds: tuple[int, ...]
    kinds: tuple[Kind, ...]
    ladder_seconds: tuple[int, ...] = ()

    @cached_property
    def partition_delays(self) -> tuple[int, ...]:
        """The delay of each partition of the delays topic, in seconds. The index is the partition."""
        delays = {p: kind.delay_seconds for kind in self.kinds for p in kind.partitions}
        return tuple(delays[p] for p in range(len(delays)))

    @cached_property
    def _by_delay(self) -> dict[int, Kind]:
        return {kind.delay_seconds: kind for kind in self.kinds}

    @cached_property
    def in_list(self) -> frozenset[int]:
        return frozenset(self.delay_seconds)

    @property
    def partition_count(self) -> int:
        return len(self.partition_delays)

    @property
    def main(self) -> Kind:
        """The kind of the first entry of the delay list."""
        return self._by_delay[self.delay_seconds[0]]

    def delay_for_attempt(self, attempt: int) -> int:
        """Returns the seconds that attempt `attempt` (0 = first) waits. The last entry applies to all later attempts."""
        return self.delay_seconds[min(attempt, len(self.delay_seconds) - 1)]

    def delay_for_level(self, level: int) -> int:
        """Returns the seconds of entry `level` of the delay list, counted from 1. A level above the last entry gets the last."""
        return self.delay_seconds[min(level, len(self.delay_seconds)) - 1]

    def partition_for(self, delay_seconds: int, front_partition: int) -> int:
        """Returns the lane that records of a front partition take for a delay. It is always the same one."""
        lanes = self._by_delay[delay_seconds].partitions
        return lanes[front_partition % len(lanes)]

    def waits_seconds(self, max_delay_seconds: int) -> tuple[int, ...]:
        """Returns how long records can wait: all delays, including retired ones, and with a ladder also `max_delay_seconds`."""
        ahead = (max_delay_seconds,) if self.ladder_seconds else ()
        return (*(kind.delay_seconds for kind in self.kinds), *ahead)

    def role(self, kind: Kind) -> Role:
        if kind.delay_seconds in self.in_list:
            return "main" if kind is self.main else "delay"
        return "ladder" if kind.delay_seconds in self.ladder_seconds else "retired"

    def ranges(self) -> list[tuple[int, Role, str]]:
        """Returns (delay in seconds, role, partitions as ranges such as "0-8,12") for each kind, for people to read."""
        return [(kind.delay_seconds, self.role(kind), format_ranges(kind.partitions)) for kind in self.kinds]


def ladder(*, max_seconds: int, base: int) -> tuple[int, ...]:
    """Returns the delays by which a record reaches any due time: 1, base, base² … seconds, up to `max_seconds`.

    A record takes the longest delay that fits into the remaining time, again and again. Less than a second is spent in memory.
    """
    delays = [1]
    while delays[-1] * base <= max_seconds:
        delays.append(delays[-1] * base)
    return tuple(delays)


def most_hops(ladder_seconds: tuple[int, ...], *, max_delay_seconds: int) -> int:
    """Returns how many times a record is copied at most until it is due. It takes the longest delay as often as that fits, and each shorter
    one as often as it fits into what the next longer one leaves."""
    hops, remaining = 0, max_delay_seconds
    for delay in reversed(ladder_seconds):
        hops, remaining = hops + remaining // delay, min(remaining, delay - 1)
    return hops


def initial(spec: LayoutSpec) -> Layout:
    """Returns the first table: the main partitions, from 0, and then the lanes of each further kind in list order."""
    return _append(Layout(generation=0, delay_seconds=(), kinds=()), spec)


def evolve(previous: Layout, spec: LayoutSpec) -> Layout:
    """Returns the next table. It appends what `spec` wants beyond `previous` and removes nothing; if nothing is new, it is `previous`."""
    following = _append(previous, spec)
    return previous if replace(following, generation=previous.generation) == previous else following


def surplus(layout: Layout, spec: LayoutSpec) -> int:
    """Returns the number of partitions that the topic has beyond those requested, because the main partitions were clamped to one, counts
    were lowered, or kinds are retired."""
    return max(0, layout.partition_count - spec.partitions - spec.ladder_partitions)


def _append(previous: Layout, spec: LayoutSpec) -> Layout:
    partitions = {kind.delay_seconds: kind.partitions for kind in previous.kinds}
    end = sum(len(p) for p in partitions.values())
    for delay_seconds, count in _counts(previous, spec).items():
        have = partitions.get(delay_seconds, ())
        missing = max(0, count - len(have))
        partitions[delay_seconds] = (*have, *range(end, end + missing))
        end += missing
    kinds = tuple(Kind(delay_seconds=d, partitions=p) for d, p in partitions.items())
    return Layout(
        generation=previous.generation + 1,
        delay_seconds=spec.delay_seconds,
        kinds=kinds,
        ladder_seconds=spec.ladder_seconds,
    )


def _counts(previous: Layout, spec: LayoutSpec) -> dict[int, int]:
    """Returns the number of partitions for each delay in seconds. A further delay gets its even share from partitions that are free. If
    former delays hold them, it gets one partition; otherwise the topic would grow by a whole share each time that another delay replaces
    one."""
    wanted = spec.wanted()
    if spec.lanes_per_delay is not None:
        return wanted
    have = {kind.delay_seconds: len(kind.partitions) for kind in previous.kinds}
    counts = {delay_seconds: max(1, have.get(delay_seconds, 0)) for delay_seconds in wanted}
    main = spec.kinds[0]
    counts[main] = max(counts[main], wanted[main])
    free = spec.partitions + spec.ladder_partitions - sum({**have, **counts}.values())
    while free > 0 and (
        short := [delay_seconds for delay_seconds in wanted if counts[delay_seconds] < wanted[delay_seconds]]
    ):
        counts[min(short, key=counts.__getitem__)] += 1
        free -= 1
    return counts


def format_ranges(numbers: Iterable[int]) -> str:
    """Returns ascending numbers as ranges: [0, 1, 2, 5] → "0-2,5"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_ranges(text: str) -> tuple[int, ...]:
    """The inverse of format_ranges. Raises ValueError, also for more than MAX_RANGED numbers, because a few characters can stand for any
    number of them."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found = range(int(first), int(last or first) + 1)
        if len(numbers) + len(found) > MAX_RANGED:
            raise ValueError(f"{text[:50]!r} stands for more than {MAX_RANGED} numbers")
        numbers.extend(found)
    return tuple(numbers)
