"""Values of a control topic: what somebody wants of a record, and what became of that.

The key is the record's `dt-id`; for a record that was produced without one it is its root, as `dt-id` of its copies says. The last value
of a key counts. A request is in force until it is withdrawn, by a record without a value, or until the control topic's retention is over:
one that comes before its record is honoured, and a retry of a cancelled record is cancelled as well.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class ControlKind(StrEnum):
    """The first word of a value. Whoever changes a record writes one of the first two; workers write the others over it."""

    CANCEL = "cancel"
    DELIVER_AT = "deliver-at"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    TOO_LATE = "too-late"
    TOO_DEEP = "too-deep"
    NOT_FOUND = "not-found"
    NO_LADDER = "no-ladder"
    TOO_FAR = "too-far"
    NOT_UNDERSTOOD = "not-understood"
    NO_ROOM = "no-room"


_REQUESTS: Final = (ControlKind.CANCEL, ControlKind.DELIVER_AT)
_NOT_IN_FORCE: Final = (ControlKind.NO_LADDER, ControlKind.TOO_FAR, ControlKind.NOT_UNDERSTOOD, ControlKind.NO_ROOM)
_OF_CANCELLING: Final = (ControlKind.CANCEL, ControlKind.CANCELLED)
_OF_TIMES: Final = (ControlKind.DELIVER_AT, ControlKind.RESCHEDULED, ControlKind.TOO_DEEP)
_MAX_DIGITS: Final = 15


class Control(NamedTuple):
    """`deliver_at_ms`: of a request for another due time, and of answers to it; None: it is about cancelling."""

    kind: ControlKind
    deliver_at_ms: int | None = None

    @classmethod
    def decode(cls, value: bytes) -> "Control":
        """`cancel`, or `deliver-at 1767225600000`, or an answer to either. Raises ValueError."""
        word, space, number = value.decode("ascii").partition(" ")
        kind = ControlKind(word)
        if not space and kind not in _OF_TIMES:
            return cls(kind)
        if kind in _OF_CANCELLING or not number.isdigit() or len(number) > _MAX_DIGITS:
            raise ValueError(f"{number!r} is not a time in milliseconds since the epoch")
        return cls(kind, int(number))

    def encode(self) -> bytes:
        return (self.kind if self.deliver_at_ms is None else f"{self.kind} {self.deliver_at_ms}").encode()

    @property
    def is_request(self) -> bool:
        return self.kind in _REQUESTS

    @property
    def is_in_force(self) -> bool:
        """Whether it holds for records of the id that are still to come out. What came too late for one attempt holds for the next."""
        return self.kind not in _NOT_IN_FORCE

    def answered(self, kind: ControlKind) -> "Control":
        """The answer to this request."""
        return self._replace(kind=kind)
