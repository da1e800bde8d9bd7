"""Turns rows of Kafka, as Spark reads them, into facts. Each fact is about one place: a record of the front or delays topic.

A row of the ready topic shows that its origin, the record from which it was made, came out, and that the attempt that began at its
root has ended. So the row gives two facts, or one if both are about the same place. All facts have these columns:

place     the place that the fact is about (see place)
bits      what the fact says, see below
at        the place of the row that shows it
at_ms     append time of the row
due_ms    of a hop and of an end: the due time that it states; of another record: the due time that it requests
attempt   of a record: the attempt that its own headers give it; of an end: the attempt that it states
level     of a record: its `dt-delay-level`
link      of a record and of an outcome: the root; of an end: its origin
content   of a root and of an end: a hash of key, value, foreign headers and identity; of a hop: its origin
reason    of a record: why a worker refuses its own headers; of a dead letter: the reason that it states (see refusals)
chain     of a retry and of a rejection: a hash of `dt-id` and `dt-group`
wrote_ms  of an end, and of a release that is elsewhere: when the worker wrote it, by `dt-released`

This module uses only column expressions that Spark compiles, except for one that iterates over the headers of a record. Times are the
broker's, in milliseconds. What can't be parsed is null.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from delayed_topics_core import headers as own
from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, FRONT, READY
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers
from delayed_topics_audit import refusals
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.place import pack

RECORD: Final = 1 << 0  # the record itself was read, and belongs to the window
ROOT: Final = 1 << 1  # the record itself was read, perhaps from below the window, to check its releases against it
HOP: Final = 1 << 2  # of a record: a worker made it
RELEASED: Final = 1 << 3
DEAD_LETTERED: Final = 1 << 4  # for any other reason than CANCELLED
HOPPED: Final = 1 << 5
END: Final = 1 << 6  # about the root: its attempt was released or dead-lettered
END_RELEASED: Final = 1 << 7
JUDGED: Final = 1 << 8  # of an end: its origin belongs to this window, not to an earlier one
MISPLACED: Final = 1 << 9  # of an end: in another ready topic or partition than its root's
OVER_CAP: Final = 1 << 10  # of an end: its attempt is above the highest retry cap
UNTIMED: Final = 1 << 11  # of an end or of a foreign row: it does not have the broker's time
FOREIGN: Final = 1 << 12  # in the ready topic, but not written by a worker
REJECTION: Final = 1 << 13  # in the dead-letter topic, written by a consumer
RETRY: Final = 1 << 14  # of a record: its attempt is above 0
AGAIN: Final = 1 << 15  # of an end: an earlier audit had settled its origin, and the row has come since
HOPPED_AGAIN: Final = 1 << 16  # about the root: the same of a hop
DONE: Final = 1 << 17  # of a record that isn't committed yet: it has an outcome
LARGE: Final = 1 << 18  # of a record: a topic may have refused its copy as too large
GARBLED: Final = 1 << 19  # of a record: it is not known which headers it has, see refusals.garbled
ASKS_TARGET: Final = 1 << 20  # of a record: it requests another ready topic
CANCELLED: Final = 1 << 21  # dead-lettered for that reason
ASKED_TIME: Final = 1 << 22  # of an end: its release states a due time that was requested
HOPPED_ON: Final = 1 << 23  # of an end: it had hopped more than once
PERHAPS_ASKED: Final = 1 << 24  # of an end: it is not known whether its due time was requested
ELSEWHERE: Final = 1 << 25  # about the root: a copy of its release is in another ready topic than the record requests
UNFOUNDED: Final = 1 << 26  # of a hop that no earlier audit has read: it names no origin

OUTCOMES: Final = RELEASED | DEAD_LETTERED | CANCELLED | HOPPED

_TYPES: Final = {
    "place": "long", "bits": "int", "at": "long", "at_ms": "long", "due_ms": "long", "attempt": "int", "level": "int",
    "link": "long", "content": "long", "chain": "long", "wrote_ms": "long", "reason": "int",
}  # fmt: skip

_OF_RECORD: Final = (*refusals.CLIENTS, own.RELEASED)
"""The headers that say something about the record itself."""
_COPYING_BYTES: Final = 16_384
"""An upper bound for the own headers of a copy, and for what Kafka adds to a record."""

# Each row is copied once for each fact that it gives.
_BOTH, _OUTCOME, _END, _STRANGER, _RECORD, _AGAIN, _DONE = range(7)


def parse_front(rows: DataFrame, bounds: Bounds) -> DataFrame:
    seen = headers.as_workers_see(bounds.sampled(rows, _at(FRONT)))
    texts = headers.texts(seen, *_OF_RECORD).withColumn("reason", refusals.of_client())
    content = _content("f", bounds.front_id).alias("content")
    return texts.select(
        *_itself(FRONT), *_as_record(), "reason", content, headers.number(own.DELIVER_AT).alias("due_ms")
    )


def front_facts(parsed: DataFrame, bounds: Bounds) -> DataFrame:
    bits, at_ms = sf.lit(ROOT) + _record_bits(bounds), _believed_ms()
    return _facts(
        parsed,
        place="at",
        bits=bits,
        at_ms=at_ms,
        due_ms="due_ms",
        attempt="attempt",
        level="level",
        link="at",
        content="content",
        chain="chain",
        reason="reason",
    )


def parse_delays(rows: DataFrame, bounds: Bounds) -> DataFrame:
    """A hop never has `dt-released`, but every copy of a ready record has. So a retry that was produced directly is not taken for a hop."""
    texts = headers.texts(headers.as_workers_see(rows), *_OF_RECORD, *refusals.HOPS, own.ORIGIN)
    looks = (
        headers.is_present(own.ROOT)
        & headers.is_present(own.ORIGIN)
        & headers.is_present(own.DUE_AT)
        & ~headers.is_present(own.RELEASED)
    )
    places = texts.withColumn("looks", looks).select(
        "*",
        headers.number(own.DUE_AT).alias("due_ms"),
        headers.root().alias("root"),
        headers.place(own.ORIGIN).alias("origin"),
        sf.when(sf.col("looks"), refusals.of_hop()).otherwise(refusals.of_client()).alias("reason"),
    )
    hop = sf.col("looks") & sf.col("reason").isNull()
    hopped = bounds.sampled(places.withColumn("hop", hop), sf.when(hop, sf.col("root")).otherwise(_at(DELAYS)))
    return hopped.select(
        *_itself(DELAYS),
        *_as_record(),
        sf.when(~sf.col("hop"), _content("d", bounds.delays_id)).alias("content"),
        "hop",
        "reason",
        sf.when(sf.col("hop"), sf.col("due_ms")).otherwise(headers.number(own.DELIVER_AT)).alias("due_ms"),
        *(sf.when(sf.col("hop"), sf.col(name)).alias(name) for name in ("root", "origin")),
    )


def delays_facts(parsed: DataFrame, bounds: Bounds) -> DataFrame:
    judged = headers.or_false(bounds.begun(sf.col("origin")) & bounds.settled(sf.col("origin")))
    never_was = sf.col("hop") & headers.or_false(bounds.never_hopped(sf.col("origin")))
    copies = (
        sf.when(never_was & ~bounds.new(DELAYS), _copies(_RECORD))
        .when(judged | never_was, _copies(_RECORD, _OUTCOME))
        .when(headers.has_root_place() & bounds.again(sf.col("origin"), DELAYS), _copies(_RECORD, _AGAIN))
        .when(headers.or_false(bounds.begun(sf.col("origin"))), _copies(_RECORD, _DONE))
        .otherwise(_copies(_RECORD))
    )
    as_record, again = sf.col("copy") == _RECORD, sf.col("copy") == _AGAIN
    outcome = sf.when(sf.col("copy") == _DONE, DONE).otherwise(HOPPED)
    unfounded = sf.col("hop") & sf.col("origin").isNull() & bounds.new(DELAYS)
    record = sf.lit(ROOT) + _record_bits(bounds) + _bit(HOP, sf.col("hop")) + _bit(UNFOUNDED, unfounded)
    return _facts(
        parsed.withColumn("copy", sf.explode(copies)),
        place=sf.when(as_record, sf.col("at")).when(again, sf.col("root")).otherwise(sf.col("origin")),
        bits=sf.when(as_record, record).when(again, HOPPED_AGAIN).otherwise(outcome),
        at_ms=_believed_ms(),
        due_ms=sf.when(as_record, sf.col("due_ms")),
        attempt=sf.when(as_record, sf.col("attempt")),
        level=sf.when(as_record, sf.col("level")),
        link=sf.when(again, sf.col("origin")).otherwise(sf.coalesce("root", "at")),
        content=sf.when(as_record & sf.col("hop"), sf.col("origin")).otherwise(sf.col("content")),
        chain=sf.when(as_record, sf.col("chain")),
        reason=sf.when(as_record, sf.col("reason")),
    )


def parse_ready(rows: DataFrame, bounds: Bounds) -> DataFrame:
    return _parse_releases(_release_texts(rows), bounds, READY, misplaced=sf.when(headers.is_present(own.TARGET), True))


def parse_target(rows: DataFrame, bounds: Bounds, *, topic_number: int, topic: str) -> DataFrame:
    """Parses another ready topic: the records of this delayed topic that were released there. All other rows are ignored, because an
    application may forward records there that it consumed, with all or some of their headers."""
    target = headers.text(own.TARGET)
    partition = sf.when(target.contains(":"), sf.substring_index(target, ":", -1).try_cast("int"))
    elsewhere = ~headers.or_false(sf.substring_index(target, ":", 1) == topic)
    misplaced = sf.when(partition.isNotNull(), partition != sf.col("partition"))
    of_topic = sf.substring_index(headers.text(own.ROOT), ":", -1).isin(bounds.front_id, bounds.delays_id)
    ours = _release_texts(rows).where(of_topic & headers.is_present(own.RELEASED))
    return _parse_releases(ours, bounds, topic_number, misplaced=misplaced, elsewhere=elsewhere)


def _release_texts(rows: DataFrame) -> DataFrame:
    return headers.texts(rows, *headers.IDENTITY, own.ATTEMPT, own.ROOT, own.ORIGIN, own.DUE_AT, own.RELEASED, own.HOPS)


def _parse_releases(
    texts: DataFrame, bounds: Bounds, topic_number: int, *, misplaced: Column, elsewhere: Column | None = None
) -> DataFrame:
    """`misplaced` says whether a record came out in another partition than it requests; null: it requests none. `elsewhere` says the same
    about the topic."""
    return _as_copies(texts, bounds).select(
        *_itself(topic_number),
        misplaced.alias("misplaced"),
        (sf.lit(False) if elsewhere is None else elsewhere).alias("elsewhere"),
        "origin",
        "root",
        sf.lit(None).alias("reason"),
        headers.small(headers.text(own.ATTEMPT)).alias("attempt"),
        headers.small(headers.text(own.HOPS)).alias("hops"),
        headers.number(own.DUE_AT).alias("due_ms"),
        headers.long(sf.substring_index(headers.text(own.RELEASED), ":", -1)).alias("wrote_ms"),
        headers.content(headers.text(own.ROOT)).alias("content"),
        headers.id_hash().alias("id"),
    )


def ready_facts(parsed: DataFrame, bounds: Bounds, topic_number: int = READY) -> DataFrame:
    known = sf.col("root").isNotNull() & sf.col("attempt").isNotNull() & sf.col("due_ms").isNotNull()
    end = (
        sf.lit(END | END_RELEASED)
        + _bit(MISPLACED, sf.coalesce("misplaced", bounds.misplaced(topic_number)))
        + _bit(OVER_CAP, sf.col("attempt") > bounds.retry_cap)
        + sf.when(sf.col("asked"), ASKED_TIME).when(sf.col("asked").isNull(), PERHAPS_ASKED).otherwise(0)
        + _bit(HOPPED_ON, sf.col("hops") > 1)
    )
    strange = bounds.new(READY) if topic_number == READY else sf.lit(False)
    return _ends(parsed, bounds, topic_number, known=known, end=end, stranger=FOREIGN, strange=strange)


def parse_dead_letters(rows: DataFrame, bounds: Bounds) -> DataFrame:
    """A consumer's rejection names a ready record as its origin, or none. A forwarder, such as Spring's recoverer, keeps the headers of the
    release. A worker never writes `dt-released` there."""
    names = (*headers.IDENTITY, own.ATTEMPT, own.ROOT, own.ORIGIN, own.REASON)
    copies = _as_copies(headers.texts(rows, *names), bounds).withColumn("reason", refusals.stated_reason())
    content = headers.content(headers.text(own.ROOT), unread=refusals.is_unread())
    return copies.select(
        *_itself(DEAD_LETTER),
        "origin",
        "root",
        headers.small(headers.text(own.ATTEMPT)).alias("attempt"),
        *(sf.lit(None).alias(name) for name in ("due_ms", "wrote_ms")),
        sf.when(~refusals.may_be_cut(), content).alias("content"),
        headers.chain().alias("chain"),
        _is_workers().alias("workers"),
        "reason",
        headers.id_hash().alias("id"),
    )


def dead_letter_facts(parsed: DataFrame, bounds: Bounds) -> DataFrame:
    end = sf.lit(END)
    known = sf.col("root").isNotNull() & sf.col("workers")
    rejection = sf.col("chain").isNotNull() & bounds.new(DEAD_LETTER)
    return _ends(parsed, bounds, DEAD_LETTER, known=known, end=end, stranger=REJECTION, strange=rejection)


Facts = Callable[[DataFrame, Bounds], DataFrame]
_PARSERS: Final[tuple[Facts, ...]] = (parse_front, parse_delays, parse_ready, parse_dead_letters)
_OF_PARSED: Final[tuple[Facts, ...]] = (front_facts, delays_facts, ready_facts, dead_letter_facts)


def parser(number: int, topic: str) -> Facts:
    """Returns the parser for the rows of the topic with this number. It extracts what any window needs."""
    return _PARSERS[number] if number < len(_PARSERS) else partial(parse_target, topic_number=number, topic=topic)


def of_parsed(number: int) -> Facts:
    return _OF_PARSED[number] if number < len(_OF_PARSED) else partial(ready_facts, topic_number=number)


def _ends(
    parsed: DataFrame, bounds: Bounds, topic_number: int, *, known: Column, end: Column, stranger: int, strange: Column
) -> DataFrame:
    """Returns the facts of rows of a ready topic or the dead-letter topic, by the origin of each row. If the origin is above the commit,
    the next audit judges the row. If it is below the window, the row only shows that its root had ended before, unless the row is new. The
    first audit that reads a row which belongs to no record reports it."""
    origin, copy = sf.col("origin"), sf.col("copy")
    elsewhere = sf.lit(False) if topic_number == DEAD_LETTER else headers.or_false(sf.col("elsewhere"))
    dead = sf.when(refusals.is_cancelled(), CANCELLED).otherwise(DEAD_LETTERED)
    outcome = dead if topic_number == DEAD_LETTER else sf.lit(RELEASED)
    copies = (
        sf.when(
            ~headers.or_false(known & origin.isNotNull()), sf.when(strange, _copies(_STRANGER)).otherwise(_copies())
        )
        .when((elsewhere | ~headers.has_root_place()) & ~bounds.begun(origin), _copies())
        .when(~bounds.begun(origin), _copies(_END))
        .when(bounds.nowhere(origin), sf.when(bounds.new(topic_number), _copies(_OUTCOME)).otherwise(_copies()))
        .when(~headers.or_false(bounds.settled(origin)), _copies(_DONE))
        .when(origin == sf.col("root"), _copies(_BOTH))
        .when(~headers.has_root_place(), _copies(_OUTCOME))
        .otherwise(_copies(_OUTCOME, _END))
    )
    ends = copy.isin(_BOTH, _END)
    again = bounds.again(origin, topic_number)
    in_place = end + _bit(JUDGED, bounds.begun(origin) | again) + _bit(AGAIN, again) + _untimed()
    end_bits = sf.when(elsewhere, ELSEWHERE).otherwise(in_place)
    return _facts(
        parsed.withColumn("copy", sf.explode(copies)),
        place=sf.when(ends, sf.col("root")).when(copy.isin(_OUTCOME, _DONE), origin).otherwise(sf.col("at")),
        bits=sf.when(copy == _BOTH, end_bits + outcome)
        .when(copy == _END, end_bits)
        .when(copy == _OUTCOME, outcome)
        .when(copy == _DONE, DONE)
        .otherwise(sf.lit(stranger) + _untimed()),
        due_ms=sf.when(ends, sf.col("due_ms")),
        attempt=sf.when(ends, sf.col("attempt")),
        link=sf.when(ends, origin).when(copy == _OUTCOME, sf.col("root")),
        content=sf.when(ends, sf.col("content")),
        chain=sf.when(copy == _STRANGER, sf.col("chain")) if stranger == REJECTION else None,
        wrote_ms=sf.when(ends, sf.col("wrote_ms")),
        reason=sf.when(ends, sf.col("reason")),
    )


def _facts(rows: DataFrame, **columns: Column | str | None) -> DataFrame:
    made: Mapping[str, Column | str | None] = {"at": "at", "at_ms": "at_ms", **columns}

    def column(name: str) -> Column:
        value = made.get(name)
        return sf.lit(None) if value is None else sf.col(value) if isinstance(value, str) else value

    return rows.select(*(column(name).cast(kind).alias(name) for name, kind in _TYPES.items()))


@cache
def has(bits: int) -> Column:
    """Whether at least one of these bits is set in the column `bits`."""
    return sf.col("bits").bitwiseAND(sf.lit(bits)) != 0


@cache
def _at(topic_number: int) -> Column:
    return pack(topic_number, sf.col("partition"), sf.col("offset"))


@cache
def _itself(topic_number: int) -> tuple[Column, ...]:
    return (
        _at(topic_number).alias("at"),
        sf.unix_millis("timestamp").alias("at_ms"),
        (sf.col("timestampType") == 1).alias("log_append"),
    )


def _as_record() -> tuple[Column, ...]:
    """The attempt of a copy of a release is at least one above that of the release, whatever its own `dt-attempt` says."""
    raised = sf.when(headers.position(own.RELEASED) > 0, refusals.least_attempt())
    attempt = sf.greatest(
        sf.coalesce(headers.small(headers.text(own.ATTEMPT)), sf.lit(0)), sf.coalesce(raised, sf.lit(0))
    )
    return (
        attempt.alias("attempt"),
        headers.small(headers.text(own.DELAY_LEVEL)).alias("level"),
        sf.when(attempt > 0, headers.chain()).alias("chain"),
        refusals.size().alias("size"),
        refusals.garbled().alias("garbled"),
        headers.is_present(own.TARGET).alias("target"),
    )


def _as_copies(texts: DataFrame, bounds: Bounds) -> DataFrame:
    same = headers.text(own.ROOT).startswith(sf.concat(headers.text(own.ORIGIN), sf.lit(":")))
    placed = texts.withColumn("origin", headers.place(own.ORIGIN))
    rooted = placed.withColumn("root", sf.when(same, sf.col("origin")).otherwise(headers.root()))
    return bounds.sampled(rooted, sf.col("root"))


def _record_bits(bounds: Bounds) -> Column:
    # compression makes incompressible data a little larger
    large = sf.col("size") * sf.lit(65) >= sf.lit(64 * (bounds.least_limit_bytes - _COPYING_BYTES))
    return (
        _bit(RECORD, bounds.belongs(sf.col("at")))
        + _bit(RETRY, sf.col("attempt") > 0)
        + _bit(LARGE, large)
        + _bit(GARBLED, sf.col("garbled"))
        + _bit(ASKS_TARGET, sf.col("target"))
    )


@cache
def _believed_ms() -> Column:
    return sf.when(sf.col("log_append"), sf.col("at_ms"))


@cache
def _untimed() -> Column:
    return _bit(UNTIMED, ~sf.col("log_append"))


@cache
def _is_workers() -> Column:
    return (headers.position(own.REASON) > 0) & (headers.position(own.RELEASED) == 0)


@cache
def _content(topic_letter: str, topic_id: str) -> Column:
    """Returns the content hash of a record that is its own root."""
    root = sf.concat_ws(":", sf.lit(topic_letter), "partition", "offset", sf.lit(topic_id))
    return sf.when(~refusals.garbled(), headers.content(root, unread=refusals.is_unread()))


@cache
def _copies(*which: int) -> Column:
    return sf.array(*map(sf.lit, which)).cast("array<int>")


def _bit(bit: int, condition: Column) -> Column:
    return sf.when(condition, bit).otherwise(0)
