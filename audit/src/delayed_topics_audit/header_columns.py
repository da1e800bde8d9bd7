"""Headers of rows, as Spark reads them from Kafka, made into columns: texts, numbers and places. What doesn't parse is null.

A column is a value, and making one asks Java for each part of it. So what needs no rows is kept (`functools.cache`), here and in
`facts`, `flaws`, `places` and `refusals`: the plan of an audit is made with half of the calls.
"""

from functools import cache
from typing import Final

from delayed_topics_core import headers as own
from delayed_topics_core.audit_table import DELAYS, FRONT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit.place import pack

IDENTITY: Final = (own.ID, own.GROUP, own.TARGET, own.CREATED_AT, own.DONE_AT)
"""What a client says and every copy repeats."""
MAX_SMALL: Final = 1_000_000
_DIGITS: Final = r"^[0-9]{1,19}\z"
_ROOT: Final = r"^[fd]:[0-9]+:[0-9]+:[\x00-9;-\x7F]*\z"


@cache
def position(name: str) -> Column:
    """From 1; 0 if there is none. Unlike a filter over the headers, Spark compiles it."""
    return sf.array_position("keys", name)


@cache
def there(name: str) -> Column:
    """Whether there is one, be it null."""
    return true(position(name) > 0)


def true(condition: Column) -> Column:
    """Null is no."""
    return sf.coalesce(condition, sf.lit(False))


def texts(rows: DataFrame, *names: str) -> DataFrame:
    """With the text of the first header of each name, in a column of that name; null if there is none.

    In steps: what is mentioned ten times is ten times in the code that Spark makes, unless an earlier step has made a column
    of it. A field of an array's structs it inlines even so; `concat`, which does nothing here, keeps it from that.
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


def long(said: Column) -> Column:
    return sf.when(said.rlike(_DIGITS), said.try_cast("long"))


def small(said: Column) -> Column:
    """An attempt or a level: above the last entry of any list, and of any cap, all are alike."""
    value = long(said)
    return sf.when(value > MAX_SMALL, MAX_SMALL).otherwise(value).cast("int")


@cache
def place(name: str) -> Column:
    """`f|d:<partition>:<offset>`, and whatever follows after another colon."""
    said = text(name)
    topic_number = sf.when(said.startswith("f:"), FRONT).when(said.startswith("d:"), DELAYS)
    to_partition = sf.substring_index(said, ":", 2)
    partition = sf.substring_index(to_partition, ":", -1).try_cast("int")
    offset = sf.substring_index(sf.substring_index(said, ":", 3), ":", -1).try_cast("long")
    return sf.when(topic_number.isNotNull() & (to_partition != said), pack(topic_number, partition, offset))


@cache
def is_root() -> Column:
    """Whether the engine believes the `dt-root` of a hop."""
    said = text(own.ROOT)
    parts = [sf.substring_index(sf.substring_index(said, ":", end), ":", -1) for end in (2, 3)]
    fits = parts[0].try_cast("int").isNotNull() & parts[1].try_cast("long").isNotNull()
    return true(said.rlike(_ROOT) & (sf.octet_length(said) <= own.MAX_ID_BYTES) & fits)


def content(root: Column, *, unread: Column | None = None) -> Column:
    """A hash of what every copy has to repeat: key, value, foreign headers, and who a client says that it is.

    `root`: of the record, as text; a copy of a record without an id has it as its id. `unread`: the worker believes none of the own
    headers. Needs IDENTITY.
    """
    said = [
        sf.when(text(own.ID) != root, text(own.ID)),
        *(text(name) for name in (own.GROUP, own.TARGET)),
        *(number(name) for name in (own.CREATED_AT, own.DONE_AT)),
    ]
    if unread is not None:
        said = [sf.when(~unread, column) for column in said]
    parts = [sf.col("key"), sf.col("value"), *said]  # a hash passes over nulls
    return sf.xxhash64(*(of_part for part in parts for of_part in (part.isNull(), part)), _foreign())


@cache
def named() -> Column:
    """A hash of what the record of a copy can be cancelled or rescheduled by."""
    return sf.xxhash64(sf.coalesce(text(own.ID), text(own.ROOT)))


@cache
def chain() -> Column:
    """A hash of `dt-id` and `dt-group`."""
    return sf.when(position(own.ID) > 0, sf.xxhash64(text(own.ID), text(own.GROUP)))


@cache
def _foreign() -> Column:
    """A client mixes our headers with its own. A worker writes the foreign ones first: one behind its own is somebody else's."""
    return sf.filter(
        "headers", lambda header: ~(header["key"].startswith(own.PREFIX) & header["key"].isin(*own.OWN_HEADERS))
    )
