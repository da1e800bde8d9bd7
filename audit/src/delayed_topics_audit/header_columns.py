"""Headers of rows, as Spark reads them from Kafka, made into columns: texts, numbers and places. What doesn't parse is null."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit.place import DELAYS, FRONT, pack

MAX_SMALL: Final = 1_000_000
_DIGITS: Final = "^[0-9]{1,19}$"


def position(name: str) -> Column:
    """From 1; 0 if there is none. Unlike a filter over the headers, Spark compiles it."""
    return sf.array_position("keys", name)


def texts(rows: DataFrame, *names: str) -> DataFrame:
    """With the text of the first header of each name, in a column of that name; null if there is none.

    In steps: what is mentioned ten times is ten times in the code that Spark makes, unless an earlier step has made a column
    of it. A field of an array's structs it inlines even so; `concat`, which does nothing here, keeps it from that.
    """
    lists = rows.select("*", *(sf.concat(sf.col("headers")[part]).alias(f"{part}s") for part in ("key", "value")))
    return lists.select(
        "*", *(sf.get("values", (position(name) - 1).cast("int")).cast("string").alias(name) for name in names)
    )


def text(name: str) -> Column:
    return sf.col(f"`{name}`")


def number(name: str) -> Column:
    return long(text(name))


def long(said: Column) -> Column:
    return sf.when(said.rlike(_DIGITS), said.try_cast("long"))


def small(said: Column) -> Column:
    """An attempt or a level: above the last entry of any list, and of any cap, all are alike."""
    value = long(said)
    return sf.when(value > MAX_SMALL, MAX_SMALL).otherwise(value).cast("int")


def place(name: str) -> Column:
    """`f|d:<partition>:<offset>`, and whatever follows after another colon."""
    said = text(name)
    door = sf.when(said.startswith("f:"), FRONT).when(said.startswith("d:"), DELAYS)
    to_partition = sf.substring_index(said, ":", 2)
    partition = sf.substring_index(to_partition, ":", -1).try_cast("int")
    offset = sf.substring_index(sf.substring_index(said, ":", 3), ":", -1).try_cast("long")
    return sf.when(door.isNotNull() & (to_partition != said), pack(door, partition, offset))
