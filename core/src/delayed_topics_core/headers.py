"""The names of the headers that this project defines, its own headers. Workers copy everything else in a record unchanged.

Own headers are ASCII, numbers are decimal, times are milliseconds since the epoch. `delayed_topics_engine` decides what a worker does with
them.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]
"""A name and a value, which may be null, as in the API of the Kafka client."""

PREFIX: Final = "dt-"
ID: Final = "dt-id"
ATTEMPT: Final = "dt-attempt"
GROUP: Final = "dt-group"
DELIVER_AT: Final = "dt-deliver-at"
DELAY_LEVEL: Final = "dt-delay-level"
TARGET: Final = "dt-target"
GENERATION: Final = "dt-generation"
CREATED_AT: Final = "dt-created-at"
DONE_AT: Final = "dt-done-at"
ROOT: Final = "dt-root"
ORIGIN: Final = "dt-origin"
DUE_AT: Final = "dt-due-at"
RELEASED: Final = "dt-released"
HOPS: Final = "dt-hops"
APPENDED_AT: Final = "dt-appended-at"
REASON: Final = "dt-reason"
ERROR: Final = "dt-error"

OWN_HEADERS: Final = frozenset(
    {
        *(ID, ATTEMPT, GROUP, DELIVER_AT, DELAY_LEVEL, TARGET, GENERATION, CREATED_AT, DONE_AT),
        *(ROOT, ORIGIN, DUE_AT, APPENDED_AT, RELEASED, HOPS, REASON, ERROR),
    }
)

MAX_NUMBER: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1
MAX_ID_BYTES: Final = 256
MAX_GROUP_BYTES: Final = 249


_TARGET: Final = re.compile(rb"(?P<topic>[a-zA-Z0-9._-]{1,249})(:(?P<partition>[0-9]{1,10}))?")


class Root(NamedTuple):
    """The place at which an attempt was first seen. Written as `f:<partition>:<offset>:<topic id>`, with `d` instead of `f` for one
    produced directly to a partition of the delays topic."""

    topic_letter: str  # "f" front, "d" delays
    partition: int
    offset: int
    topic_id: str

    def encode(self) -> bytes:
        return f"{self.topic_letter}:{self.partition}:{self.offset}:{self.topic_id}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Root":
        """Raises ValueError, also for a root longer than MAX_ID_BYTES: the first copy of a record without an id has its root as id."""
        topic_letter, partition, offset, topic_id = value.decode("ascii").split(":")
        if (
            len(value) > MAX_ID_BYTES
            or topic_letter not in ("f", "d")
            or not (partition.isdigit() and offset.isdigit())
        ):
            raise ValueError(value)
        root = cls(topic_letter, int(partition), int(offset), topic_id)
        if root.partition > MAX_PARTITION or root.offset > MAX_NUMBER:
            raise ValueError(value)
        return root


class Target(NamedTuple):
    """The other ready topic that a record requests to be released to. Written as `<topic>` or `<topic>:<partition>`."""

    topic: str
    partition: int | None = None

    @classmethod
    def decode(cls, value: bytes) -> "Target":
        """Raises ValueError."""
        found = _TARGET.fullmatch(value)
        if found is None or int(found["partition"] or 0) > MAX_PARTITION:
            raise ValueError(value)
        return cls(found["topic"].decode(), None if found["partition"] is None else int(found["partition"]))


def foreign(headers: Iterable[Header]) -> list[Header]:
    """Returns the headers that this project does not define, in order and with duplicates."""
    return [header for header in headers if header[0] not in OWN_HEADERS]


def origin(topic_letter: str, partition: int, offset: int) -> bytes:
    """Returns `f|d|r:<partition>:<offset>`: the record of the front, delays or ready topic from which a copy was made."""
    return b"%c:%d:%d" % (ord(topic_letter), partition, offset)
