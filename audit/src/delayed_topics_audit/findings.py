"""Counts the places of a window, and collects the findings in small tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delayed_topics_core.audit_table import PARTITION_BITS, TOPIC_LETTERS
from delayed_topics_core.audit_window import AuditWindow
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from delayed_topics_audit import blame, checks, repeats
from delayed_topics_audit.account import MAX_OFFENDERS, Counted, PartitionAccount
from delayed_topics_audit.blame import Cause
from delayed_topics_audit.flaws import FLAWS, UNKNOWN_DOUBLES
from delayed_topics_audit.lateness import percentiles
from delayed_topics_audit.promise import CLOCKS_MS
from delayed_topics_audit.repeats import Takeover
from delayed_topics_audit.session import table

Progress = Callable[[str], None]
Row = Mapping[str, Any]

TIMELINE_STEPS: Final = 120


@dataclass(frozen=True, kw_only=True)
class WorkerEvents:
    """What the workers reported in the events topic. `known` has the spans of time for which they did (see `repeats.reported_spans`).
    `read_ms` is when the events were read, by the clock of this machine. None: long after they happened. `newest_ms` is the time of the
    newest event, by the brokers' clocks. `unread`: they could not be read now."""

    causes: Sequence[Cause] = ()
    takeovers: Sequence[Takeover] = ()
    known: Sequence[tuple[int, int]] = ()
    read_ms: int | None = None
    newest_ms: int = 0
    unread: bool = False


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The counts, and small tables for the report (see `with_tables`), whose rows have the columns that `checks` gives them. `step_ms` is
    the step of the timeline, and `due_step_ms` that of the pending records."""

    counted: Counted
    lateness: Sequence[Row] = ()
    pending: Sequence[Row] = ()
    timeline: Sequence[Row] = ()
    chains: Sequence[Row] = ()
    causes: Sequence[Cause] = ()
    blamed: Mapping[int | None, int] = field(default_factory=dict)
    step_ms: int = checks.MINUTE_MS
    due_step_ms: int = checks.MINUTE_MS


def count(
    spark: SparkSession,
    places: DataFrame,
    window: AuditWindow,
    events: WorkerEvents,
    say: Progress,
    *,
    offsets_read: int,
    requests_unknown: str | None = None,
) -> Findings:
    """Counts the places of a window. `places` should be persisted, because it is read several times. For `offsets_read` and
    `requests_unknown`, see Counted."""
    partitions = [_partition(row.asDict()) for row in checks.accounts(places).collect()]
    say(f"{sum(p.produced for p in partitions):,} records accounted for")
    totals = checks.totals(places).collect()[0].asDict()
    say(", ".join(f"{totals[flaw]:,} {flaw}" for flaw in FLAWS if totals[flaw]) or "no record has a flaw")
    breaks = checks.disorder(places).persist(StorageLevel.MEMORY_AND_DISK)
    out_of_order = breaks.count()
    say(f"{out_of_order:,} out of order")
    repeated = _repeats(spark, places, window, events, seen_ms=totals["last_ms"] or 0) if totals["doubled"] else []
    lateness = _rows(checks.lateness(places))
    offenders = {flaw: _names(checks.offenders(places, flaw, window.targets)) for flaw in FLAWS if totals[flaw]}
    if out_of_order:
        offenders["out_of_order"] = _names(checks.disordered_names(breaks, window.targets))
    breaks.unpersist()
    flaws = {
        **{flaw: totals[flaw] for flaw in FLAWS},
        "doubled": totals["extra"],  # totals["doubled"] counts records, not copies
        "doubled_beyond_promise": sum(row["beyond"] for row in repeated),
        **{name: sum(row[name] for row in repeated) for name in UNKNOWN_DOUBLES},
        "out_of_order": out_of_order,
    }
    counted = Counted(
        topic=window.topic,
        one_in=window.sample_one_in,
        partitions=partitions,
        flaws=flaws,
        perhaps_forwarded=totals["perhaps_forwarded"],
        ended=totals["ended"],
        unread_roots=totals["unread_roots"],
        max_late_ms=totals["max_late_ms"],
        percentiles_ms=percentiles((row["bucket_ms"], row["count"]) for row in lateness),
        pending_since_ms=_pending_since_ms(places, totals) if window.carries else None,
        overdue_ms=max(0, window.frozen_at_ms - (totals["overdue_since_ms"] or window.frozen_at_ms)),
        offenders=offenders,
        offsets_read=offsets_read,
        ends_before_now=bool(window.to_offsets),
        requests_unknown=requests_unknown,
        known_later=any(row["told_later"] for row in repeated) or (events.unread and flaws["unexplained"] > 0),
        untimed=_untimed(places, window) if totals["untimed"] else {},
    )
    return Findings(
        counted=counted,
        lateness=lateness,
        causes=events.causes,
        step_ms=_step(totals["first_ms"], totals["last_ms"]),
        due_step_ms=_step(totals["first_due_ms"], totals["last_due_ms"]),
    )


def with_tables(spark: SparkSession, places: DataFrame, found: Findings) -> Findings:
    """Adds the tables that the report shows and that the verdict does not need."""
    # A sample has no whole chains, because each attempt has a root of its own.
    whole = checks.chains(places).groupBy("attempts", "end", "forks").count() if found.counted.one_in == 1 else None
    return replace(
        found,
        pending=_rows(checks.pending(places, step_ms=found.due_step_ms)),
        timeline=_rows(checks.timeline(places, step_ms=found.step_ms)),
        chains=_rows(whole) if whole is not None else (),
        blamed=_blamed(spark, places, found.causes) if found.counted.flaws["late"] else {},
    )


def _pending_since_ms(places: DataFrame, totals: Row) -> int | None:
    """Returns the earliest time at which the attempt of a pending record began, so that the next link reads the roots."""
    (roots,) = checks.pending_roots(places).collect()
    began_ms = [ms for ms in (totals["pending_since_ms"], roots.since_ms) if ms is not None]
    return min(began_ms, default=None)


def _untimed(places: DataFrame, window: AuditWindow) -> dict[str, int]:
    found = checks.untimed(places).orderBy("topic_number").collect()
    return {window.topics[row.topic_number]: row["count"] for row in found}


def _repeats(
    spark: SparkSession, places: DataFrame, window: AuditWindow, events: WorkerEvents, *, seen_ms: int
) -> list[Row]:
    """`seen_ms` is the time of the newest record. The clock of this machine may be ahead of the brokers'."""
    read_ms = events.read_ms
    if read_ms is not None:
        read_ms = max(min(read_ms, max(events.newest_ms, seen_ms)), read_ms - CLOCKS_MS)
    found = table(spark, repeats.rows(events.takeovers), repeats.TAKEOVERS)
    return _rows(
        repeats.repeats(
            places,
            found,
            known=events.known,
            read_ms=read_ms,
            exactly_once_from_ms=window.exactly_once_from_ms,
            one_in=window.sample_one_in,
        )
    )


def _blamed(spark: SparkSession, places: DataFrame, events: Sequence[Cause]) -> dict[int | None, int]:
    known = table(spark, blame.rows(events), blame.CAUSES)
    return {row.nr: row.records for row in blame.explained(places, known).collect()}


def _partition(row: Row) -> PartitionAccount:
    terms = {name: value for name, value in row.items() if name != "line"}
    return PartitionAccount(
        topic_letter=TOPIC_LETTERS[row["line"] >> PARTITION_BITS],
        partition=row["line"] % (1 << PARTITION_BITS),
        **terms,
    )


def _step(first_ms: int | None, last_ms: int | None) -> int:
    """Returns a step of whole seconds that divides the time between into about TIMELINE_STEPS steps, and at most twice as many."""
    span_ms = (last_ms or 0) - (first_ms or 0)
    return max(1, span_ms // TIMELINE_STEPS // 1000) * 1000


def _rows(small: DataFrame) -> list[Row]:
    return [row.asDict() for row in small.collect()]


def _names(offenders: DataFrame) -> list[str]:
    return [row.record for row in offenders.limit(MAX_OFFENDERS).collect()]
