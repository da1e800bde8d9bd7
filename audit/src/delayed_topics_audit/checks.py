"""The law and the promises, from places to small tables, as DataFrame → DataFrame. Nothing here reads, writes or collects."""

from collections.abc import Sequence
from typing import Final

from delayed_topics_core.audit_table import FATES
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from delayed_topics_audit import facts
from delayed_topics_audit.facts import has
from delayed_topics_audit.fates import fated
from delayed_topics_audit.flaws import FLAWS, flawed, in_wrong_place
from delayed_topics_audit.place import chunk_of, line_of, name_of, topic_number_of

EXACT_MS: Final = 64
"""Latenesses are counted to the millisecond below this, to 1/32 above."""
_STEPS_BITS: Final = 5
_TARGET_HELD_MS: Final = 1000
"""A worker holds a record whose topic is missing for so long at a time, if no delay is between a second and a minute."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def accounts(places: DataFrame) -> DataFrame:
    """Per line (partition of front or delays): produced, and how many of each fate. Every term is counted."""
    terms = [sf.count_if(fated(fate)).alias(fate) for fate in FATES]
    return (
        places.where("fate is not null")
        .groupBy(line_of(sf.col("place")).alias("line"))
        .agg(sf.count_if(has(facts.RECORD)).alias("produced"), *terms)
    )


def totals(places: DataFrame) -> DataFrame:
    """One row: how many have each flaw, copies beyond the first, what can't be judged, and how far the records reach, and those that
    wait."""
    ended = (sf.col("judged_ends") > 0) & ~has(facts.AGAIN)
    return places.agg(
        *(sf.count_if(flawed(flaw)).alias(flaw) for flaw in FLAWS),
        sf.coalesce(sf.sum("extra"), sf.lit(0)).alias("extra"),
        sf.max("late_ms").alias("max_late_ms"),
        sf.count_if(_untimed()).alias("untimed"),
        sf.count_if(flawed("wrong_partition") & ~in_wrong_place()).alias("perhaps_forwarded"),
        sf.count_if(ended).alias("ended"),
        sf.count_if(ended & (~has(facts.ROOT) | sf.col("appended_ms").isNull())).alias("unread_roots"),
        sf.count_if(has(facts.REJECTION)).alias("rejected"),
        sf.min(sf.when(flawed("overdue"), sf.col("due_ms"))).alias("overdue_since_ms"),
        sf.min("appended_ms").alias("first_ms"),
        sf.greatest(sf.max("appended_ms"), sf.max("last_ms")).alias("last_ms"),
        sf.min(sf.when(fated("pending"), sf.col("appended_ms"))).alias("pending_since_ms"),
        sf.min(sf.when(fated("pending"), sf.col("due_ms"))).alias("first_due_ms"),
        sf.max(sf.when(fated("pending"), sf.col("due_ms"))).alias("last_due_ms"),
    )


def untimed(places: DataFrame) -> DataFrame:
    """Per topic number of where they first came out, how many releases the broker did not stamp."""
    return places.where(_untimed()).groupBy(topic_number_of(sf.col("first_at")).alias("topic_number")).count()


def pending_roots(places: DataFrame) -> DataFrame:
    """One row: `since_ms`, when the oldest root of a pending hop was appended; null if no such root was read. Only the first root of each
    partition is looked up, because the others came after it."""
    waits = places.where(fated("pending") & has(facts.HOP))
    first = waits.groupBy(line_of(sf.col("root"))).agg(sf.min("root").alias("place")).select("place")
    return places.join(sf.broadcast(first), "place").agg(sf.min("appended_ms").alias("since_ms"))


def disorder(places: DataFrame) -> DataFrame:
    """Neighbours whose first copies came out in the other order: place, first_at, due_ms, judged, and the same of the one before.

    Neighbours have the same front partition (or delays partition, for direct writes), delay, ready partition and way. A hop that is
    made more than a second late takes another way, by a partition of another delay, for which no order is promised. None is promised
    either for a topic that may have been missing when a record was due. Where brokers with different clocks appended two neighbours,
    the one that is due first comes out first. Two neighbours that had both ended before the window were judged by a previous audit.
    Chunks of places are whole in a partition of Spark, so only their edges have to be moved.
    """
    of_line, of_place = ["line", "delay_ms", "way", "ready_line"], ["place", "first_at", "due_ms", "judged"]
    first_is_known = has(facts.END_RELEASED) & ~has(facts.AGAIN)
    waited = has(facts.ASKS_TARGET) & (sf.col("first_ms") >= sf.col("due_ms") + _TARGET_HELD_MS)
    lined = places.where(first_is_known & ~has(facts.MISPLACED) & sf.col("in_time") & ~waited).select(
        chunk_of(sf.col("place")).alias("chunk"),
        line_of(sf.col("place")).alias("line"),
        "delay_ms",
        "way",
        line_of(sf.col("first_at")).alias("ready_line"),
        "place",
        "first_at",
        "due_ms",
        (sf.col("judged_ends") > 0).alias("judged"),
    )
    inside = Window.partitionBy("chunk", *of_line[1:]).orderBy("place")
    neighbours = lined.select(*of_place, *(sf.lag(name).over(inside).alias(f"before_{name}") for name in of_place))
    edges = lined.groupBy(*of_line, "chunk").agg(
        *(sf.min_by(name, "place").alias(name) for name in of_place),
        *(sf.max_by(name, "place").alias(f"last_{name}") for name in of_place),
    )
    across = Window.partitionBy(*of_line).orderBy("chunk")
    crossing = edges.select(
        *of_place, *(sf.lag(f"last_{name}").over(across).alias(f"before_{name}") for name in of_place)
    )
    in_turn = "before_first_at > first_at and before_due_ms <= due_ms"
    return neighbours.unionAll(crossing).where(f"{in_turn} and (judged or before_judged)")


def lateness(places: DataFrame) -> DataFrame:
    """Per delay, hour of the due time and bucket of lateness how many releases. Early ones have negative buckets. Where the delay is
    null, `asked` tells records that asked for their due time from those of which it is not known."""
    late = sf.col("late_ms")
    octave = sf.floor(sf.log2(sf.greatest(late, sf.lit(EXACT_MS))))
    step = sf.pow(2, octave - _STEPS_BITS).cast("long")
    bucket = sf.when(late < EXACT_MS, late).otherwise(late - late % step)
    hour = sf.col("due_ms") - sf.col("due_ms") % HOUR_MS
    timed = places.where("late_ms is not null")
    asked = sf.col("delay_ms").isNull() & sf.col("appended_ms").isNotNull() & ~has(facts.HOP)
    return timed.groupBy("delay_ms", asked.alias("asked"), hour.alias("hour_ms"), bucket.alias("bucket_ms")).count()


def pending(places: DataFrame, *, step_ms: int = MINUTE_MS) -> DataFrame:
    """How many records wait, by when they are due."""
    due = sf.col("due_ms") - sf.col("due_ms") % step_ms
    return places.where(fated("pending")).groupBy(due.alias("due_ms")).count()


def timeline(places: DataFrame, *, step_ms: int) -> DataFrame:
    """Per step of time: came in (front and direct writes), came out, came out late."""

    def step(column: str) -> Column:
        return (sf.col(column) - sf.col(column) % step_ms).alias("at_ms")

    arrived = places.where(has(facts.RECORD) & ~has(facts.HOP) & sf.col("appended_ms").isNotNull())
    came_in = arrived.groupBy(step("appended_ms")).agg(sf.count("*").alias("came_in"))
    timed = places.where("late_ms is not null").groupBy(step("first_ms"))
    came_out = timed.agg(sf.count("*").alias("came_out"), sf.count_if(flawed("late")).alias("late"))
    return came_in.join(came_out, "at_ms", "full_outer").na.fill(0).orderBy("at_ms")


def offenders(places: DataFrame, flaw: str, targets: Sequence[str] = ()) -> DataFrame:
    """Their names, one column `record`; the worst first. `targets`: see place.name_of."""
    named = FLAWS[flaw].named
    parts = {
        "place": name_of(sf.col("place"), targets),
        "first_at": name_of(sf.col("first_at"), targets),
        "last_at": name_of(sf.col("last_at"), targets),
        "came_out_at": name_of(sf.coalesce("first_at", "last_at"), targets),
        "late_ms": sf.concat(sf.col("late_ms").cast("string"), sf.lit(" ms")),
    }
    order = sf.desc(sf.abs("late_ms")) if "late_ms" in named else sf.col("place")
    record = sf.concat_ws(" ", *(parts[part] for part in named)).alias("record")
    return places.where(flawed(flaw)).orderBy(order).select(record)


def disordered_names(breaks: DataFrame, targets: Sequence[str] = ()) -> DataFrame:
    places = [name_of(sf.col(column), targets) for column in ("before_first_at", "first_at")]
    return breaks.orderBy("place").select(sf.concat_ws(" before ", places[1], places[0]).alias("record"))


def chains(places: DataFrame) -> DataFrame:
    """Per failure chain, the retries of one `dt-id` by one group: attempts, waited_ms, end, forks (the same attempt twice). The end of an
    attempt that hopped is what became of its hops. A chain of which nothing belongs to the window has been told by an audit before."""
    links = places.where(has(facts.RETRY | facts.REJECTION) & sf.col("chain").isNotNull())
    retry = has(facts.RETRY) & ~has(facts.HOP)
    end = sf.when(has(facts.REJECTION), "rejected").otherwise(
        sf.element_at(sf.array(*map(sf.lit, FATES)), (sf.col("fate") + 1).cast("int"))
    )
    per_attempt = links.groupBy("chain", "attempt").agg(
        sf.count_if(retry).alias("n"),
        sf.max(sf.when(retry, sf.col("delay_ms"))).alias("waited_ms"),
        sf.max_by(end, sf.struct(~fated("hopped"), "place")).alias("end"),
        sf.max(has(facts.REJECTION) | sf.col("fate").isNotNull()).alias("goes_on"),
    )
    every = per_attempt.groupBy("chain").agg(
        sf.max("attempt").alias("attempts"),
        sf.sum("waited_ms").alias("waited_ms"),
        sf.max_by("end", sf.coalesce("attempt", sf.lit(2**31 - 1))).alias("end"),
        sf.sum(sf.greatest(sf.col("n") - 1, sf.lit(0))).alias("forks"),
        sf.max("goes_on").alias("goes_on"),
    )
    return every.where("goes_on").drop("goes_on")


def _untimed() -> Column:
    return has(facts.END_RELEASED) & (sf.col("judged_ends") > 0) & has(facts.UNTIMED)
