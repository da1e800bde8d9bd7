"""Explains why records were late, by the events that workers reported for the time between due time and release."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delayed_topics_core.events import Event
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit.flaws import has_flaw

CAUSES: Final = "nr: int, from_ms: long, to_ms: long"
STEP_MS: Final = 1000
REACH_MS: Final = 2000
"""How far an event may lie from a late record. Workers report events after the fact, and the backlog takes a while to clear."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Something that happened to a worker. `what` is a text for people. Times are the worker's estimate of the broker's time, in
    milliseconds."""

    what: str
    from_ms: int
    to_ms: int


def causes(events: Iterable[Event], topic: str) -> list[Cause]:
    """Returns the causes for one delayed topic, oldest first. Events of several workers about the same rebalance are one cause. Assignments
    are left out, because the events of the rebalance cover them."""
    found = [_cause(event) for event in events if event.topic == topic and _happened(event)]
    merged: list[Cause] = []
    for cause in sorted(found, key=lambda c: (c.what, c.from_ms)):
        last = merged[-1] if merged else None
        if last is not None and last.what == cause.what and cause.from_ms <= last.to_ms + REACH_MS:
            merged[-1] = Cause(what=last.what, from_ms=last.from_ms, to_ms=max(last.to_ms, cause.to_ms))
        else:
            merged.append(cause)
    return sorted(merged, key=lambda c: (c.from_ms, c.what))


def rows(found: Sequence[Cause]) -> list[dict[str, Any]]:
    return [{"nr": nr, "from_ms": cause.from_ms, "to_ms": cause.to_ms} for nr, cause in enumerate(found)]


def explained(places: DataFrame, table: DataFrame) -> DataFrame:
    """Returns the number of late records for each cause (column `nr`; null: none is known). A record counts for the first cause of its
    time."""
    late = (
        places.where(has_flaw("late"))
        .groupBy(_step("due_ms").alias("due_ms"), _step("first_ms").alias("out_ms"))
        .agg(sf.count("*").alias("records"))
    )
    in_time = (sf.col("from_ms") <= sf.col("out_ms") + STEP_MS) & (sf.col("to_ms") >= sf.col("due_ms") - REACH_MS)
    first = late.join(sf.broadcast(table), in_time, "left").groupBy("due_ms", "out_ms")
    return (
        first.agg(sf.min("nr").alias("nr"), sf.first("records").alias("records"))
        .groupBy("nr")
        .agg(sf.sum("records").alias("records"))
    )


def _step(column: str) -> Column:
    return sf.col(column) - sf.col(column) % STEP_MS


def _happened(event: Event) -> bool:
    """Whether the event happened at its time. A repeated event happened earlier, unless it is an alarm that is still raised."""
    is_current = bool(event.detail.get("raised")) or not event.detail.get("repeated")
    return event.kind != "assignment" and is_current


def _cause(event: Event) -> Cause:
    what = f"alarm {event.detail.get('reason', '')}" if event.kind == "alarm" else event.kind.replace("-", " ")
    return Cause(what=what, from_ms=event.began_ms, to_ms=event.at_ms)
