"""All facts about a place in one row: what became of the record there, and of the attempt that began there.

One shuffle by integers, one aggregation of integers. Neighbours stay together, chunk by chunk, so that whoever looks at order
need not move them again. The columns of a place:

place, bits            all facts' bits together; see facts
root, origin           of a hop: where the attempt began, and the record that it was made from
appended_ms, due_ms    of the record: the broker's time, and when it is due
delay_ms               that it had to wait; null if its root was not read, of a hop, and of a record that asks for a due time
attempt, chain         of the record
ends, judged_ends      how often the attempt that began here ended; how often of these in this window
extra                  of these, and of what hopped again, how many there are beyond the first
first_at, last_at      the places where it did, or of its outcomes; first_ms, last_ms the times
again_ms               when the first copy came of what an audit before had settled
way                    the partition (see place.line_of) that it was released from; two_ways: it was released from two places, since it
                       had hopped twice, or had hopped and did not have to
in_time                it came the way of a record that was read in time, so that its order is promised
late_ms                first release after its due time; null if it wasn't released, or one of both times can't be believed
wrote_ms               when the first of its copies was written, as its worker says; wrote_apart: its copies were written at different
                       times, or only some of them are releases
fate                   of a record of the window: a number, see below; of anything else null
flaws                  what is wrong, as bits
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Final

from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import facts, refusals
from delayed_topics_audit import header_columns as headers
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.place import by_line, chunk_of, line_of, longs

PENDING: Final = "pending"
LOST: Final = "lost"
FATES: Final = ("released", "dead_lettered", "hopped", PENDING, LOST, "cancelled")
"""The number of a fate is its index, in tables that are kept. A record that has outcomes of two kinds is in the account of one of them;
`doubled` tells of the other."""

FLAWS: Final = (
    "lost",
    "forged",
    "early",
    "late",
    "doubled",
    "changed",
    "wrong_partition",
    "wrong_attempt",
    "over_cap",
    "foreign",
    "overdue",
    "wrongly_dead_lettered",
    "perhaps_unasked",
)
"""The bit of a flaw is 1 << its index."""


_OF_TARGETS: Final = (DeadLetterReason.TARGET_NOT_ALLOWED, DeadLetterReason.TARGET_UNAVAILABLE)
CLOCKS_MS: Final = 600_000
"""By how much the operator's clock, and a worker that follows it, may be behind or ahead when a list is edited."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A delay list and a retry cap, and from when until when they were declared; None: they still are. `max_delay_ms`: how far ahead
    a due time might lie; None: there was no ladder."""

    list_ms: Sequence[int]
    retry_cap: int
    from_ms: int
    until_ms: int | None
    max_delay_ms: int | None = None

    def applied(self) -> Column:
        """To a record that came in before they were gone, and came out after they were there."""
        seen_ms = sf.coalesce("first_ms", "appended_ms")
        there = seen_ms >= self.from_ms - CLOCKS_MS
        return there if self.until_ms is None else there & (sf.col("appended_ms") < self.until_ms + CLOCKS_MS)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a release is held against.

    list_ms              the delay list, if it was never edited; else empty
    overdue_before_ms    what was due before, and still waits, is overdue; None: nothing is
    lists                if it was edited, all lists that there were, oldest first; before the first of them, and where there are
                         none, any of `partition_delays_ms` may have applied
    partition_delays_ms  of the delays topic
    """

    list_ms: Sequence[int]
    partition_delays_ms: Sequence[int]
    skew_ms: int
    max_lateness_ms: int
    lists: Sequence[Declared] = ()
    overdue_before_ms: int | None = None


def places_of(
    all_facts: Sequence[DataFrame], bounds: Bounds, promise: Promise, *, shuffle_partitions: int
) -> DataFrame:
    together = reduce(DataFrame.unionAll, all_facts)
    near = together.repartition(shuffle_partitions, chunk_of(sf.col("place")))
    known = _gather(near)
    timed = known.withColumn("delay_ms", _delay(promise))
    timed = _rescheduled(timed.withColumn("due_ms", _due())).withColumn("late_ms", _late())
    timed = timed.withColumn("way", line_of(sf.col("origin"))).withColumn("in_time", _in_time(promise))
    of_hop = {name: sf.when(has(facts.HOP), sf.col(f"record_{name}")) for name in ("root", "origin")}
    fated = timed.withColumn("fate", _fate(bounds)).withColumns(of_hop)
    return fated.withColumn("extra", _extra()).withColumn("flaws", _flaws(promise)).select(*COLUMNS)


COLUMNS: Final = (
    "place", "bits", "root", "origin", "appended_ms", "due_ms", "delay_ms", "attempt", "chain", "ends", "judged_ends", "extra",
    "first_at", "last_at", "first_ms", "last_ms", "again_ms", "way", "in_time", "two_ways", "late_ms",
    "wrote_ms", "again_wrote_ms", "wrote_apart", "fate", "flaws",
)  # fmt: skip


@cache
def has(bits: int) -> Column:
    """Whether one of them is set in `bits`."""
    return sf.col("bits").bitwiseAND(sf.lit(bits)) != 0


@cache
def flawed(flaw: str) -> Column:
    return sf.col("flaws").bitwiseAND(sf.lit(1 << FLAWS.index(flaw))) != 0


def _gather(near: DataFrame) -> DataFrame:
    return near.groupBy(chunk_of(sf.col("place")).alias("chunk"), "place").agg(*_gathered())


@cache
def _gathered() -> tuple[Column, ...]:
    record, hop, end, outcome = has(facts.ROOT), has(facts.HOP), has(facts.END), has(facts.OUTCOMES)
    again, released = has(facts.AGAIN | facts.HOPPED_AGAIN), has(facts.END_RELEASED)
    elsewhere = has(facts.ELSEWHERE)

    def of(condition: Column, column: str) -> Column:
        return sf.when(condition, sf.col(column))

    root = of(outcome, "link")  # where one fact is outcome and end, origin and root are the same
    return (
        sf.bit_or("bits").alias("bits"),
        sf.max(of(record, "at_ms")).alias("appended_ms"),
        sf.max(of(record, "due_ms")).alias("said_due_ms"),
        sf.max(of(record, "attempt")).alias("attempt"),
        sf.max("level").alias("level"),
        sf.max(of(record, "link")).alias("record_root"),
        sf.max(of(record & ~hop, "content")).alias("record_content"),
        sf.max(of(hop, "content")).alias("record_origin"),
        sf.max("chain").alias("chain"),
        sf.min(root).alias("least_root"),
        sf.max(root).alias("most_root"),
        sf.count_if(end).alias("ends"),
        sf.count_if(end & has(facts.JUDGED)).alias("judged_ends"),
        sf.count_if(has(facts.AGAIN)).alias("again"),
        sf.count_if(has(facts.HOPPED_AGAIN)).alias("hopped_again"),
        sf.min(of(end, "at")).alias("first_at"),
        sf.max(of(~record, "at")).alias("last_at"),
        sf.min(of(end, "at_ms")).alias("first_ms"),
        sf.max(of(end, "at_ms")).alias("last_ms"),
        sf.min(of(released, "at_ms")).alias("released_ms"),
        sf.min(of(again, "at_ms")).alias("again_ms"),
        sf.min(of(end, "due_ms")).alias("least_due_ms"),
        sf.min(of(end, "attempt")).alias("least_attempt"),
        sf.max(of(end, "attempt")).alias("most_attempt"),
        sf.max(of(record, "reason")).alias("record_reason"),
        sf.min(of(end, "reason")).alias("least_reason"),
        sf.max(of(end, "reason")).alias("most_reason"),
        sf.min(of(end, "content")).alias("least_content"),
        sf.max(of(end, "content")).alias("most_content"),
        sf.min(of(end | again, "link")).alias("origin"),
        sf.min_by(of(end, "link"), of(end, "at")).alias("first_origin"),
        (sf.min(of(end, "link")) != sf.max(of(end, "link"))).alias("two_ways"),
        sf.min(of(end, "wrote_ms")).alias("wrote_ms"),
        sf.max(of(end, "wrote_ms")).alias("last_wrote_ms"),
        sf.min(of(elsewhere, "wrote_ms")).alias("least_elsewhere_ms"),
        sf.max(of(elsewhere, "wrote_ms")).alias("most_elsewhere_ms"),
        sf.min(of(has(facts.AGAIN), "wrote_ms")).alias("again_wrote_ms"),
        (
            (sf.min(of(end, "wrote_ms")) != sf.max(of(end, "wrote_ms")))
            | sf.count_if(released).between(1, sf.count_if(end) - 1)
        ).alias("wrote_apart"),
    )


def _delay(promise: Promise) -> Column:
    """Of a direct write its partition's; of a front record that of its level or attempt, or, when the list was edited, the least
    that level or attempt had at its time that fulfils what its release says."""
    direct = by_line(sf.col("place"), (), promise.partition_delays_ms)
    if promise.list_ms:
        front = _entry(promise.list_ms)
    elif promise.lists:
        had = [sf.when(declared.applied(), _entry(declared.list_ms)) for declared in promise.lists]
        fulfilled = [sf.when(sf.col("appended_ms") + ms >= sf.col("least_due_ms"), ms) for ms in had]
        front = sf.coalesce(_among(sf.least, fulfilled), _among(sf.greatest, had))
        if promise.lists[0].from_ms > 0:
            unknown = sf.col("appended_ms") < promise.lists[0].from_ms + CLOCKS_MS
            front = sf.when(unknown, _least_fulfilling(sorted(set(promise.partition_delays_ms)))).otherwise(front)
    else:
        front = _least_fulfilling(sorted(set(promise.partition_delays_ms)))
    return sf.when(has(facts.ROOT) & sf.col("said_due_ms").isNull(), sf.coalesce(direct, front))


def _entry(list_ms: Sequence[int]) -> Column:
    entry = sf.least(sf.coalesce("level", sf.col("attempt") + 1), sf.lit(len(list_ms)))
    return sf.get(longs(list_ms), sf.greatest(entry, sf.lit(1)) - 1)


def _among(choose: Callable[..., Column], columns: Sequence[Column]) -> Column:
    """Spark's least and greatest pass over nulls, and refuse to choose from one."""
    return columns[0] if len(columns) == 1 else choose(*columns)


def _over_cap(promise: Promise) -> Column:
    """Above every cap of its time; that of all times is looked at with the release itself."""
    return has(facts.END_RELEASED) & (sf.col("most_attempt") > _cap(promise, sf.greatest))


def _within_cap(promise: Promise) -> Column:
    """Of no cap of its time too many, by the record's own headers."""
    return sf.col("attempt") <= _cap(promise, sf.least)


@cache
def _attempt() -> Column:
    """That the worker makes of it; null: it is not known."""
    unread = sf.col("least_reason").isNotNull() & refusals.one_of("record_reason", refusals.UNREADABLE)
    perhaps = sf.col("least_reason").isNotNull() & has(facts.GARBLED)
    return sf.when(~headers.true(unread | perhaps), sf.col("attempt"))


def _without_reason(said: str, promise: Promise) -> Column:
    """What a dead letter says is not so. Whatever it would have been dead-lettered for, it may be too large for its topic too."""
    refused = sf.col("record_reason").eqNullSafe(sf.col(said))
    allowed = sf.col("record_reason").isNotNull() | headers.true(_within_cap(promise))
    wrong = (
        sf.when(refusals.one_of(said, [DeadLetterReason.TOO_LARGE]), ~has(facts.LARGE))
        .when(refusals.one_of(said, [DeadLetterReason.INVALID_RECORD]), sf.lit(False))  # the topic decides that
        .when(refusals.one_of(said, [DeadLetterReason.RETRY_CAP_EXCEEDED]), allowed)
        .when(refusals.one_of(said, [DeadLetterReason.CANCELLED]), sf.col("record_reason").isNotNull())
        .when(refusals.one_of(said, [DeadLetterReason.HEADER_UNREADABLE]), ~refused & ~has(facts.GARBLED))
        .when(refusals.one_of(said, [DeadLetterReason.NO_LADDER]), ~_asks_too_much(promise, ladder=False))
        .when(refusals.one_of(said, [DeadLetterReason.MAX_DELAY_EXCEEDED]), ~_asks_too_much(promise, ladder=True))
        .when(refusals.one_of(said, _OF_TARGETS), ~has(facts.ASKS_TARGET) | sf.col("record_reason").isNotNull())
        .otherwise(~refused)
    )
    return sf.col(said).isNotNull() & wrong


def _asks_too_much(promise: Promise, *, ladder: bool) -> Column:
    """A due time where there was no ladder, or with a `ladder` one that was too far ahead, by anything that was declared at its time."""
    asks = sf.col("said_due_ms").isNotNull() & sf.col("record_reason").isNull()
    if not promise.lists or promise.lists[0].from_ms > 0:
        return asks  # what was declared then is not known
    ahead_ms = sf.col("said_due_ms") - sf.col("appended_ms")
    refused = [
        declared.applied() & (ahead_ms > declared.max_delay_ms if declared.max_delay_ms is not None else sf.lit(True))
        for declared in promise.lists
        if ladder is (declared.max_delay_ms is not None)
    ]
    return asks & headers.true(reduce(Column.__or__, refused, sf.lit(False)))


def _cap(promise: Promise, choose: Callable[..., Column]) -> Column:
    """The greatest or the least of its time; null: what was declared then is not known."""
    if not promise.lists or promise.lists[0].from_ms > 0:
        return sf.lit(None).cast("int")
    return _among(choose, [sf.when(declared.applied(), declared.retry_cap) for declared in promise.lists])


def _least_fulfilling(kinds_ms: Sequence[int]) -> Column:
    front = sf.lit(kinds_ms[-1]).cast("long")
    for ms in reversed(kinds_ms[:-1]):
        front = sf.when(sf.col("appended_ms") + ms >= sf.col("least_due_ms"), sf.lit(ms).cast("long")).otherwise(front)
    return front


@cache
def _due() -> Column:
    """What the release itself says is believed only where its root can't be seen."""
    asked = sf.when(sf.col("said_due_ms").isNotNull(), sf.greatest("said_due_ms", "appended_ms"))
    own_due = sf.when(has(facts.HOP), sf.col("said_due_ms")).otherwise(
        sf.coalesce(asked, sf.col("appended_ms") + sf.col("delay_ms"))
    )
    return sf.coalesce(own_due, "least_due_ms")


def _rescheduled(timed: DataFrame) -> DataFrame:
    """What came out at another time, which somebody had asked for, or nobody knows, is due then, and has no delay."""
    moved = headers.true(has(facts.ASKED_TIME | facts.PERHAPS_ASKED) & (sf.col("least_due_ms") != sf.col("due_ms")))
    due_ms = sf.when(moved, sf.col("least_due_ms")).otherwise(sf.col("due_ms"))
    return timed.withColumns({"moved": moved, "due_ms": due_ms, "delay_ms": sf.when(~moved, sf.col("delay_ms"))})


@cache
def _late() -> Column:
    first_is_ours = (sf.col("judged_ends") > 0) & (sf.col("judged_ends") == sf.col("ends")) & ~has(facts.AGAIN)
    believed = has(facts.END_RELEASED) & ~has(facts.UNTIMED) & first_is_ours
    return sf.when(believed, sf.col("released_ms") - sf.col("due_ms"))


def _in_time(promise: Promise) -> Column:
    """At first from the partition of its own delay, by one hop: what is read late takes the way that makes it the least late, and what
    waits for a missing topic hops on."""
    delay_ms = by_line(sf.col("first_origin"), (), promise.partition_delays_ms)
    return (sf.coalesce(delay_ms, sf.lit(0)) == sf.col("delay_ms")) & ~has(facts.HOPPED_ON)


@cache
def _extra() -> Column:
    """The first end may lie below the window, where it is not always read; what hopped again has ended, or will end, again."""
    ended = sf.least("judged_ends", sf.greatest(sf.col("ends") - 1, sf.col("again")))
    return sf.greatest(ended, sf.col("hopped_again"))


@cache
def in_wrong_place() -> Column:
    """A worker's release is in another ready topic or partition than its own, and no application can have put it there."""
    return (sf.col("judged_ends") > 0) & has(facts.MISPLACED)


@cache
def _forwarded() -> Column:
    """What is elsewhere than it asks to be was written when a release was that is in its place, so it is a copy of that one. A worker
    that releases once more says when."""
    written = [
        sf.col(f"{name}_elsewhere_ms").between(sf.col("wrote_ms"), sf.col("last_wrote_ms"))
        for name in ("least", "most")
    ]
    return headers.true(written[0] & written[1])


def _fate(bounds: Bounds) -> Column:
    """A record at or above the commit is pending, whatever became of it since: the next audit judges it. A place that has an
    outcome and whose record was never seen has a fate too, so that the law can fail."""
    released, dead_lettered, hopped, pending, lost, cancelled = range(len(FATES))
    settled = (
        sf.when(has(facts.RELEASED), released)
        .when(has(facts.DEAD_LETTERED), dead_lettered)
        .when(has(facts.CANCELLED), cancelled)
        .when(has(facts.HOPPED), hopped)
    )
    seen = sf.when(has(facts.RECORD), sf.when(bounds.settled(sf.col("place")), lost).otherwise(pending))
    return sf.coalesce(settled, seen)


def _flaws(promise: Promise) -> Column:
    lost = sf.col("fate") == FATES.index(LOST)
    strange_link = (sf.col("least_root") != sf.col("record_root")) | (sf.col("most_root") != sf.col("record_root"))
    forged = has(facts.OUTCOMES) & (~has(facts.RECORD) | strange_link)
    judged = sf.col("judged_ends") > 0
    seen = judged & has(facts.ROOT)
    waits = (sf.col("fate") == FATES.index(PENDING)) & ~has(facts.DONE)
    changed = (sf.col("least_content") != sf.col("record_content")) | (
        sf.col("most_content") != sf.col("record_content")
    )
    # of a dead letter that says so of a record that can be read another content is compared, and the reason is wrong anyway
    unread = refusals.one_of("least_reason", refusals.UNREADABLE) | refusals.one_of("most_reason", refusals.UNREADABLE)
    comparable = ~headers.true(unread) | headers.true(refusals.one_of("record_reason", refusals.UNREADABLE))
    attempt = (sf.col("least_attempt") != _attempt()) | (sf.col("most_attempt") != _attempt())
    conditions = {
        "lost": lost,
        "forged": forged,
        "early": sf.col("late_ms") < -promise.skew_ms,
        "late": sf.col("late_ms") > promise.max_lateness_ms,
        "doubled": sf.col("extra") > 0,
        "changed": seen & changed & comparable,
        "wrong_partition": in_wrong_place() | (has(facts.ELSEWHERE) & ~_forwarded()),
        "wrong_attempt": seen & attempt,
        "over_cap": judged & (has(facts.OVER_CAP) | sf.coalesce(_over_cap(promise), sf.lit(False))),
        "foreign": has(facts.FOREIGN),
        "wrongly_dead_lettered": seen
        & (_without_reason("least_reason", promise) | _without_reason("most_reason", promise)),
        "overdue": waits & (sf.col("due_ms") < sf.lit(promise.overdue_before_ms)),
        "perhaps_unasked": judged & sf.col("moved") & ~has(facts.ASKED_TIME),
    }
    bits = [sf.when(conditions[flaw], 1 << at).otherwise(0) for at, flaw in enumerate(FLAWS)]
    return reduce(Column.bitwiseOR, bits)
