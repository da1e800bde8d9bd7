"""Combines all facts about a place into one row: what became of the record there, and of the attempt that began there.

This takes one shuffle and one aggregation, both of integers. Neighbours stay together, chunk by chunk, so that the check of order need
not move them again. The columns of a place:

place, bits            the bits of all facts together; see facts
root, origin           of a hop: where the attempt began, and the record from which the hop was made
appended_ms, due_ms    the broker's append time of the record, and when the record is due
delay_ms               how long the record had to wait; null for a hop, for a record that requests a due time, and if the root was not read
attempt, chain         of the record
ends, judged_ends      how often the attempt that began here ended; how often it ended in this window
extra                  how many of these ends, and of repeated hops, there are beyond the first
first_at, last_at      the first place where the attempt ended, and the last place of its outcomes; first_ms, last_ms: the times
reason                 why the record was dead-lettered, in the words of `dt-reason`
again_ms               when the first further copy came of a record that an earlier audit had settled
way                    the partition (see place.line_of) from which the record was released; two_ways: it was released from two places,
                       because it had hopped twice, or had hopped without need
in_time                the record took the way of a record that was read in time, so its order is promised
late_ms                time from the due time to the first release; null if there was no release, or if one of the times is not reliable
wrote_ms               when the first copy was written, as its worker says; wrote_apart: the copies were written at different times, or
                       only some of them are releases
fate                   of a record of the window: a number, see fates; null for everything else
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
    known = _bounded(_gather(near), promise)
    timed = known.withColumn("delay_ms", _delay(promise))
    timed = _rescheduled(timed.withColumn("due_ms", _due()), promise).withColumn("late_ms", _late())
    timed = timed.withColumn("way", line_of(sf.col("origin"))).withColumn("in_time", _in_time(promise))
    of_hop = {
        name: sf.when(has(facts.HOP) & (sf.col(f"record_{name}") >= 0), sf.col(f"record_{name}"))
        for name in ("root", "origin")
    }
    with_fate = timed.withColumns({"fate": fate_of(bounds), "reason": refusals.word_of("least_reason"), **of_hop})
    return with_fate.withColumn("extra", _extra()).withColumn("flaws", flaws_of(promise)).select(*COLUMNS)


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

    root = of(outcome, "link")  # if a fact is both an outcome and an end, its origin is its root
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


def _bounded(known: DataFrame, promise: Promise) -> DataFrame:
    """Limits the due time that a hop states. A hop that would wait for longer than any record may is overdue after that time."""
    if promise.longest_ms is None:
        return known
    limited = sf.least("said_due_ms", sf.col("appended_ms") + promise.longest_ms)
    return known.withColumn("said_due_ms", sf.when(has(facts.HOP), limited).otherwise(sf.col("said_due_ms")))


def _delay(promise: Promise) -> Column:
    """Returns the delay of a record. A record that was produced directly to the delays topic has the delay of its partition. A front record
    has the delay of its level or attempt. If the list was edited around its time, this is the shortest delay of that level or attempt
    with which the record is not due before the time that its release states."""
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
    """Returns the due time. The one that the release states counts only if the root was not read."""
    requested = sf.when(sf.col("said_due_ms").isNotNull(), sf.greatest("said_due_ms", "appended_ms"))
    own_due = sf.when(has(facts.HOP), sf.col("said_due_ms")).otherwise(
        sf.coalesce(requested, sf.col("appended_ms") + sf.col("delay_ms"))
    )
    return sf.coalesce(own_due, "least_due_ms")


def _rescheduled(timed: DataFrame, promise: Promise) -> DataFrame:
    """Changes the due time of records that came out at another time which was requested, or perhaps was. They are due at that time, and
    have no delay. No worker moves a record to a time before the record came in. What a hop says of that time may be by another clock."""
    other = sf.col("least_due_ms") != sf.col("due_ms")
    possible = sf.col("appended_ms").isNull() | (sf.col("least_due_ms") >= sf.col("appended_ms") - promise.skew_ms)
    moved = headers.or_false(has(facts.ASKED_TIME | facts.PERHAPS_ASKED) & other & possible)
    due_ms = sf.when(moved, sf.col("least_due_ms")).otherwise(sf.col("due_ms"))
    return timed.withColumns({"moved": moved, "due_ms": due_ms, "delay_ms": sf.when(~moved, sf.col("delay_ms"))})


@cache
def _late() -> Column:
    first_is_ours = (sf.col("judged_ends") > 0) & (sf.col("judged_ends") == sf.col("ends")) & ~has(facts.AGAIN)
    reliable = has(facts.END_RELEASED) & ~has(facts.UNTIMED) & first_is_ours
    return sf.when(reliable, sf.col("released_ms") - sf.col("due_ms"))


def _in_time(promise: Promise) -> Column:
    """Whether the record was first released from the partition of its own delay, after one hop. A record that is read late takes the way
    on which it is the least late, and a record that waits for a missing topic hops on."""
    delay_ms = by_line(sf.col("first_origin"), (), promise.partition_delays_ms)
    return (sf.coalesce(delay_ms, sf.lit(0)) == sf.col("delay_ms")) & ~has(facts.HOPPED_ON)


@cache
def _extra() -> Column:
    """Returns the number of copies beyond the first. The first end may lie below the window, where it is not always read. An attempt that
    hopped again has ended again, or will."""
    ended = sf.least("judged_ends", sf.greatest(sf.col("ends") - 1, sf.col("again")))
    return sf.greatest(ended, sf.col("hopped_again"))
