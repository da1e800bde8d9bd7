"""Turns places into small tables: the account of each partition, and how far each promise was kept.

Each function returns a DataFrame. None of them reads, writes or collects.
"""

from collections.abc import Sequence
from typing import Final

from delayed_topics_core.audit_table import FATES
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from delayed_topics_audit import facts
from delayed_topics_audit.facts import has
from delayed_topics_audit.fates import has_fate
from delayed_topics_audit.flaws import FLAWS, has_flaw, in_wrong_place
from delayed_topics_audit.place import chunk_of, line_of, name_of, topic_number_of

EXACT_MS: Final = 64
"""Lateness is counted to the millisecond below this, and to 1/32 of its value above."""
_STEPS_BITS: Final = 5
_TARGET_HELD_MS: Final = 1000
"""How long a worker holds a record whose topic is missing before it checks again, if there is no delay between a second and a minute."""

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def accounts(places: DataFrame) -> DataFrame:
    """Returns for each line (partition of the front or delays topic) the number of records produced, and of each fate. Each term is counted
    by itself, and none is derived from the others."""
    terms = [sf.count_if(has_fate(fate)).alias(fate) for fate in FATES]
    return (
        places.where("fate is not null")
        .groupBy(line_of(sf.col("place")).alias("line"))
        .agg(sf.count_if(has(facts.RECORD)).alias("produced"), *terms)
    )


def totals(places: DataFrame) -> DataFrame:
    """Returns one row: how many places have each flaw, the number of copies beyond the first, what can't be judged, and the time range of
    the records and of those that wait."""
    ended = (sf.col("judged_ends") > 0) & ~has(facts.AGAIN)
    return places.agg(
        *(sf.count_if(has_flaw(flaw)).alias(flaw) for flaw in FLAWS),
        sf.coalesce(sf.sum("extra"), sf.lit(0)).alias("extra"),
        sf.max("late_ms").alias("max_late_ms"),
        sf.count_if(_untimed()).alias("untimed"),
        sf.count_if(has_flaw("wrong_partition") & ~in_wrong_place()).alias("perhaps_forwarded"),
        sf.count_if(ended).alias("ended"),
        sf.count_if(ended & (~has(facts.ROOT) | sf.col("appended_ms").isNull())).alias("unread_roots"),
        sf.count_if(has(facts.REJECTION)).alias("rejected"),
        sf.min(sf.when(has_flaw("overdue"), sf.col("due_ms"))).alias("overdue_since_ms"),
        sf.min("appended_ms").alias("first_ms"),
        sf.greatest(sf.max("appended_ms"), sf.max("last_ms")).alias("last_ms"),
        sf.min(sf.when(has_fate("pending"), sf.col("appended_ms"))).alias("pending_since_ms"),
        sf.min(sf.when(has_fate("pending"), sf.col("due_ms"))).alias("first_due_ms"),
        sf.max(sf.when(has_fate("pending"), sf.col("due_ms"))).alias("last_due_ms"),
    )


def untimed(places: DataFrame) -> DataFrame:
    """Returns the number of releases without the broker's time, by the number of the topic in which they first came out."""
    return places.where(_untimed()).groupBy(topic_number_of(sf.col("first_at")).alias("topic_number")).count()


def pending_roots(places: DataFrame) -> DataFrame:
    """Returns one row with `since_ms`, the append time of the oldest root of a pending hop that was read, or null if none was. Only the
    first of these roots in each partition is looked up, because the others came after it. Retention may have removed roots before it."""
    read, line = places.where(has(facts.ROOT)), line_of(sf.col("place")).alias("line")
    begins = read.groupBy(line).agg(sf.min("place").alias("read_from"))
    waits = places.where(has_fate("pending") & has(facts.HOP)).select("root", line_of(sf.col("root")).alias("line"))
    there = waits.join(sf.broadcast(begins), "line").where("root >= read_from")
    oldest = there.groupBy("line").agg(sf.min("root").alias("oldest"))
    since = read.withColumn("line", line).join(sf.broadcast(oldest), "line").where("place >= oldest")
    return since.agg(sf.min("appended_ms").alias("since_ms"))


def disorder(places: DataFrame) -> DataFrame:
    """Returns neighbours whose first copies came out in the wrong order: place, first_at, due_ms, judged, and the same for the neighbour
    before.

    Neighbours have the same front partition (or delays partition, if they were produced directly to it), delay, ready partition and way.
    A hop that is made more than a second late takes another way, through a partition of another delay, for which no order is promised. No
    order is promised either if the topic of a record may have been missing when the record was due. If brokers with different clocks
    appended two neighbours, the one that is due first comes out first. Two neighbours that had both ended before the window were judged by
    an earlier audit. Each chunk of places lies within one partition of Spark, so only the edges of chunks have to be moved.
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
    """Returns the number of releases by delay, hour of the due time and bucket of lateness. Early releases have negative buckets. Where the
    delay is null, `asked` says whether the record requested its due time; otherwise its delay is not known."""
    late = sf.abs("late_ms")
    octave = sf.floor(sf.log2(sf.greatest(late, sf.lit(EXACT_MS))))
    step = sf.pow(2, octave - _STEPS_BITS).cast("long")
    bucket = sf.sign("late_ms").cast("long") * sf.when(late < EXACT_MS, late).otherwise(late - late % step)
    hour = sf.col("due_ms") - sf.col("due_ms") % HOUR_MS
    timed = places.where("late_ms is not null")
    asked = sf.col("delay_ms").isNull() & sf.col("appended_ms").isNotNull() & ~has(facts.HOP)
    return timed.groupBy("delay_ms", asked.alias("asked"), hour.alias("hour_ms"), bucket.alias("bucket_ms")).count()


def pending(places: DataFrame, *, step_ms: int = MINUTE_MS) -> DataFrame:
    """Returns the number of records that wait, by due time."""
    due = sf.col("due_ms") - sf.col("due_ms") % step_ms
    return places.where(has_fate("pending")).groupBy(due.alias("due_ms")).count()


def timeline(places: DataFrame, *, step_ms: int) -> DataFrame:
    """Returns for each step of time how many records came in (to the front topic, or directly to the delays topic), came out, and came out
    late."""

    def step(column: str) -> Column:
        return (sf.col(column) - sf.col(column) % step_ms).alias("at_ms")

    arrived = places.where(has(facts.RECORD) & ~has(facts.HOP) & sf.col("appended_ms").isNotNull())
    came_in = arrived.groupBy(step("appended_ms")).agg(sf.count("*").alias("came_in"))
    timed = places.where("late_ms is not null").groupBy(step("first_ms"))
    came_out = timed.agg(sf.count("*").alias("came_out"), sf.count_if(has_flaw("late")).alias("late"))
    return came_in.join(came_out, "at_ms", "full_outer").na.fill(0).orderBy("at_ms")


def offenders(places: DataFrame, flaw: str, targets: Sequence[str] = ()) -> DataFrame:
    """Returns the names of the places with this flaw, in one column `record`, the worst first. For `targets`, see place.name_of."""
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
    return places.where(has_flaw(flaw)).orderBy(order).select(record)


def disordered_names(breaks: DataFrame, targets: Sequence[str] = ()) -> DataFrame:
    places = [name_of(sf.col(column), targets) for column in ("before_first_at", "first_at")]
    return breaks.orderBy("place").select(sf.concat_ws(" before ", places[1], places[0]).alias("record"))


def chains(places: DataFrame) -> DataFrame:
    """Returns one row for each failure chain, that is, the retries of one `dt-id` by one group: attempts, waited_ms, end and forks (the
    same attempt twice). The end of an attempt that hopped is the fate of its hops. A chain without any record in the window is left out,
    because an earlier audit has reported it."""
    links = places.where(has(facts.RETRY | facts.REJECTION) & sf.col("chain").isNotNull())
    retry = has(facts.RETRY) & ~has(facts.HOP)
    end = sf.when(has(facts.REJECTION), "rejected").otherwise(
        sf.element_at(sf.array(*map(sf.lit, FATES)), (sf.col("fate") + 1).cast("int"))
    )
    per_attempt = links.groupBy("chain", "attempt").agg(
        sf.count_if(retry).alias("n"),
        sf.max(sf.when(retry, sf.col("delay_ms"))).alias("waited_ms"),
        sf.max_by(end, sf.struct(~has_fate("hopped"), "place")).alias("end"),
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
