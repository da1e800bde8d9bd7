"""The standard by which a release is judged: the delay lists and the retry caps of its time, and how late it may be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

CLOCKS_MS: Final = 600_000
"""How far the operator's clock, and a worker that follows the registry, may be behind or ahead when a list is edited."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A delay list and a retry cap, declared from `from_ms` until `until_ms`. None: they are still declared. `max_delay_ms` is how far
    ahead a due time was allowed to lie. None: there was no ladder."""

    list_ms: Sequence[int]
    retry_cap: int
    from_ms: int
    until_ms: int | None
    max_delay_ms: int | None = None

    def applied(self) -> Column:
        """Whether this may have applied to a record: the record came in before the end of this, and came out after its start."""
        seen_ms = sf.coalesce("first_ms", "appended_ms")
        there = seen_ms >= self.from_ms - CLOCKS_MS
        return there if self.until_ms is None else there & (sf.col("appended_ms") < self.until_ms + CLOCKS_MS)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The standard by which a release is judged.

    overdue_before_ms    a record that was due before this time and still waits is overdue; None: no record is
    lists                all delay lists that there ever were, oldest first; before the first of them, any of `partition_delays_ms` may
                         have applied
    partition_delays_ms  the delay of each partition of the delays topic
    """

    partition_delays_ms: Sequence[int]
    skew_ms: int
    max_lateness_ms: int
    lists: Sequence[Declared]
    overdue_before_ms: int | None = None

    @property
    def all_known(self) -> bool:
        """Whether `lists` has everything that was ever declared."""
        return self.lists[0].from_ms <= 0

    @property
    def longest_ms(self) -> int | None:
        """How long a record may wait at most. None: some of what was declared is not known."""
        ladders_ms = (declared.max_delay_ms or 0 for declared in self.lists)
        listed_ms = (ms for declared in self.lists for ms in declared.list_ms)
        return max((*self.partition_delays_ms, *listed_ms, *ladders_ms)) if self.all_known else None

    def is_known(self) -> Column:
        """Whether `lists` has all that may have applied to a record. What was declared before the first of them is not known."""
        return sf.coalesce(sf.col("appended_ms") >= self.lists[0].from_ms + CLOCKS_MS, sf.lit(False))

    def cap(self, choose: Callable[..., Column]) -> Column:
        """Returns the greatest or the least retry cap that may have applied to a record. Null: what was declared then is not known."""
        cap = among(choose, [sf.when(declared.applied(), declared.retry_cap) for declared in self.lists])
        return sf.when(self.is_known(), cap)


def among(choose: Callable[..., Column], columns: Sequence[Column]) -> Column:
    """Applies Spark's `least` or `greatest`. These functions skip nulls, but refuse a single argument."""
    return columns[0] if len(columns) == 1 else choose(*columns)
