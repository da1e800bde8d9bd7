"""What became of a request to cancel a record, as a line for people, and as JSON for programs."""

import json
from collections.abc import Mapping
from typing import Final

from delayed_topics_core.names import TopicNames

from delayed_topics.cancel import CancelOutcome

NOT_CANCELLED: Final = frozenset(
    {CancelOutcome.WITHDRAWN, CancelOutcome.TOO_LATE, CancelOutcome.NOT_UNDERSTOOD, CancelOutcome.NO_ROOM}
)
"""Outcomes of `cancel` after which a record comes out, or has."""

_SAID: Final[Mapping[CancelOutcome, str]] = {
    CancelOutcome.REQUESTED: "no answer yet. A worker writes it to {control} when a record of this id has its turn",
    CancelOutcome.WITHDRAWN: "records of this id are released",
    CancelOutcome.CANCELLED: "the record is in {dead_letter}",
    CancelOutcome.TOO_LATE: "a record of this id was released before. The request stays in force for its retries",
    CancelOutcome.NOT_FOUND: "no record of this id has come. The request stays in force",
    CancelOutcome.NOT_UNDERSTOOD: "somebody wrote another value to {control} under this key. Cancel it again",
    CancelOutcome.NO_ROOM: "workers hold no more requests of {control}. Withdraw some, then cancel it again",
}


def cancel_line(names: TopicNames, record_id: str, outcome: CancelOutcome) -> str:
    said = _SAID[outcome].format(control=names.control, dead_letter=names.dead_letter)
    return f"{record_id} of {names.front}: {outcome}; {said}"


def cancel_as_json(names: TopicNames, record_id: str, outcome: CancelOutcome) -> str:
    """One object."""
    return json.dumps({"topic": names.front, "id": record_id, "outcome": outcome})
