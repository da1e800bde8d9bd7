"""Why records were late: what the events topic has of the time between their due time and their release."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delayed_topics_core.events import Event
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit.flaws import flawed

CAUSES: Final = "nr: int, from_ms: long, to_ms: long"
STEP_MS: Final = 1000
REACH_MS: Final = 2000
"""An event is told after the fact, and the backlog that it made takes a while to go."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Something that happened. `what` is for people; times are the broker's, as the worker estimated them."""

    what: str
    from_ms: int
    to_ms: int


def causes(events: Iterable[Event], topic: str) -> list[Cause]:
    """Those of one delayed topic, oldest first; what one rebalance is to several workers is one cause. That partitions were assigned
    is told by the rebalance, too."""
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
    """Late records per cause (column `nr`; null: none is known): each counts for the first cause of its time."""
    late = (
        places.where(flawed("late"))
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
    """At its time: what is told again happened before, unless it goes on."""
    goes_on = bool(event.detail.get("raised")) or not event.detail.get("repeated")
    return event.kind != "assignment" and goes_on


def _cause(event: Event) -> Cause:
    what = f"alarm {event.detail.get('reason', '')}" if event.kind == "alarm" else event.kind.replace("-", " ")
    return Cause(what=what, from_ms=event.began_ms, to_ms=event.at_ms)
