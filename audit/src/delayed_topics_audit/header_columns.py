"""Turns the headers of rows that Spark reads from Kafka into columns: texts, numbers and places. A header that can't be parsed is null.

A column is a value, and building it calls Java for each of its parts. So columns that do not depend on rows are cached
(`functools.cache`), here and in `facts`, `flaws`, `places` and `refusals`. This halves the calls that it takes to plan an audit.
"""

from functools import cache
from typing import Final

from delayed_topics_core import headers as own
from delayed_topics_core.audit_table import DELAYS, FRONT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit.place import pack

IDENTITY: Final = (own.ID, own.GROUP, own.TARGET, own.CREATED_AT, own.DONE_AT)
"""The headers that a client sets and that every copy repeats."""
MAX_SMALL: Final = 1_000_000
NO_PLACE: Final = -1
"""Stands for a root that the engine accepts and that has no number as a place, because its partition or its offset is too high."""
_DIGITS: Final = r"^[0-9]{1,19}\z"
_ROOT: Final = r"^[fd]:[0-9]+:[0-9]+:[\x00-9;-\x7F]*\z"


@cache
def position(name: str) -> Column:
    """Returns the position of the header, counted from 1, or 0 if there is none. Unlike a filter over the headers, Spark compiles this."""
    return sf.array_position("keys", name)


@cache
def is_present(name: str) -> Column:
    """Whether the record has this header, even with a null value."""
    return or_false(position(name) > 0)


def or_false(condition: Column) -> Column:
    """Returns the condition, with false instead of null."""
    return sf.coalesce(condition, sf.lit(False))


def as_workers_see(rows: DataFrame) -> DataFrame:
    """Cuts the keys of headers at the first zero byte, as librdkafka does. Spark does not compile an iteration over the headers, so it is
    done only if a key has a zero byte."""
    some = sf.array_join(sf.col("headers")["key"], "").contains("\0")
    cut = sf.transform(
        "headers",
        lambda header: sf.struct(
            sf.substring_index(header["key"], "\0", 1).alias("key"), header["value"].alias("value")
        ),
    )
    return rows.withColumn("headers", sf.when(some, cut).otherwise(sf.col("headers")))


def texts(rows: DataFrame, *names: str) -> DataFrame:
    """Adds a column for each name, with the text of the first header of that name, or null if there is none.

    This is done in steps: Spark generates the code of an expression each time that it is used, unless an earlier step has made a column of
    it. Even then, Spark inlines a field of an array's structs. `concat`, which has no effect here, prevents that.
    """
    lists = rows.select("*", *(sf.concat(sf.col("headers")[part]).alias(f"{part}s") for part in ("key", "value")))
    return lists.select(
        "*", *(sf.get("values", (position(name) - 1).cast("int")).cast("string").alias(name) for name in names)
    )


@cache
def text(name: str) -> Column:
    return sf.col(f"`{name}`")


@cache
def number(name: str) -> Column:
    return long(text(name))


def long(value: Column) -> Column:
    return sf.when(value.rlike(_DIGITS), value.try_cast("long"))


def small(column: Column) -> Column:
    """Returns an attempt or a level, at most MAX_SMALL. Above the last entry of any list, and above any cap, all numbers mean the same."""
    value = long(column)
    return sf.when(value > MAX_SMALL, MAX_SMALL).otherwise(value).cast("int")


@cache
def place(name: str) -> Column:
    """Parses `f|d:<partition>:<offset>`, and ignores what follows after another colon."""
    value = text(name)
    topic_number = sf.when(value.startswith("f:"), FRONT).when(value.startswith("d:"), DELAYS)
    to_partition = sf.substring_index(value, ":", 2)
    partition = sf.substring_index(to_partition, ":", -1).try_cast("int")
    offset = sf.substring_index(sf.substring_index(value, ":", 3), ":", -1).try_cast("long")
    return sf.when(topic_number.isNotNull() & (to_partition != value), pack(topic_number, partition, offset))


@cache
def is_root() -> Column:
    """Whether the engine accepts the `dt-root` of a hop."""
    value = text(own.ROOT)
    parts = [sf.substring_index(sf.substring_index(value, ":", end), ":", -1) for end in (2, 3)]
    fits = parts[0].try_cast("int").isNotNull() & parts[1].try_cast("long").isNotNull()
    return or_false(value.rlike(_ROOT) & (sf.octet_length(value) <= own.MAX_ID_BYTES) & fits)


@cache
def root() -> Column:
    """Parses `dt-root`."""
    return sf.coalesce(place(own.ROOT), sf.when(is_root(), NO_PLACE))


@cache
def has_root_place() -> Column:
    """Whether the root of a parsed row has a number as a place."""
    return sf.col("root") != NO_PLACE


def content(root: Column, *, unread: Column | None = None) -> Column:
    """Returns a hash of everything that every copy must repeat: key, value, foreign headers and the headers in IDENTITY.

    `root` is the root of the record, as text; a copy of a record without an id has it as its id. `unread` says whether the worker ignores
    all own headers of the record. The rows need columns for IDENTITY.
    """
    identity = [
        sf.when(text(own.ID) != root, text(own.ID)),
        *(text(name) for name in (own.GROUP, own.TARGET)),
        *(number(name) for name in (own.CREATED_AT, own.DONE_AT)),
    ]
    if unread is not None:
        identity = [sf.when(~unread, column) for column in identity]
    parts = [sf.col("key"), sf.col("value"), *identity]  # a hash skips nulls
    return sf.xxhash64(*(of_part for part in parts for of_part in (part.isNull(), part)), _foreign())


@cache
def id_hash() -> Column:
    """Returns a hash of the id by which the control topic refers to the record of a copy."""
    return sf.xxhash64(sf.coalesce(text(own.ID), text(own.ROOT)))


@cache
def chain() -> Column:
    """Returns a hash of `dt-id` and `dt-group`."""
    return sf.when(position(own.ID) > 0, sf.xxhash64(text(own.ID), text(own.GROUP)))


@cache
def _foreign() -> Column:
    """Returns the foreign headers, in order. A client may mix them with own headers. A worker writes the foreign ones first, so one that
    follows a worker's own headers was added by somebody else."""
    return sf.filter(
        "headers", lambda header: ~(header["key"].startswith(own.PREFIX) & header["key"].isin(*own.OWN_HEADERS))
    )
