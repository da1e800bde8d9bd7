"""A place in Kafka as one number: a topic, a partition and an offset. What joins, sorts and shuffles does so by it.

A long holds it, six bits for the topic, 14 for the partition, 43 for the offset: a hundred thousand records a second fill a
partition of that size in under three years. The same number is ascending within a partition, so that comparing places compares offsets.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

OFFSET_BITS: Final = 43
PARTITION_BITS: Final = 14
MAX_OFFSET: Final = 2**OFFSET_BITS - 1
MAX_PARTITION: Final = 2**PARTITION_BITS - 1

DOORS: Final = ("f", "d", "r", "dead-letter")
"""Front, delays, ready, dead-letter, as names of places begin: their index is the door's number. Other ready topics come after them."""
FRONT, DELAYS, READY, DEAD_LETTER = range(len(DOORS))

CHUNK_OFFSETS_BITS: Final = 12
"""Neighbours stay together in a shuffle, so that order can be seen within a chunk of so many offsets."""


def pack(door: Column | int, partition: Column, offset: Column) -> Column:
    """Null if a part is missing or does not fit."""
    number = door if isinstance(door, Column) else sf.lit(door)
    high = number.cast("long") * sf.lit(1 << PARTITION_BITS) + partition
    fits = partition.between(0, MAX_PARTITION) & offset.between(0, MAX_OFFSET)
    return sf.when(fits, high * sf.lit(1 << OFFSET_BITS) + offset)


def door_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS + PARTITION_BITS).cast("int")


def partition_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS).bitwiseAND(sf.lit(MAX_PARTITION)).cast("int")


def line_of(place: Column) -> Column:
    """Door and partition in one number."""
    return sf.shiftright(place, OFFSET_BITS).cast("int")


def offset_of(place: Column) -> Column:
    return place.bitwiseAND(sf.lit(MAX_OFFSET))


def chunk_of(place: Column) -> Column:
    return sf.shiftright(place, CHUNK_OFFSETS_BITS)


def name_of(place: Column, targets: Sequence[str] = ()) -> Column:
    """As `f:<partition>:<offset>`, the way that `dt-origin` writes it; with the topic's name if it is one of the `targets`."""
    door = sf.element_at(sf.array(*map(sf.lit, (*DOORS, *targets))), door_of(place) + 1)
    return sf.concat_ws(":", door, partition_of(place), offset_of(place))


def by_line(place: Column, front: Sequence[int], delays: Sequence[int]) -> Column:
    """The value for the place's partition of front or delays; null for a partition that has none."""

    def entry(values: Sequence[int]) -> Column:
        return sf.get(longs(values), partition_of(place))

    return sf.when(door_of(place) == FRONT, entry(front)).when(door_of(place) == DELAYS, entry(delays))


def longs(values: Sequence[int]) -> Column:
    """A constant array. As text, since a call to Java for each of thousands of partitions takes seconds."""
    return sf.expr(f"cast(array({', '.join(f'{value}L' for value in values)}) as array<bigint>)")
