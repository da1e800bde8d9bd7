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
reason                 why it was dead-lettered, in the words of `dt-reason`
again_ms               when the first copy came of what an audit before had settled
way                    the partition (see place.line_of) that it was released from; two_ways: it was released from two places, since it
                       had hopped twice, or had hopped and did not have to
in_time                it came the way of a record that was read in time, so that its order is promised
late_ms                first release after its due time; null if it wasn't released, or one of both times can't be believed
wrote_ms               when the first of its copies was written, as its worker says; wrote_apart: its copies were written at different
                       times, or only some of them are releases
fate                   of a record of the window: a number, see fates; of anything else null
flaws                  what is wrong, as bits, see flaws
"""

from collections.abc import Sequence
from functools import cache, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import facts, refusals
from delayed_topics_audit import header_columns as headers
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.facts import has
from delayed_topics_audit.fates import fate_of
from delayed_topics_audit.flaws import flaws_of
from delayed_topics_audit.place import by_line, chunk_of, line_of, longs
from delayed_topics_audit.promise import CLOCKS_MS, Promise, among


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
    fated = timed.withColumns({"fate": fate_of(bounds), "reason": refusals.word_of("least_reason"), **of_hop})
    return fated.withColumn("extra", _extra()).withColumn("flaws", flaws_of(promise)).select(*COLUMNS)


COLUMNS: Final = (
    "place", "bits", "root", "origin", "appended_ms", "due_ms", "delay_ms", "attempt", "chain", "ends", "judged_ends", "extra",
    "first_at", "last_at", "first_ms", "last_ms", "reason", "again_ms", "way", "in_time", "two_ways", "late_ms",
    "wrote_ms", "again_wrote_ms", "wrote_apart", "fate", "flaws",
)  # fmt: skip


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
    had = [sf.when(declared.applied(), _entry(declared.list_ms)) for declared in promise.lists]
    fulfilled = [sf.when(sf.col("appended_ms") + ms >= sf.col("least_due_ms"), ms) for ms in had]
    front = sf.coalesce(among(sf.least, fulfilled), among(sf.greatest, had))
    if not promise.all_known:
        unknown = sf.col("appended_ms") < promise.lists[0].from_ms + CLOCKS_MS
        front = sf.when(unknown, _least_fulfilling(sorted(set(promise.partition_delays_ms)))).otherwise(front)
    return sf.when(has(facts.ROOT) & sf.col("said_due_ms").isNull(), sf.coalesce(direct, front))


def _entry(list_ms: Sequence[int]) -> Column:
    entry = sf.least(sf.coalesce("level", sf.col("attempt") + 1), sf.lit(len(list_ms)))
    return sf.get(longs(list_ms), sf.greatest(entry, sf.lit(1)) - 1)


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
