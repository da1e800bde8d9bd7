"""The requests of the control topic of a delayed topic: which are in force, for how long, and how they are answered."""

from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Final, NamedTuple

from delayed_topics_core.control import Control, ControlKind
from delayed_topics_kafka.control import ControlRead

MAX_ANSWERS: Final = 10_000
"""Answers of one delayed topic that wait to be written while no worker has its first front partition. Further answers are dropped."""
MAX_WITHDRAWN: Final = 1_000
"""Withdrawn requests that are remembered for one delayed topic, long enough for all its workers to read that they are withdrawn."""
MAX_AT_ONCE: Final = 1_000
"""Answers that are written at once, twice a second."""


class Request(NamedTuple):
    """What a control topic says about an id: the last request, the answer to it, and when the later of the two was appended, by the
    broker's clock."""

    control: Control
    answer: ControlKind | None
    at_ms: int


@dataclass
class Requests:
    """The requests of one delayed topic, by id. The oldest come first.

    `in_force`: requests that change what happens to records with their ids. `answers`: answers to write; None: a record without a value.
    `unanswered`: requests in force that have no answer yet, and when they were appended. `withdrawn`: requests that were withdrawn lately.
    Each worker of the topic has all requests, and the worker that has front partition 0 writes the answers.
    """

    in_force: dict[bytes, Request] = field(default_factory=dict)
    answers: dict[bytes, Control | None] = field(default_factory=dict)
    unanswered: dict[bytes, int] = field(default_factory=dict)
    withdrawn: dict[bytes, None] = field(default_factory=dict)

    def take(self, read: ControlRead, *, most: int, refused: ControlKind | None = None) -> bool:
        """Takes in a record of the control topic. Returns whether a request for its id is in force now. `most`: how many requests may be in
        force. `refused`: why a request has to be refused; None: it may be accepted."""
        self._settle(read.id)
        before = self.in_force.pop(read.id, None)
        has_room = before is not None or len(self.in_force) < most
        control = read.control
        if not read.is_understood:
            self._answer(read.id, Control(ControlKind.NOT_UNDERSTOOD))
        elif control is None:
            self._withdraw(read.id)
        elif control.is_request:
            self._take_request(read, control, before, has_room=has_room, refused=refused)
        elif read.id in self.withdrawn:
            self._answer(read.id, None)  # a worker that had not read the withdrawal has answered the former request
        elif before is not None and before.control.deliver_at_ms != control.deliver_at_ms:
            self.in_force[read.id] = before  # likewise, a worker has answered a request that this one replaced
            self._answer(read.id, before.control)
        elif control.is_in_force and has_room:
            asked = ControlKind.CANCEL if control.deliver_at_ms is None else ControlKind.DELIVER_AT
            self.in_force[read.id] = Request(control.answered(asked), control.kind, read.at_ms)
        return read.id in self.in_force

    def _take_request(
        self,
        read: ControlRead,
        control: Control,
        before: Request | None,
        *,
        has_room: bool,
        refused: ControlKind | None,
    ) -> None:
        self.withdrawn.pop(read.id, None)
        if refused is None and not has_room:
            refused = ControlKind.NO_ROOM
        if refused is not None:
            self._answer(read.id, control.answered(refused))
            return
        known = before.answer if before is not None and before.control == control else None
        known = None if known is ControlKind.NOT_FOUND else known
        self.in_force[read.id] = Request(control, known, read.at_ms)
        if known is None:
            self.unanswered[read.id] = read.at_ms
        else:
            self._answer(read.id, control.answered(known))

    def _withdraw(self, of_id: bytes) -> None:
        self.withdrawn[of_id] = None
        if len(self.withdrawn) > MAX_WITHDRAWN:
            del self.withdrawn[next(iter(self.withdrawn))]

    def _answer(self, of_id: bytes, answer: Control | None) -> None:
        if len(self.answers) < MAX_ANSWERS:
            self.answers[of_id] = answer

    def _settle(self, of_id: bytes) -> None:
        self.answers.pop(of_id, None)
        self.unanswered.pop(of_id, None)

    def take_answers(self, *, not_found_before_ms: int) -> list[tuple[bytes, Control | None]]:
        """Returns the answers to write next, and forgets them. A request from before `not_found_before_ms` that has no answer gets
        `NOT_FOUND`. None: a record without a value, because the request is withdrawn."""
        unanswered = takewhile(lambda of_id: self.unanswered[of_id] < not_found_before_ms, self.unanswered)
        not_found = ((of_id, self.in_force[of_id].control.answered(ControlKind.NOT_FOUND)) for of_id in unanswered)
        answers = list(islice(chain(self.answers.items(), not_found), MAX_AT_ONCE))
        for of_id, _ in answers:
            self._settle(of_id)
        return answers

    def expire(self, before_ms: int) -> list[bytes]:
        """Forgets the requests from before that time, and returns their ids."""
        over = list(takewhile(lambda of_id: self.in_force[of_id].at_ms < before_ms, self.in_force))
        for of_id in over:
            del self.in_force[of_id]
            self._settle(of_id)
        return over
