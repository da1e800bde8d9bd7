"""What was asked for in the control topic of a delayed topic: what holds, for how long, and what is answered."""

from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Final, NamedTuple

from delayed_topics_core.control import Control, ControlKind
from delayed_topics_kafka.control import ControlRead

MOST_ANSWERS: Final = 10_000
"""That wait to be written for one delayed topic, while nobody has its first front partition. Further ones are not written."""
MOST_WITHDRAWN: Final = 1_000
"""That are remembered for one delayed topic, for the moment until all workers have read it."""
MOST_AT_ONCE: Final = 1_000
"""Answers that are written at a time, twice a second."""


class Request(NamedTuple):
    """What a control topic says of an id: the last request, what was answered to it, and since when that is, by the broker's clock."""

    control: Control
    answer: ControlKind | None
    at_ms: int


@dataclass
class Requests:
    """Of one delayed topic, by id.

    `in_force`: no record of these is released. `answers`: what is to be written. `unheard`: those in force that nobody has answered, and
    since when. `withdrawn`: those that were withdrawn lately. Every worker of the topic knows them, and whoever has front partition 0
    answers. The oldest come first.
    """

    in_force: dict[bytes, Request] = field(default_factory=dict)
    answers: dict[bytes, Control | None] = field(default_factory=dict)
    unheard: dict[bytes, int] = field(default_factory=dict)
    withdrawn: dict[bytes, None] = field(default_factory=dict)

    def take(self, read: ControlRead, *, most: int, refused: ControlKind | None = None) -> bool:
        """Whether it is in force from now on. `most`: so many may be. `refused`: why a request isn't, whatever it says."""
        self._hear(read.id)
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
            self._answer(read.id, None)  # a worker that had not read this has answered what was asked for before
        elif before is not None and before.control.deliver_at_ms != control.deliver_at_ms:
            self.in_force[read.id] = before  # the same, and something else was asked for since
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
            self.unheard[read.id] = read.at_ms
        else:
            self._answer(read.id, control.answered(known))

    def _withdraw(self, of_id: bytes) -> None:
        self.withdrawn[of_id] = None
        if len(self.withdrawn) > MOST_WITHDRAWN:
            del self.withdrawn[next(iter(self.withdrawn))]

    def _answer(self, of_id: bytes, answer: Control | None) -> None:
        if len(self.answers) < MOST_ANSWERS:
            self.answers[of_id] = answer

    def _hear(self, of_id: bytes) -> None:
        self.answers.pop(of_id, None)
        self.unheard.pop(of_id, None)

    def take_answers(self, *, not_found_before_ms: int) -> list[tuple[bytes, Control | None]]:
        """What is to be written next; `NOT_FOUND` to those of which nothing was heard since; None: it is withdrawn."""
        unheard = takewhile(lambda of_id: self.unheard[of_id] < not_found_before_ms, self.unheard)
        not_found = ((of_id, self.in_force[of_id].control.answered(ControlKind.NOT_FOUND)) for of_id in unheard)
        answers = list(islice(chain(self.answers.items(), not_found), MOST_AT_ONCE))
        for of_id, _ in answers:
            self._hear(of_id)
        return answers

    def expire(self, before_ms: int) -> list[bytes]:
        """The ids of those that are in force no longer."""
        over = list(takewhile(lambda of_id: self.in_force[of_id].at_ms < before_ms, self.in_force))
        for of_id in over:
            del self.in_force[of_id]
            self._hear(of_id)
        return over
