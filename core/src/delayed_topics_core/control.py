"""Values of a control topic: requests to cancel or reschedule a record, and the outcomes of these requests.

The key is the record's `dt-id`. For a record that was produced without one, the key is its root, which is the `dt-id` of its copies. The
last value of a key counts. A request is in force until it is withdrawn by a record without a value, or until the control topic's retention
removes it. Workers therefore honour a request that comes before its record, and also cancel the retries of a cancelled record.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class ControlKind(StrEnum):
    """The first word of a value. Applications write one of the first two as a request; workers overwrite it with one of the others."""

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
    """A value of the control topic. `deliver_at_ms` is the due time that a request asks for, or that an answer to it names. None: the value
    has no due time."""

    kind: ControlKind
    deliver_at_ms: int | None = None

    @classmethod
    def decode(cls, value: bytes) -> "Control":
        """Parses `cancel`, `deliver-at 1767225600000`, or an answer to either. Raises ValueError."""
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
        """Whether the value applies to records of this id that are still to come out. A request that is too late for one attempt applies to
        the next."""
        return self.kind not in _NOT_IN_FORCE

    def answered(self, kind: ControlKind) -> "Control":
        """Returns the answer of this kind to the request."""
        return self._replace(kind=kind)
