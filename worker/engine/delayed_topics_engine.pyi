"""The relay's hot path, in Rust: what becomes of a record, the headers of its copy, and what may be committed.

Here it is given to property tests, tools and benchmarks. Times are milliseconds since the epoch, offsets and partitions Kafka's.
Header names are bytes, values bytes or null.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

__all__ = [
    "MAX_METADATA_CHARS",
    "MAX_SPAN",
    "Copy",
    "Pending",
    "Policy",
    "Record",
    "Wait",
    "Window",
    "committed_topic_id",
    "decide",
    "decode_metadata",
    "encode_metadata",
    "release",
    "take_turn",
    "too_large",
]

MAX_METADATA_CHARS: int
"""Metadata is not longer."""
MAX_SPAN: int
"""Offsets that metadata covers whatever is finished of them."""

_Header: TypeAlias = tuple[bytes, bytes | None]

@final
class Policy:
    """What routing needs of a layout record."""

    def __new__(
        cls,
        *,
        delay_seconds: Sequence[int],
        partition_delays: Sequence[int],
        retry_cap: int,
        ready_partitions: int,
    ) -> Policy:
        """`delay_seconds`: the delay list; `partition_delays`: in seconds, by partition of the delays topic.

        Raises ValueError if the list is empty or has a delay without a partition.
        """

@final
class Record:
    """A record as it was read."""

    def __new__(
        cls,
        *,
        delay_seconds: int | None,
        partition: int,
        offset: int,
        topic_id: str,
        appended_at_ms: int | None,
        key: bytes | None,
        headers: Sequence[_Header] | None,
    ) -> Record:
        """`delay_seconds`: what the partition of the delays topic stands for, None for one of the front topic.
        `appended_at_ms`: None if the topic has producers' times. `headers`: None if a name can't be read.
        """

@final
class Wait:
    """A record that is held until its turn, which may have come already."""

    root: bytes
    due_at_ms: int
    turn_at_ms: int
    ready_partition: int
    misrouted: bool

@final
class Copy:
    """What is produced for a record. `partition` of a dead letter: the root's, to be taken modulo those of the topic."""

    target: Literal["ready", "delays", "dead-letter"]
    partition: int
    root: bytes
    due_at_ms: int | None
    reason: str | None
    headers: list[_Header]

def decide(record: Record, policy: Policy, now_ms: int) -> Wait | Copy:
    """What becomes of a record that has just been read. `now_ms`: a lower bound of the broker's time."""

def take_turn(record: Record, wait: Wait, policy: Policy, now_ms: int) -> Wait | Copy:
    """What becomes of a record whose turn has come: it is released, hops on, or is held until it is due."""

def release(record: Record, wait: Wait, now_ms: int) -> Copy:
    """The copy in the ready topic. Raises ValueError if the record isn't due."""

def too_large(record: Record, *, value_bytes: int, foreign_headers: bool) -> Copy:
    """The dead letter of a record whose copy Kafka refused, with or without the headers that aren't ours."""

@final
class Pending:
    """Offsets that wait for their turn, those of equal turns in the order of offsets."""

    def __new__(cls) -> Pending: ...
    @property
    def next_turn_at_ms(self) -> int | None:
        """None: nothing waits."""

    def add(self, turn_at_ms: int, offset: int) -> None: ...
    def pop(self, now_ms: int) -> int | None:
        """The offset whose turn came first, if it has come."""

    def due_count(self, now_ms: int) -> int:
        """How many have had their turn by then."""

    def __len__(self) -> int: ...

@final
class Window:
    """Offsets of one partition between the committed one and the position."""

    def __new__(cls, start: int, finished: Sequence[int] = ...) -> Window:
        """`start`: the committed offset; `finished`: those above it that are already done."""

    @property
    def position(self) -> int:
        """The offset that comes next."""

    @property
    def span(self) -> int:
        """How many offsets lie between the one to commit and the position; at MAX_SPAN intake has to wait."""

    @property
    def lowest_unfinished(self) -> int:
        """The one to commit."""

    def take(self, offset: int) -> bool:
        """Take in an offset; False if it is finished already. Raises ValueError if it lies before the position."""

    def skip_to(self, offset: int) -> bool:
        """Kafka has no more records below `offset`; False if that is no news."""

    def renewed(self) -> Window:
        """One that begins at the lowest unfinished offset and knows what is finished above it."""

    def finish(self, offset: int) -> bool:
        """The copy is acknowledged. False: the offset was not held."""

    def is_finished(self, offset: int) -> bool: ...
    def commit_point(self, topic_id: str = "") -> tuple[int, str]:
        """Offset and metadata of a commit."""

def encode_metadata(committed: int, finished: Sequence[int], topic_id: str = "") -> str:
    """Metadata for a commit; what would not fit is left out, highest offsets first."""

def decode_metadata(committed: int, metadata: str) -> list[int]:
    """The finished offsets above `committed`, ascending. Raises ValueError for metadata that is neither empty nor ours."""

def committed_topic_id(metadata: str) -> str | None:
    """The id of the topic that a commit was made for; None if it doesn't say."""
