"""Formats the way of a record, as text for people and as JSON for programs."""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from delayed_topics_core.headers import ATTEMPT, DELAY_LEVEL, DELIVER_AT, DUE_AT, ERROR, GROUP, ID, REASON, ROOT
from delayed_topics_core.names import TopicNames

from delayed_topics.moments import shown_moment
from delayed_topics.record import number_in
from delayed_topics.scan import Found
from delayed_topics.way import Way

STATES: Final = {
    "Released": "released",
    "DeadLettered": "a dead letter",
    "Cancelled": "a dead letter, because it was cancelled",
    "Missing": "its offset is committed, but it has no copy. Either retention removed its copies, or it is lost. Run an audit to find out",
}


def lines(ways: Sequence[Way], names: TopicNames, *, now_ms: int, show_value: bool) -> Iterator[str]:
    for way in ways:
        first = way.records[0]
        yield f"{first}, attempt {_attempt(way)}, dt-id {_id(way)}: {_state(way, now_ms)}"
        for record in way.records:
            what = _what(record, names)
            details = "; ".join(_details(record, what, comes_in=record is first))
            yield way_line(record.at_ms, what, str(record), details)
            if show_value:
                yield f"    key {shown(record.key)}  value {shown(record.value)}"


def way_line(at_ms: int | None, what: str, place: str, details: str) -> str:
    """Returns the line for one step of a way. `at_ms` is None if the time is unknown."""
    at = "-" if at_ms is None else shown_moment(at_ms)
    return f"  {at:<24}  {what:<13} {place}{'  ' if details else ''}{details}"


def after_due(late_ms: int) -> str:
    return f"{late_ms} ms after its due time" if late_ms >= 0 else f"{-late_ms} ms before its due time"


def as_json(ways: Sequence[Way], names: TopicNames, *, show_value: bool) -> str:
    """Returns one JSON object. Times are milliseconds since the epoch. Keys and values are base64, and null where the record has none."""
    attempts = [
        {
            "attempt": _attempt(way),
            "id": _id(way),
            "state": way.state,
            "due_at_ms": way.due_at_ms,
            "records": [
                {"what": _what(found, names), **record_as_dict(found, show_value=show_value)} for found in way.records
            ],
        }
        for way in ways
    ]
    return json.dumps({"topic": names.front, "attempts": attempts}, indent=2)


def record_as_dict(found: Found, *, show_value: bool) -> dict[str, Any]:
    """Returns a record for `as_json`."""
    content = {"key_base64": _base64(found.key), "value_base64": _base64(found.value)} if show_value else {}
    return {
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "appended_at_ms": found.at_ms,
        "headers": {name: shown(value) for name, value in sorted(found.own.items())},
        **content,
    }


def shown(content: bytes | None) -> str:
    """Returns the content as text without control sequences for the terminal, because the writer of a record may not be trusted."""
    if content is None:
        return "null"
    text = content.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _what(record: Found, names: TopicNames) -> str:
    if record.topic == names.delays:
        return "hopped" if ROOT in record.own else "came in"
    return {names.front: "came in", names.dead_letter: "dead-lettered"}.get(record.topic, "released")


def _state(way: Way, now_ms: int) -> str:
    if way.due_at_ms is None:
        return STATES[way.state]
    at = shown_moment(way.due_at_ms)
    return f"pending until {at}" if way.due_at_ms > now_ms else f"pending, and due since {at}"


def _details(record: Found, what: str, *, comes_in: bool) -> Iterator[str]:
    """Yields what the record's own headers add to its line."""
    own, due_at_ms = record.own, number_in(record.own.get(DUE_AT))
    if what == "hopped" and due_at_ms is not None:
        yield f"due {shown_moment(due_at_ms)}"
    if what == "released" and due_at_ms is not None:
        yield after_due(record.at_ms - due_at_ms)
    if what == "came in" and DELAY_LEVEL in own:
        yield f"delay level {shown(own[DELAY_LEVEL])}"
    if what == "came in" and (deliver_at_ms := number_in(own.get(DELIVER_AT))) is not None:
        yield f"to be delivered at {shown_moment(deliver_at_ms)}"
    if comes_in and GROUP in own:
        yield f"retry of group {shown(own[GROUP])}"
    if what == "dead-lettered" and REASON in own:
        yield shown(own[REASON])
    if (what == "dead-lettered" or comes_in) and ERROR in own:
        yield shown(own[ERROR])


def _attempt(way: Way) -> int:
    """Returns the attempt as a worker has counted it, which may be higher than that of the record which came in."""
    attempts = [number_in(record.own.get(ATTEMPT)) for record in reversed(way.records)]
    return next((attempt for attempt in attempts if attempt is not None), 0)


def _id(way: Way) -> str:
    return next((shown(record.own[ID]) for record in reversed(way.records) if ID in record.own), "-")


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
