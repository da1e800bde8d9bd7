"""Why a worker makes a record a dead letter: the decisions of `delayed_topics_engine` by the record's own headers, as columns of Spark.

Reasons are numbers here, because numbers are cheaper to shuffle and compare. The columns need `header_columns.texts` with the names in
CLIENTS, and for hops also those in HOPS.
"""

from collections.abc import Sequence
from functools import cache, reduce
from typing import Final

from delayed_topics_core import headers as own
from delayed_topics_core.reasons import WORKER_REASONS, DeadLetterReason
from pyspark.sql import Column
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers

MAX_ATTEMPT: Final = 2**31 - 1
MAX_FOREIGN_HEADERS: Final = 100_000 - len(own.OWN_HEADERS)
"""A worker can't read more headers. Java can."""

_NUMBERS: Final = (own.DELIVER_AT, own.DELAY_LEVEL, own.GENERATION, own.CREATED_AT, own.DONE_AT)
_TEXTS: Final = {own.ID: own.MAX_ID_BYTES, own.GROUP: own.MAX_GROUP_BYTES}
_TARGET: Final = r"^[a-zA-Z0-9._-]{1,249}(:[0-9]{1,10})?\z"
CLIENTS: Final = (own.ATTEMPT, *_NUMBERS, *_TEXTS, own.TARGET, own.ERROR)
"""The headers that a client may set."""
HOPS: Final = (own.ROOT, own.DUE_AT, own.HOPS)
"""The headers that a worker writes into a hop, once each."""

REASONS: Final = WORKER_REASONS
"""The number of a reason is its index. Tables that are kept contain these numbers, and list the names beside them."""
UNREADABLE: Final = (DeadLetterReason.HEADER_TWICE, DeadLetterReason.HEADER_UNREADABLE)
"""With these reasons, a worker ignores all own headers of the record."""
NOT_TAKEN: Final = (DeadLetterReason.TOO_LARGE, DeadLetterReason.INVALID_RECORD)
"""With these reasons, a topic refused the copy."""
_UNKNOWN: Final = -1
"""The number for a word that no worker writes."""
UNASKED: Final = -2
"""The number for a record that was cancelled without a request."""
_RELEASED: Final = "^[0-9]{1,10}:"


def number(reason: DeadLetterReason) -> int:
    """Returns the number of a reason that a worker can give."""
    return REASONS.index(reason)


def one_of(column: str, reasons: Sequence[DeadLetterReason]) -> Column:
    return sf.col(column).isin(*map(number, reasons))


@cache
def stated_reason() -> Column:
    """Returns the number of the reason that a dead letter states. A word that no worker writes has a number of its own."""
    known = reduce(
        lambda made, reason: made.when(headers.text(own.REASON) == reason.value, number(reason)),
        REASONS[1:],
        sf.when(headers.text(own.REASON) == REASONS[0].value, number(REASONS[0])),
    )
    return known.otherwise(_UNKNOWN)


def word_of(column: str) -> Column:
    """Returns the reason of this number in the words of `dt-reason`, or null for a word that no worker writes."""
    cancelled = sf.when(sf.col(column) == UNASKED, DeadLetterReason.CANCELLED.value)
    return sf.coalesce(cancelled, sf.get(sf.array(*(sf.lit(reason.value) for reason in REASONS)), sf.col(column)))


@cache
def is_cancelled() -> Column:
    """Whether the dead letter states that the record was cancelled."""
    return sf.col("reason").isin(number(DeadLetterReason.CANCELLED), UNASKED)


@cache
def is_unread() -> Column:
    """Whether the `reason` is one with which a worker ignores all own headers. A dead letter still has those that can be read."""
    return headers.or_false(one_of("reason", UNREADABLE))


@cache
def may_be_cut() -> Column:
    """If the dead-letter topic refuses a copy too, the worker writes it without its value, or with nothing but own headers."""
    return headers.or_false(one_of("reason", NOT_TAKEN)) & sf.col("value").isNull()


@cache
def of_client() -> Column:
    """Returns why a worker refuses a record of the front topic, or one that a client produced to the delays topic. Null: it does not. The
    retry cap, the ladder and the ready topics are checked elsewhere, because the record does not show what they were."""
    refused = _unreadable()
    # Most records have none of these headers, and are not examined further.
    return sf.when(sf.arrays_overlap("keys", sf.array(*map(sf.lit, CLIENTS))), refused)


@cache
def of_hop() -> Column:
    """Returns the same for a record that looks like a worker's hop."""
    damaged = _no_number(own.DUE_AT) | _no_number(own.HOPS)
    return (
        sf.when(_twice(HOPS), number(DeadLetterReason.HEADER_TWICE))
        .when(~headers.is_root(), number(DeadLetterReason.HEADER_UNREADABLE))
        .otherwise(_unreadable(damaged))
    )


@cache
def garbled() -> Column:
    """Whether it is not known which headers a worker sees. A worker refuses a record whose header key is not UTF-8. Java replaces invalid
    bytes with a character that a valid key may have too. Or the record may have more headers than a worker reads."""
    too_many = sf.size("keys") > MAX_FOREIGN_HEADERS
    return headers.or_false(sf.array_join("keys", "").contains("\ufffd") | too_many)


@cache
def size() -> Column:
    """Returns the size of key, value and headers, in bytes."""
    joined = [sf.array_join("keys", ""), sf.array_join(sf.col("values").cast("array<string>"), "")]
    parts = [sf.coalesce(sf.octet_length(part), sf.lit(0)) for part in (sf.col("key"), sf.col("value"), *joined)]
    return reduce(Column.__add__, parts).cast("long")


@cache
def least_attempt() -> Column:
    """Returns one more than the highest attempt in any `dt-released`, as the engine reads it."""
    released = sf.filter("headers", lambda header: header["key"] == own.RELEASED)

    def attempt(header: Column) -> Column:
        text = header["value"].cast("string")
        stated = sf.when(text.rlike(_RELEASED), sf.substring_index(text, ":", 1).try_cast("long"))
        return sf.when(stated <= MAX_ATTEMPT, sf.least(stated + 1, sf.lit(headers.MAX_SMALL)))

    return sf.array_max(sf.transform(released, attempt)).cast("int")


def _unreadable(damaged: Column | None = None) -> Column:
    """Returns why the headers that a client may set are refused, in the order in which the engine checks them. Callers may add cases with
    `when`."""
    level_zero = headers.or_false(headers.number(own.DELAY_LEVEL) == 0)
    beyond = headers.or_false(headers.number(own.ATTEMPT) > MAX_ATTEMPT)
    illegible = [*map(_no_number, (own.ATTEMPT, *_NUMBERS)), *(_no_text(name, most) for name, most in _TEXTS.items())]
    unreadable = [level_zero, beyond, *illegible, _no_target(), *([] if damaged is None else [damaged])]
    return sf.when(_twice(CLIENTS), number(DeadLetterReason.HEADER_TWICE)).when(
        reduce(Column.__or__, unreadable), number(DeadLetterReason.HEADER_UNREADABLE)
    )


def _twice(names: Sequence[str]) -> Column:
    """Whether a header of these names is there twice. To find that out takes an iteration over the headers that Spark does not compile, so
    it is done only if any header is there twice."""
    some = sf.size(sf.array_distinct("keys")) < sf.size("keys")
    these = sf.filter("keys", lambda key: key.isin(*names))
    return sf.when(some, sf.size(sf.array_distinct(these)) < sf.size(these)).otherwise(False)


@cache
def _no_number(name: str) -> Column:
    return headers.is_present(name) & headers.number(name).isNull()


@cache
def _no_target() -> Column:
    target = headers.text(own.TARGET)
    partition = sf.when(target.contains(":"), sf.substring_index(target, ":", -1).try_cast("long"))
    legible = target.rlike(_TARGET) & (sf.coalesce(partition, sf.lit(0)) <= own.MAX_PARTITION)
    return headers.is_present(own.TARGET) & ~headers.or_false(legible)


@cache
def _no_text(name: str, most: int) -> Column:
    legible = headers.text(name).rlike(rf"^[\x00-\x7F]{{1,{most}}}\z")
    return headers.is_present(name) & ~headers.or_false(legible)
