"""What became of a request to change a record, as a line for people, and as JSON for programs."""

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
"""Outcomes after which a record comes out, or has, as if nothing had been asked for."""

_SAID: Final[Mapping[ChangeOutcome, str]] = {
    ChangeOutcome.REQUESTED: "no answer yet. A worker writes it to {control} when a record of this id has its turn",
    ChangeOutcome.REPLACED: "it was withdrawn, or something else was asked for since",
    ChangeOutcome.CANCELLED: "the record is in {dead_letter}",
    ChangeOutcome.RESCHEDULED: "the record comes out then, or has",
    ChangeOutcome.TOO_LATE: "a record of this id was released before. The request stays in force for its retries",
    ChangeOutcome.TOO_DEEP: "the record came out when it was due before: its turn came no sooner",
    ChangeOutcome.NOT_FOUND: "no record of this id has come. The request stays in force",
    ChangeOutcome.NO_LADDER: "set spec.ladder of the DelayedTopic, then ask again",
    ChangeOutcome.TOO_FAR: "that is further ahead than spec.maxDelaySeconds of the DelayedTopic. Ask for an earlier time",
    ChangeOutcome.NOT_UNDERSTOOD: "somebody wrote another value to {control} under this key. Ask again",
    ChangeOutcome.NO_ROOM: "workers hold no more requests of {control}. Withdraw some, then ask again",
}
_WITHDRAWN: Final = "withdrawn"


def change_line(names: TopicNames, record_id: str, outcome: ChangeOutcome) -> str:
    said = _SAID[outcome].format(control=names.control, dead_letter=names.dead_letter)
    return f"{record_id} of {names.front}: {outcome}; {said}"


def withdrawn_line(names: TopicNames, record_id: str, *, as_json: bool) -> str:
    if as_json:
        return _as_json(names, record_id, _WITHDRAWN)
    return f"{record_id} of {names.front}: {_WITHDRAWN}; records of this id are released when they are due"


def change_as_json(names: TopicNames, record_id: str, outcome: ChangeOutcome) -> str:
    """One object."""
    return _as_json(names, record_id, outcome)


def _as_json(names: TopicNames, record_id: str, outcome: str) -> str:
    return json.dumps({"topic": names.front, "id": record_id, "outcome": outcome})
