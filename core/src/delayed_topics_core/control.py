"""Values of a control topic: what somebody wants of a record, and what became of that.

The key is the record's `dt-id`; for a record that was produced without one it is its root, as `dt-id` of its copies says. The last value
of a key counts. A request is in force until it is withdrawn, by a record without a value, or until the control topic's retention is over:
one that comes before its record is honoured, and a retry of a cancelled record is cancelled as well.
"""

from enum import StrEnum


class Control(StrEnum):
    """Whoever cancels a record writes the first; workers write the others over it, under the same key."""

    CANCEL = "cancel"
    CANCELLED = "cancelled"
    TOO_LATE = "too-late"
    NOT_FOUND = "not-found"
    NOT_UNDERSTOOD = "not-understood"
    NO_ROOM = "no-room"

    @property
    def is_in_force(self) -> bool:
        """Whether no record of the id is released from now on. What came too late for one attempt holds for the next."""
        return self not in (Control.NOT_UNDERSTOOD, Control.NO_ROOM)
