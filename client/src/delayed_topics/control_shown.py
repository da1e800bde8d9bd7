"""Formats the outcome of a request to change a record, as a line for people and as JSON for programs."""

import json
from collections.abc import Mapping
from typing import Final

from delayed_topics_core.names import TopicNames

from delayed_topics.control import ChangeOutcome

NOT_CHANGED: Final = frozenset(
    {
        ChangeOutcome.REPLACED,
        ChangeOutcome.TOO_LATE,
        ChangeOutcome.TOO_DEEP,
        ChangeOutcome.NO_LADDER,
        ChangeOutcome.TOO_FAR,
        ChangeOutcome.NOT_UNDERSTOOD,
        ChangeOutcome.NO_ROOM,
    }
)
"""Outcomes after which a record comes out, or has come out, as if there had been no request."""

_EXPLANATIONS: Final[Mapping[ChangeOutcome, str]] = {
    ChangeOutcome.REQUESTED: "No worker has answered yet. A worker answers in {control} when a record with this id has its turn",
    ChangeOutcome.REPLACED: "The request was withdrawn, or a later request has replaced it",
    ChangeOutcome.CANCELLED: "The record is in {dead_letter}",
    ChangeOutcome.RESCHEDULED: "The record has come out at that time, or waits for it",
    ChangeOutcome.TOO_LATE: "A record with this id was released before workers read the request. The request stays in force for retries",
    ChangeOutcome.TOO_DEEP: "The record came out at its former due time, because its turn came no sooner",
    ChangeOutcome.NOT_FOUND: "Workers have met no record with this id. The request stays in force",
    ChangeOutcome.NO_LADDER: "The DelayedTopic has no ladder. Set its spec.ladder, and send the request again",
    ChangeOutcome.TOO_FAR: "The time is further ahead than spec.maxDelaySeconds of the DelayedTopic allows. Request an earlier time",
    ChangeOutcome.NOT_UNDERSTOOD: "Somebody has written another value over the request in {control}. Send the request again",
    ChangeOutcome.NO_ROOM: "Workers accept no more requests in {control}. Withdraw some, and send the request again",
}
_WITHDRAWN: Final = "withdrawn"


def change_line(names: TopicNames, record_id: str, outcome: ChangeOutcome) -> str:
    explanation = _EXPLANATIONS[outcome].format(control=names.control, dead_letter=names.dead_letter)
    return f"{record_id} of {names.front}: {outcome}. {explanation}"


def withdrawn_line(names: TopicNames, record_id: str, *, as_json: bool) -> str:
    if as_json:
        return _as_json(names, record_id, _WITHDRAWN)
    return f"{record_id} of {names.front}: {_WITHDRAWN}. Records with this id are released when they are due"


def change_as_json(names: TopicNames, record_id: str, outcome: ChangeOutcome) -> str:
    """Returns one JSON object."""
    return _as_json(names, record_id, outcome)


def _as_json(names: TopicNames, record_id: str, outcome: str) -> str:
    return json.dumps({"topic": names.front, "id": record_id, "outcome": outcome})
