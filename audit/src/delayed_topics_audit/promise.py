"""What a release is held against: the delay lists and the retry caps of its time, and how late it may be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

CLOCKS_MS: Final = 600_000
"""By how much the operator's clock, and a worker that follows it, may be behind or ahead when a list is edited."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A delay list and a retry cap, and from when until when they were declared; None: they still are. `max_delay_ms`: how far ahead
    a due time might lie; None: there was no ladder."""

    list_ms: Sequence[int]
    retry_cap: int
    from_ms: int
    until_ms: int | None
    max_delay_ms: int | None = None

    def applied(self) -> Column:
        """To a record that came in before they were gone, and came out after they were there."""
        seen_ms = sf.coalesce("first_ms", "appended_ms")
        there = seen_ms >= self.from_ms - CLOCKS_MS
        return there if self.until_ms is None else there & (sf.col("appended_ms") < self.until_ms + CLOCKS_MS)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a release is held against.

    overdue_before_ms    what was due before, and still waits, is overdue; None: nothing is
    lists                all delay lists that there were, oldest first; before the first of them any of `partition_delays_ms` may
                         have applied
    partition_delays_ms  of the delays topic
    """

    partition_delays_ms: Sequence[int]
    skew_ms: int
    max_lateness_ms: int
    lists: Sequence[Declared]
    overdue_before_ms: int | None = None

    @property
    def all_known(self) -> bool:
        """Whether `lists` are all that was ever declared."""
        return self.lists[0].from_ms <= 0

    def cap(self, choose: Callable[..., Column]) -> Column:
        """The greatest or the least retry cap of a record's time; null: what was declared then is not known."""
        if not self.all_known:
            return sf.lit(None).cast("int")
        return among(choose, [sf.when(declared.applied(), declared.retry_cap) for declared in self.lists])


def among(choose: Callable[..., Column], columns: Sequence[Column]) -> Column:
    """Spark's least and greatest pass over nulls, and refuse to choose from one."""
    return columns[0] if len(columns) == 1 else choose(*columns)
