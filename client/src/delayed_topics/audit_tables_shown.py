"""Formats the way of a record in the tables of audits, as text for people and as JSON for programs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from delayed_topics_core.audit_table import FLAW_MEANINGS

from delayed_topics.audit_tables import AuditedWay, State, Statement, Step
from delayed_topics.moments import shown_moment
from delayed_topics.way_shown import STATES, after_due, shown, way_line

_STATES: Final[dict[State, str]] = {
    "Released": STATES["Released"],
    "DeadLettered": STATES["DeadLettered"],
    "Cancelled": STATES["Cancelled"],
    "Lost": "lost",
    "Hopped": "hopped, and no audit has seen what followed",
    "Foreign": "not a worker's record",
    "Rejected": "a dead letter that a consumer wrote",
    "Unknown": "in no account of these audits",
}


_NEWER: Final = "A newer version of this command knows what this flaw is."


def audited_lines(ways: Sequence[AuditedWay]) -> Iterator[str]:
    return (shown(line.encode("utf-8", "surrogatepass")) for line in _lines(ways))


def _lines(ways: Sequence[AuditedWay]) -> Iterator[str]:
    for way in ways:
        attempt = "not known" if way.attempt is None else way.attempt
        yield f"{way.steps[0].place}, attempt {attempt}: {_state(way)}"
        for step in way.steps:
            yield way_line(step.at_ms, step.what, step.place, "; ".join(_details(step)))
        for statement in way.statements:
            yield f"  {_audit(statement)}"
            for place, flaws in statement.flaws.items():
                yield from (f"    {place} {flaw}: {FLAW_MEANINGS.get(flaw, _NEWER)}" for flaw in flaws)
        if way.others:
            yield f"  other attempts: {', '.join(way.others)}"


def audited_as_json(ways: Sequence[AuditedWay], topic: str) -> str:
    """Returns one JSON object. Times are milliseconds since the epoch."""
    return json.dumps({"topic": topic, "attempts": [asdict(way) for way in ways]}, indent=2)


def _state(way: AuditedWay) -> str:
    if way.state != "Pending":
        return _STATES[way.state]
    seen = f"pending at {shown_moment(way.statements[-1].frozen_at_ms)}"
    return seen if way.due_at_ms is None else f"{seen}, due {shown_moment(way.due_at_ms)}"


def _details(step: Step) -> Iterator[str]:
    if step.due_at_ms is not None:
        yield f"due {shown_moment(step.due_at_ms)}"
    if step.late_ms is not None:
        yield after_due(step.late_ms)
    if step.reason is not None:
        yield step.reason


def _audit(statement: Statement) -> str:
    verdict = f", {statement.verdict}" if statement.verdict else ""
    fates = [f"{place} {fate}" for place, fate in statement.fates.items()]
    accounted = "; ".join(fates) if fates else "settled by an audit before"
    return f"audit {statement.audit} of {shown_moment(statement.frozen_at_ms)}{verdict}: {accounted}"
