"""The records of a Made window to which mutations are applied, with the names of their places, and the changes to columns of rows."""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from delayed_topics_core import headers as own
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.made import BEGAN_MS, PER_MS, READY_PER_MS, Made, header

FREE_OFFSET: Final = 512
"""The offset this far above a row of the ready topic is free, because Made leaves gaps there."""

Found = Mapping[str, frozenset[str]]
"""The names of the records with each flaw."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record `i` of a Made window, and the names of its places."""

    i: int
    made: Made

    @property
    def partition(self) -> int:
        return self.i % self.made.partitions

    @property
    def offset(self) -> int:
        return self.i // self.made.partitions

    @property
    def kind(self) -> int:
        return self.offset % len(self.made.delays_ms)

    @property
    def round(self) -> int:
        """The round of the record. Each round has one record of each kind in each front partition."""
        return self.offset // len(self.made.delays_ms)

    @property
    def is_retry(self) -> bool:
        return self.kind > 0 and self.i % 3 != 0

    @property
    def attempt(self) -> int:
        """The attempt of a record that is not a dead letter."""
        return self.kind if self.is_retry else 0

    @property
    def is_dead(self) -> bool:
        return self.made.is_dead(self.offset)

    @property
    def came_ms(self) -> int:
        return BEGAN_MS + self.i // PER_MS

    @property
    def due_ms(self) -> int:
        return self.came_ms + self.made.delays_ms[self.kind]

    @property
    def ready_offset(self) -> int:
        after_ms = self.due_ms + self.made.late_ms - BEGAN_MS
        return after_ms * READY_PER_MS + self.kind * PER_MS + self.i % PER_MS

    @property
    def root(self) -> str:
        return f"f:{self.partition}:{self.offset}"

    @property
    def origin(self) -> str:
        return f"d:{self.kind}:{self.round * self.made.partitions + self.partition}" if self.kind else self.root

    @property
    def following(self) -> "Record":
        """The next record of the same partition and delay."""
        return Record(i=self.i + self.made.partitions * len(self.made.delays_ms), made=self.made)


def choose(
    made: Made, names: tuple[str, ...], fits: Callable[[str, Record], bool], chance: random.Random
) -> dict[str, Record]:
    """Returns for each name a record that was released, far from the other chosen records."""
    reach = made.partitions * len(made.delays_ms) * 2
    chosen: dict[str, Record] = {}
    for name in names:
        while name not in chosen:
            record = Record(i=chance.randrange(made.released_below), made=made)
            apart = all(abs(record.i - other.i) > reach for other in chosen.values())
            if apart and not record.is_dead and not record.following.is_dead and fits(name, record):
                chosen[name] = record
    return chosen


def by_flaw(flaws_of: Mapping[str, str | None], names: Mapping[str, str]) -> Found:
    """Returns the names of the records with each flaw. `flaws_of` has the flaw that each mutation causes; None: none. `names` has the name
    of the record of each mutation."""
    flaws = {flaw for flaw in flaws_of.values() if flaw is not None}
    return {flaw: frozenset(names[name] for name, of in flaws_of.items() if of == flaw) for flaw in flaws}


def changed(rows: DataFrame, victims: Mapping[str, Record], changes: Mapping[str, Mapping[str, Column]]) -> DataFrame:
    """Returns `rows` with changed columns for each victim. `changes` has the new columns by victim, and then by column name."""
    columns = dict.fromkeys(column for of_one in changes.values() for column in of_one)
    return rows.withColumns(
        {
            column: reduce(
                lambda others, name: sf.when(sf.col("id") == victims[name].i, changes[name][column]).otherwise(others),
                (name for name in changes if column in changes[name]),
                sf.col(column),
            )
            for column in columns
        }
    )


def among(victims: Mapping[str, Record], names: Iterable[str]) -> Column:
    """Whether a row belongs to one of the victims with these names."""
    return sf.col("id").isin(*(victims[name].i for name in names))


def replaced(name: str, value: str, *, headers: Column | str = "headers") -> Column:
    replacement = header(name, sf.lit(value))
    return sf.transform(headers, lambda h: sf.when(h["key"] == name, replacement).otherwise(h))


def released_for(due_at_ms: int) -> Column:
    """Returns the headers of the release of a first attempt that is due then."""
    return replaced(own.RELEASED, f"0:{due_at_ms}", headers=replaced(own.DUE_AT, str(due_at_ms)))
