"""Doubled copies: which of them promise 3 covers, because the events of the workers explain them, and which nothing explains."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from delayed_topics_core.audit_table import DELAYS, FRONT, MAX_PARTITION, PARTITION_BITS
from delayed_topics_core.events import TOLD_AGAIN_MS, Event, parse_places
from delayed_topics_core.names import TopicNames
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import facts
from delayed_topics_audit.facts import has
from delayed_topics_audit.flaws import has_flaw
from delayed_topics_audit.place import line_of

MAX_REPEATED: Final = 5000
"""The maximum number of records of a partition between two commits, however long Kafka takes to accept the second commit."""
UNCOMMITTED_MS: Final = 60_000
"""Kafka seldom takes longer to acknowledge copies, or to accept the commits that finish them."""
REACH_MS: Final = 5000
"""A busy worker reports an event up to this long after it happened. The time of an event is the worker's estimate."""
UNTOLD_MS: Final = 360_000
"""A worker reports its takeovers twice a second. If it is killed before, Kafka assigns its partitions to other workers within its session
of up to 45 s, and these report. Without other workers, the pod reports when Kubernetes has started it again, after up to five minutes."""
UNREAD_MS: Final = 60_000
"""If the first copy was not read: a copy that was in flight when its worker ended arrives within this time."""
SILENT_MS: Final = TOLD_AGAIN_MS + 3_600_000
"""If the workers report nothing for longer, they can't write events, or there are no workers."""
TAKEOVERS: Final = "nr: int, line: int, from_ms: long, to_ms: long"


@dataclass(frozen=True, kw_only=True)
class Takeover:
    """Partitions began again at their first unfinished offset, because they were assigned to a worker or because its producers were
    replaced.

    `lines` are the partitions of the front and delays topics, see place.line_of. Times are the worker's estimate of the broker's time.
    """

    lines: frozenset[int]
    from_ms: int
    to_ms: int


def takeovers(events: Iterable[Event], topic: str) -> list[Takeover]:
    """Returns the takeovers of one delayed topic, oldest first. A worker reports each takeover several times, so that the loss of one event
    hides none. Further reports of the same worker at about the same time do not count as further takeovers."""
    names = TopicNames.of(topic)
    topic_numbers = {names.front: FRONT, names.delays: DELAYS}
    ranked = [(rank, event) for event in events if event.topic == topic and (rank := _rank(event)) is not None]
    found: list[Takeover] = []
    reported: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, event in sorted(ranked, key=lambda one: one[0]):
        takeover = _takeover(event, topic_numbers)
        at = takeover.from_ms // REACH_MS
        if rank > 0:
            known = {line for near in (at - 1, at, at + 1) for line in reported.get((event.member, near), ())}
            takeover = replace(takeover, lines=takeover.lines - known)
        if not takeover.lines:
            continue
        reported[event.member, at] |= takeover.lines
        found.append(takeover)
    return sorted(dict.fromkeys(found), key=lambda takeover: takeover.from_ms)


def reported_spans(events: Iterable[Event], topic: str) -> list[tuple[int, int]]:
    """Returns the spans of time, in milliseconds and oldest first, for which the events report what happened to the workers of one delayed
    topic."""
    spans: list[tuple[int, int]] = []
    for at_ms in sorted(event.at_ms for event in events if event.topic == topic):
        begin_ms = spans.pop()[0] if spans and at_ms <= spans[-1][1] else at_ms
        spans.append((begin_ms, at_ms + SILENT_MS))
    return spans


def rows(found: Sequence[Takeover]) -> list[dict[str, Any]]:
    return [
        {"nr": nr, "line": line, "from_ms": takeover.from_ms, "to_ms": takeover.to_ms}
        for nr, takeover in enumerate(found)
        for line in takeover.lines
    ]


def repeats(
    places: DataFrame,
    table: DataFrame,
    *,
    known: Sequence[tuple[int, int]],
    read_ms: int | None = None,
    exactly_once_from_ms: int | None = None,
    one_in: int = 1,
) -> DataFrame:
    """Judges doubled copies. Returns for each takeover (`nr`; null: nothing explains the copies) and way the number of copies beyond the
    first (`extra`), and how many of these are beyond promise 3 (`beyond`). In four cases it is not known whether the others are:

    unexplained       they came at a time for which there are no events
    untold            the known takeovers do not explain all of them, but one that no worker reported may
    set_back          their first copies came out over too long a time or too long before the takeover, or an audit settled them before
                      the takeover and they were perhaps copied after it
    perhaps_too_many  they are a sample of what may be more than MAX_REPEATED

    `told_later` is how many of `untold` a takeover may explain that is reported later.

    All further copies of a record whose first copy was made at or after `exactly_once_from_ms` are beyond the promise.

    `table` has rows of TAKEOVERS. For `known`, see `reported_spans`. `read_ms` is when the events were read; None: long after the copies.
    `places` have one record in `one_in`.

    At most MAX_REPEATED records of one partition are within the promise. A takeover of that partition must lie between the first copy and
    the last, and the worker that took over must have written the further copies: a copy that is equal to the last byte is not covered. How
    long records stay uncommitted depends on Kafka, but records look the same if somebody sets the offsets of the group back. If a record
    hopped twice, before a crash and after it, the copies are the hops, wherever they went, and not the releases. If these hops are not
    known, the releases lie as far apart as the records came in, and the takeover, of any partition, lies between the arrival of the
    records and their last copy. If several takeovers lie between two copies, the first of them ended the worker of the first copy. If none
    does, the nearest counts. If the first copy was not read, the last takeover before the other copy counts.

    If takeovers follow each other closely, this is a guess: each takeover that may have repeated some of these records may repeat
    MAX_REPEATED. If no takeover lies between the copies, there may have been one that is not reported yet, or never will be because its
    worker was killed at once.
    """
    until_ms = sf.col("until_ms")
    at_known_times = reduce(Column.__or__, [until_ms.between(*span) for span in known], sf.lit(False))
    recent = sf.lit(False) if read_ms is None else until_ms > read_ms - UNTOLD_MS
    exactly_once = sf.lit(False) if exactly_once_from_ms is None else sf.col("made_ms") >= exactly_once_from_ms
    episodes = _explained(_doubled(places), table).groupBy(
        "way",
        "nr",
        "has_takeover",
        (~sf.col("has_takeover") & ~at_known_times).alias("unknown"),
        (sf.col("nr").isNull() & sf.col("again_ms").isNull() & recent).alias("perhaps_reported_later"),
        exactly_once.alias("exactly_once"),
    )
    return _judged(
        episodes.agg(
            sf.sum("extra").alias("extra"),
            sf.sum(sf.when(sf.col("copied"), sf.col("extra")).otherwise(0)).alias("copied"),
            sf.count("*").alias("records"),
            sf.coalesce(sf.max("first_copied_ms") - sf.min("first_copied_ms"), sf.lit(0)).alias("span_ms"),
            sf.coalesce(sf.max("perhaps_set_back"), sf.lit(False)).alias("perhaps_set_back"),
            (sf.max(until_ms) - sf.min(until_ms)).alias("lasted_ms"),
            sf.size(sf.array_distinct(sf.flatten(sf.collect_set("possible")))).alias("takeovers"),
            sf.max(sf.col("aside").cast("int")).alias("perhaps_another"),
        ),
        one_in,
    )


def _doubled(places: DataFrame) -> DataFrame:
    """Returns the records that came out more than once: from when until when they did (`since_ms`, `until_ms`), and how. If a record hopped
    twice (`hopped`), the times and the way are those of the hops."""
    known_first = sf.when(sf.col("two_ways"), sf.least("appended_ms", "first_ms")).otherwise(sf.col("first_ms"))
    # If an earlier audit had settled a record, its first copy is not always read. A copy that was in flight then was not written by the
    # worker that took over, which began at or above the settled offsets, unless somebody has set the offsets of the group back.
    first_ms = sf.when(sf.col("again_ms").isNotNull(), sf.least(known_first, sf.col("again_ms") - UNREAD_MS))
    written_anew = sf.coalesce("wrote_apart", sf.lit(True)) | sf.coalesce("two_ways", sf.lit(False))
    doubled = places.where(has_flaw("doubled"))
    steps = _hopped_twice(places, doubled.where(sf.col("two_ways") & sf.col("again_ms").isNull()).select("place"))
    return doubled.join(steps, "place", "left").select(
        "place",
        sf.coalesce(line_of(sf.col("hopped.origin")), "way").alias("way"),
        (sf.coalesce("two_ways", sf.lit(False)) & sf.col("hopped").isNull()).alias("any_way"),
        "extra",
        ((sf.col("ends") > 1) & ~written_anew).alias("copied"),
        # the time of writing, because records that a worker could not send for minutes are appended beside those that it sent just before
        sf.when(sf.col("two_ways"), sf.coalesce("hopped.first_ms", "appended_ms"))
        .otherwise(sf.coalesce("wrote_ms", "first_ms", "again_ms"))
        .alias("first_copied_ms"),
        sf.coalesce("hopped.first_ms", first_ms, known_first).alias("since_ms"),
        sf.coalesce("hopped.first_ms", "first_ms", "again_ms").alias("made_ms"),
        sf.coalesce("hopped.last_ms", sf.greatest("last_ms", "again_ms")).alias("until_ms"),
        "again_ms",
        "again_wrote_ms",
    )


def _hopped_twice(places: DataFrame, roots: DataFrame) -> DataFrame:
    """Returns for each root the first record that hopped twice (`hopped`): its place, and the times of its first and last hop."""
    hops = places.where(has(facts.HOP)).select(sf.col("root").alias("place"), "origin", "appended_ms")
    steps = (
        hops.join(roots, "place", "left_semi")
        .groupBy("place", "origin")
        .agg(sf.min("appended_ms").alias("first_ms"), sf.max("appended_ms").alias("last_ms"), sf.count("*").alias("n"))
    )
    step = sf.struct("origin", "first_ms", "last_ms")
    return steps.where("n > 1").groupBy("place").agg(sf.min_by(step, "first_ms").alias("hopped"))


def _explained(doubled: DataFrame, table: DataFrame) -> DataFrame:
    """Returns for each record the takeover that explains it best (`nr`), all takeovers between its copies (`possible`), and whether there
    is one (`has_takeover`). `aside` says that `nr` is not between the copies, or not known. `perhaps_set_back` says that the takeover came
    too long after the first copy, or that the record was settled, and that its copy was perhaps written after that takeover had begun."""
    near = (sf.col("from_ms") <= sf.col("until_ms") + UNTOLD_MS) & (sf.col("to_ms") >= sf.col("since_ms") - REACH_MS)
    near &= sf.coalesce("again_wrote_ms", sf.lit(0)) <= sf.col("to_ms") + REACH_MS
    there = (sf.col("line") == sf.col("way")) | sf.col("any_way")
    after_ms, before_ms = sf.col("from_ms") - sf.col("until_ms"), sf.col("since_ms") - sf.col("from_ms")
    between = after_ms <= REACH_MS
    apart_ms = sf.greatest(after_ms, before_ms, sf.lit(0))
    in_turn = sf.when(sf.col("again_ms").isNotNull(), -sf.col("nr")).otherwise(sf.col("nr"))
    # Neither a hop nor a dead letter states when it was written.
    perhaps_set_back = sf.coalesce("again_wrote_ms", "again_ms") > sf.col("from_ms")
    perhaps_set_back |= sf.col("from_ms") - sf.col("made_ms") > UNCOMMITTED_MS + UNTOLD_MS
    kept = ("way", "extra", "copied", "first_copied_ms", "made_ms", "until_ms", "again_ms")
    return (
        doubled.join(sf.broadcast(table), near & there, "left")
        .withColumns({"between": between, "apart_ms": apart_ms})
        .groupBy("place")
        .agg(
            sf.min_by(
                sf.struct("nr", "apart_ms", perhaps_set_back.alias("perhaps_set_back")),
                sf.struct(~sf.col("between"), "apart_ms", in_turn),
            ).alias("nearest"),
            sf.sort_array(sf.collect_set(sf.when(sf.col("between"), sf.col("nr")))).alias("possible"),
            *(sf.first(name).alias(name) for name in kept),
        )
        .select(
            "*",
            "nearest.nr",
            "nearest.perhaps_set_back",
            (sf.col("nearest.nr").isNull() | (sf.col("nearest.apart_ms") > 0)).alias("aside"),
            (sf.size("possible") > 0).alias("has_takeover"),
        )
    )


def _judged(episodes: DataFrame, one_in: int) -> DataFrame:
    has_takeover, unknown, extra = sf.col("has_takeover"), sf.col("unknown"), sf.col("extra")
    too_long = ~has_takeover & (sf.col("lasted_ms") > REACH_MS)
    unexplained = sf.col("nr").isNull() & ~sf.col("perhaps_reported_later")
    most = MAX_REPEATED * (sf.col("takeovers") + sf.col("perhaps_another"))
    beyond = (
        sf.when(sf.col("exactly_once"), extra)
        .when(unknown, sf.col("copied"))
        .when(unexplained | too_long | (sf.col("records") > most), extra)
        .otherwise(sf.col("copied"))
    )
    left = extra - sf.col("beyond")
    set_back = ~unknown & ((sf.col("span_ms") > UNCOMMITTED_MS) | sf.col("perhaps_set_back"))
    untold = ~unknown & ~set_back & (~has_takeover | (sf.col("records") > MAX_REPEATED))
    perhaps_too_many = ~unknown & ~set_back & ~untold & (_in_all(one_in) > MAX_REPEATED)
    return episodes.withColumn("beyond", beyond).select(
        "way",
        "nr",
        "extra",
        "beyond",
        sf.when(unknown, left).otherwise(0).alias("unexplained"),
        sf.when(untold, left).otherwise(0).alias("untold"),
        sf.when(untold & sf.col("perhaps_reported_later"), left).otherwise(0).alias("told_later"),
        sf.when(set_back, left).otherwise(0).alias("set_back"),
        sf.when(perhaps_too_many, left).otherwise(0).alias("perhaps_too_many"),
    )


def _in_all(one_in: int) -> Column:
    """Returns how many records there may be in all if `records` of them are in the sample. If there were more, chance would leave so few in
    the sample only once in 700 times (three standard deviations of a Poisson distribution)."""
    seen = sf.col("records")
    return seen if one_in == 1 else one_in * (seen + 4.5 + 3 * sf.sqrt(seen + 2.25))


def _rank(event: Event) -> int | None:
    """Returns how well an event reports a takeover. When a rebalance moves a partition, the new worker begins at the committed offset.
    0: the event states when that began, and when all partitions were served. Above 0: the event counts if no better one reports the
    takeover. None: the event reports no takeover."""
    match event.kind, event.detail.get("change"):
        case ("rebalance", "assigned") | ("producers-replaced", _):
            return 0
        case ("assignment", _) if not event.detail.get("repeated"):
            return 1
        case ("rebalance", "caught-up"):
            return 2
        case _:
            return None


def _takeover(event: Event, topic_numbers: dict[str, int]) -> Takeover:
    return Takeover(
        lines=_lines(event.detail.get("places"), topic_numbers),
        from_ms=event.began_ms,
        # The worker caught up long after the takeover, which does not explain copies that came twice in between.
        to_ms=event.began_ms if event.detail.get("change") == "caught-up" else event.at_ms,
    )


def _lines(places: object, topic_numbers: dict[str, int]) -> frozenset[int]:
    return frozenset(
        (topic_numbers[topic] << PARTITION_BITS) + partition
        for topic, partition in parse_places(places)
        if topic in topic_numbers and partition <= MAX_PARTITION
    )
