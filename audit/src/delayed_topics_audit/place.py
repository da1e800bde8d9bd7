"""A place in Kafka as one number (see core's audit_table), in columns of Spark. Joins, sorts and shuffles use this number."""

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
"""A shuffle keeps 2^12 neighbouring offsets, a chunk, together, so that the order within a chunk can be checked in place."""


def pack(topic_number: Column | int, partition: Column, offset: Column) -> Column:
    """Returns the place as one number, or null if a part is missing or out of range."""
    number = topic_number if isinstance(topic_number, Column) else sf.lit(topic_number)
    high = number.cast("long") * sf.lit(1 << PARTITION_BITS) + partition
    fits = partition.between(0, MAX_PARTITION) & offset.between(0, MAX_OFFSET)
    return sf.when(fits, high * sf.lit(1 << OFFSET_BITS) + offset)


def topic_number_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS + PARTITION_BITS).cast("int")


def partition_of(place: Column) -> Column:
    return sf.shiftright(place, OFFSET_BITS).bitwiseAND(sf.lit(MAX_PARTITION)).cast("int")


def line_of(place: Column) -> Column:
    """Returns the line of a place: its topic number and partition in one number."""
    return sf.shiftright(place, OFFSET_BITS).cast("int")


def offset_of(place: Column) -> Column:
    return place.bitwiseAND(sf.lit(MAX_OFFSET))


def chunk_of(place: Column) -> Column:
    return sf.shiftright(place, CHUNK_OFFSETS_BITS)


def name_of(place: Column, targets: Sequence[str] = ()) -> Column:
    """Returns `f:<partition>:<offset>`, as in `dt-origin`. A place in one of the `targets` has the topic's name instead of the letter."""
    topic_number = sf.element_at(sf.array(*map(sf.lit, (*TOPIC_LETTERS, *targets))), topic_number_of(place) + 1)
    return sf.concat_ws(":", topic_number, partition_of(place), offset_of(place))


def by_line(place: Column, front: Sequence[int], delays: Sequence[int]) -> Column:
    """Returns the value for the place's partition in the front or delays topic, or null for a partition without a value."""

    def entry(values: Sequence[int]) -> Column:
        return sf.get(longs(values), partition_of(place))

    return sf.when(topic_number_of(place) == FRONT, entry(front)).when(topic_number_of(place) == DELAYS, entry(delays))


def longs(values: Sequence[int]) -> Column:
    """Returns a constant array. It is built from text, because a call to Java for each of thousands of partitions takes seconds."""
    return sf.expr(f"cast(array({', '.join(f'{value}L' for value in values)}) as array<bigint>)")
