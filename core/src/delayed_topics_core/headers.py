"""The own headers of a record, by name. Everything else in a record passes unchanged.

Own headers are ASCII, numbers are decimal, times are milliseconds since the epoch. What a worker makes of them is decided by
`delayed_topics_engine`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]
"""As the Kafka client gives and takes it: name, value or null."""

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
    """Where a record was first seen. Written as `f:<partition>:<offset>:<topic id>`; `d` for a direct write into a delays partition."""

    topic_letter: str  # "f" front, "d" delays
    partition: int
    offset: int
    topic_id: str

    def encode(self) -> bytes:
        return f"{self.topic_letter}:{self.partition}:{self.offset}:{self.topic_id}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Root":
        """Raises ValueError. A first copy has its root as its id, so a root that is longer than ids are is none."""
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
    """Where a record asks to be released: another ready topic. Written as `<topic>` or `<topic>:<partition>`."""

    topic: str
    partition: int | None = None

    @classmethod
    def decode(cls, value: bytes) -> "Target":
        """Raises ValueError."""
        said = _TARGET.fullmatch(value)
        if said is None or int(said["partition"] or 0) > MAX_PARTITION:
            raise ValueError(value)
        return cls(said["topic"].decode(), None if said["partition"] is None else int(said["partition"]))


def foreign(headers: Iterable[Header]) -> list[Header]:
    """The headers that are not ours, in order, duplicates included."""
    return [header for header in headers if header[0] not in OWN_HEADERS]


def origin(topic_letter: str, partition: int, offset: int) -> bytes:
    """`f|d|r:<partition>:<offset>`: the record, in front, delays or ready, that a copy was made from."""
    return b"%c:%d:%d" % (ord(topic_letter), partition, offset)
