"""Why a worker makes a dead letter of a record: what `delayed_topics_engine` decides by the record's own headers, as columns of Spark.

Reasons are numbers here, so that they are shuffled and compared as such. The columns need `header_columns.texts` with the names in
CLIENTS, and of a hop those in HOPS too.
"""

from collections.abc import Sequence
from functools import cache, reduce
from typing import Final

from delayed_topics_core import headers as own
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers

MAX_ATTEMPT: Final = 2**31 - 1
MAX_OWN_BYTES: Final = 4096
MAX_FOREIGN_HEADERS: Final = 100_000 - 17
"""A worker can't read more, which Java can."""

_NUMBERS: Final = (own.DELIVER_AT, own.DELAY_LEVEL, own.GENERATION, own.CREATED_AT, own.DONE_AT)
_TEXTS: Final = {own.ID: own.MAX_ID_BYTES, own.GROUP: own.MAX_GROUP_BYTES}
_TARGET: Final = r"^[a-zA-Z0-9._-]{1,249}(:[0-9]{1,10})?\z"
CLIENTS: Final = (own.ATTEMPT, *_NUMBERS, *_TEXTS, own.TARGET, own.ERROR)
"""What a client may say."""
HOPS: Final = (own.ROOT, own.DUE_AT, own.HOPS)
"""What a worker says of a hop, once each."""

REASONS: Final = tuple(reason for reason in DeadLetterReason if reason != DeadLetterReason.REJECTED)
"""The number of a reason is its index, in tables that are kept and have these names beside them."""
UNREADABLE: Final = (
    DeadLetterReason.HEADER_TWICE,
    DeadLetterReason.HEADERS_TOO_LARGE,
    DeadLetterReason.HEADER_UNREADABLE,
)
"""Nothing that the own headers say is believed then."""
NOT_TAKEN: Final = (DeadLetterReason.TOO_LARGE, DeadLetterReason.INVALID_RECORD)
"""A topic did not take the copy."""
_NOT_ONE: Final = -1
"""A word that no worker writes."""
UNASKED: Final = -2
"""Cancelled, and nobody had asked for that."""
_RELEASED: Final = "^[0-9]{1,10}:"


def number(reason: DeadLetterReason) -> int:
    """Of a reason that a worker may have."""
    return REASONS.index(reason)


def one_of(column: str, reasons: Sequence[DeadLetterReason]) -> Column:
    return sf.col(column).isin(*map(number, reasons))


@cache
def told() -> Column:
    """The reason that a dead letter tells; a number of its own for a word that no worker writes."""
    known = reduce(
        lambda made, reason: made.when(headers.text(own.REASON) == reason.value, number(reason)),
        REASONS[1:],
        sf.when(headers.text(own.REASON) == REASONS[0].value, number(REASONS[0])),
    )
    return known.otherwise(_NOT_ONE)


def word_of(column: str) -> Column:
    """What a dead letter says of that number; null for a word that no worker writes."""
    cancelled = sf.when(sf.col(column) == UNASKED, DeadLetterReason.CANCELLED.value)
    return sf.coalesce(cancelled, sf.get(sf.array(*(sf.lit(reason.value) for reason in REASONS)), sf.col(column)))


@cache
def is_cancelled() -> Column:
    """Whether that is the reason that a dead letter tells."""
    return sf.col("reason").isin(number(DeadLetterReason.CANCELLED), UNASKED)


@cache
def is_unread() -> Column:
    """Whether the `reason` is one for which nothing is believed that the own headers say; a dead letter has what of it can be read."""
    return headers.true(one_of("reason", UNREADABLE))


@cache
def of_client() -> Column:
    """Of a record of the front topic, or of one that a client wrote into the delays topic; null: it is not refused. The retry cap,
    the ladder and the ready topics are looked at elsewhere: what they were is not in the record."""
    refused = _unreadable()
    # most records have none, and are not looked at any further
    return sf.when(sf.arrays_overlap("keys", sf.array(*map(sf.lit, CLIENTS))), refused)


@cache
def of_hop() -> Column:
    """The same of a record that looks like a worker's hop."""
    damaged = _no_number(own.DUE_AT) | _no_number(own.HOPS)
    return (
        sf.when(_twice(HOPS), number(DeadLetterReason.HEADER_TWICE))
        .when(~headers.is_root(), number(DeadLetterReason.HEADER_UNREADABLE))
        .otherwise(_unreadable(damaged))
    )


@cache
def garbled() -> Column:
    """A header's key may be no UTF-8, for which a worker refuses the record too. Java replaces what it can't read, and there are
    keys that have that character anyway. Or there may be more headers than a worker reads."""
    too_many = sf.size("keys") > MAX_FOREIGN_HEADERS
    return headers.true(sf.array_join("keys", "").contains("\ufffd") | too_many)


@cache
def size() -> Column:
    """Bytes of key, value and headers."""
    joined = [sf.array_join("keys", ""), sf.array_join(sf.col("values").cast("array<string>"), "")]
    parts = [sf.coalesce(sf.octet_length(part), sf.lit(0)) for part in (sf.col("key"), sf.col("value"), *joined)]
    return reduce(Column.__add__, parts).cast("long")


@cache
def least_attempt() -> Column:
    """One more than the highest attempt that any `dt-released` tells of, as the engine reads it."""
    released = sf.filter("headers", lambda header: header["key"] == own.RELEASED)

    def attempt(header: Column) -> Column:
        text = header["value"].cast("string")
        told = sf.when(text.rlike(_RELEASED), sf.substring_index(text, ":", 1).try_cast("long"))
        return sf.when(told <= MAX_ATTEMPT, sf.least(told + 1, sf.lit(headers.MAX_SMALL)))

    return sf.array_max(sf.transform(released, attempt)).cast("int")


def _unreadable(damaged: Column | None = None) -> Column:
    """Of what a client may say, in the order in which the engine looks at it; to be gone on with."""
    bytes_each = [
        sf.when(headers.there(name), len(name) + sf.coalesce(sf.octet_length(headers.text(name)), sf.lit(0))).otherwise(
            0
        )
        for name in CLIENTS
    ]
    level_zero = headers.true(headers.number(own.DELAY_LEVEL) == 0)
    beyond = headers.true(headers.number(own.ATTEMPT) > MAX_ATTEMPT)
    illegible = [*map(_no_number, (own.ATTEMPT, *_NUMBERS)), *(_no_text(name, most) for name, most in _TEXTS.items())]
    unreadable = [level_zero, beyond, *illegible, _no_target(), *([] if damaged is None else [damaged])]
    return (
        sf.when(_twice(CLIENTS), number(DeadLetterReason.HEADER_TWICE))
        .when(reduce(Column.__add__, bytes_each) > MAX_OWN_BYTES, number(DeadLetterReason.HEADERS_TOO_LARGE))
        .when(reduce(Column.__or__, unreadable), number(DeadLetterReason.HEADER_UNREADABLE))
    )


def _twice(names: Sequence[str]) -> Column:
    """Which of them it is takes a pass over the headers that Spark does not compile, so it is asked only if any is there twice."""
    some = sf.size(sf.array_distinct("keys")) < sf.size("keys")
    these = sf.filter("keys", lambda key: key.isin(*names))
    return sf.when(some, sf.size(sf.array_distinct(these)) < sf.size(these)).otherwise(False)


@cache
def _no_number(name: str) -> Column:
    return headers.there(name) & headers.number(name).isNull()


@cache
def _no_target() -> Column:
    said = headers.text(own.TARGET)
    partition = sf.when(said.contains(":"), sf.substring_index(said, ":", -1).try_cast("long"))
    legible = said.rlike(_TARGET) & (sf.coalesce(partition, sf.lit(0)) <= own.MAX_PARTITION)
    return headers.there(own.TARGET) & ~headers.true(legible)


@cache
def _no_text(name: str, most: int) -> Column:
    legible = headers.text(name).rlike(rf"^[\x00-\x7F]{{1,{most}}}\z")
    return headers.there(name) & ~headers.true(legible)
