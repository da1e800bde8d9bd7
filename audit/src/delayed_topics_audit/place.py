"""A place in Kafka as one number (see core's audit_table), as columns of Spark. What joins, sorts and shuffles does so by it."""

from collections.abc import Sequence
from typing import Final

from delayed_topics_core.audit_table import (
    DELAYS,
    FRONT,
    MAX_OFFSET,
    MAX_PARTITION,
    OFFSET_BITS,
    PARTITION_BITS,
    TOPIC_LETTERS,
)
from pyspark.sql import Column
from pyspark.sql import functions as sf

CHUNK_OFFSETS_BITS: Final = 12
"""Neighbours stay together in a shuffle, so that order can be seen within a chunk of so many offsets."""


def pack(topic_number: Column | int, partition: Column, offset: Column) -> Column:
    """Null if a part is missing or does not fit."""
    number = topic_number if isinstance(topic_number, Column) else sf.lit(topic_number)
    high = number.cast("long") * sf.lit(1 << PARTITION_BITS) + partition
    fits = partition.between(0, MAX_PARTITION) & offset.between(0, MAX_OFFSET)
    return sf.when(fits, high * sf.lit(1 << OFFSET_BITS) + offset)


def topic_number_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS + PARTITION_BITS).cast("int")


def partition_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS).bitwiseAND(sf.lit(MAX_PARTITION)).cast("int")


def line_of(place: Column) -> Column:
    """Topic number and partition in one number."""
    return sf.shiftright(place, OFFSET_BITS).cast("int")


def offset_of(place: Column) -> Column:
    return place.bitwiseAND(sf.lit(MAX_OFFSET))


def chunk_of(place: Column) -> Column:
    return sf.shiftright(place, CHUNK_OFFSETS_BITS)


def name_of(place: Column, targets: Sequence[str] = ()) -> Column:
    """As `f:<partition>:<offset>`, the way that `dt-origin` writes it; with the topic's name if it is one of the `targets`."""
    topic_number = sf.element_at(sf.array(*map(sf.lit, (*TOPIC_LETTERS, *targets))), topic_number_of(place) + 1)
    return sf.concat_ws(":", topic_number, partition_of(place), offset_of(place))


def by_line(place: Column, front: Sequence[int], delays: Sequence[int]) -> Column:
    """The value for the place's partition of front or delays; null for a partition that has none."""

    def entry(values: Sequence[int]) -> Column:
        return sf.get(longs(values), partition_of(place))

    return sf.when(topic_number_of(place) == FRONT, entry(front)).when(topic_number_of(place) == DELAYS, entry(delays))


def longs(values: Sequence[int]) -> Column:
    """A constant array. As text, since a call to Java for each of thousands of partitions takes seconds."""
    return sf.expr(f"cast(array({', '.join(f'{value}L' for value in values)}) as array<bigint>)")
