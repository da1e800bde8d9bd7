"""The engine of a worker, in Rust, and its parts: decisions, headers of copies, windows and commit metadata.

The parts are for tests, tools and benchmarks. Times are milliseconds since the epoch. Header names are bytes, values bytes or None.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

__all__ = [
    "DURATION_BOUNDS_MS",
    "MAX_METADATA_CHARS",
    "MAX_SPAN",
    "Copy",
    "Engine",
    "Histogram",
    "Pending",
    "Policy",
    "Record",
    "Seen",
    "State",
    "Tally",
    "Wait",
    "Window",
    "broker_time_ms",
    "committed_topic_id",
    "decide",
    "decode_metadata",
    "encode_metadata",
    "take_turn",
    "too_large",
]

DURATION_BOUNDS_MS: list[int]
"""Upper bounds of the buckets of a `Histogram`, in milliseconds."""
MAX_METADATA_CHARS: int
"""The maximum length of commit metadata."""
MAX_SPAN: int
"""The number of offsets that metadata can always cover, whichever of them are finished."""
_Header: TypeAlias = tuple[bytes, bytes | None]
_Place: TypeAlias = tuple[str, int]
"""A Kafka topic and a partition of it."""
_Fault: TypeAlias = tuple[int, str, str]
"""The code of an error, its name, and a message for people. Codes below 0 are librdkafka's, others Kafka's."""
_Properties: TypeAlias = Sequence[tuple[str, str]]
"""Names and values of librdkafka's properties."""

@final
class Histogram:
    """Counts durations by their length."""

    @property
    def counts(self) -> list[int]:
        """Counts by bucket of DURATION_BOUNDS_MS. The last one counts durations above all bounds."""
    @property
    def sum_ms(self) -> int: ...

@final
class Seen:
    """The current state of a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def state(
        self,
    ) -> Literal["unplaced", "undecided", "placed", "serving", "unreadable", "settling", "standing", "leaving"]: ...
    @property
    def held_back(self) -> bool:
        """Whether reading is paused, because too much is held."""
    @property
    def read_error(self) -> str | None:
        """Why the next record could not be read."""
    @property
    def out_of_reach(self) -> bool:
        """Whether the partition has had no leader in two statistics in a row, or one to which the client was not connected. False
        while the client is connected to no broker."""
    @property
    def commit_error(self) -> str | None:
        """Why Kafka has refused the commits of this partition, but not those of others, for ten seconds."""
    @property
    def position(self) -> int:
        """The offset that comes next."""
    @property
    def lowest_unfinished(self) -> int:
        """The offset that would be committed."""
    @property
    def end(self) -> int:
        """The end of the partition as of the last fetch; negative if it is not known."""
    @property
    def waiting(self) -> int:
        """The number of held records."""
    @property
    def due(self) -> int:
        """The number of held records that are due, and of copies that are not acknowledged or whose transaction is not committed."""
    @property
    def ahead_ms(self) -> int:
        """By how much the append time of the next record is ahead of the broker's time; 0 if it is not ahead."""
    @property
    def unacknowledged(self) -> tuple[bool, bool, bool, bool]:
        """Whether copies are not acknowledged, by target: the ready, delays and dead-letter topics, and other ready topics."""
    @property
    def stuck_seconds(self) -> float:
        """How long no copy has come back although some are not acknowledged."""
    @property
    def delayed(self) -> int:
        """The number of released records that were due before the partition was served after its assignment; final once `caught_up`."""
    @property
    def caught_up(self) -> bool: ...

@final
class State:
    """The state that concerns all partitions."""

    @property
    def may_send(self) -> bool:
        """Whether copies may be sent: the last commit was accepted within the last second, or a transaction is open."""
    @property
    def problem(self) -> str | None:
        """Why the last commit or transaction failed."""
    @property
    def refused(self) -> str | None:
        """What Kafka refuses to this worker, permanently as far as is known."""
    @property
    def commits(self) -> Histogram:
        """How long commits of offsets or of transactions took until Kafka accepted them."""

    @property
    def failed_commits(self) -> int: ...
    @property
    def held_bytes(self) -> int:
        """Memory of the held records, in bytes."""
    @property
    def time_known(self) -> bool:
        """Whether the broker's time is known."""
    @property
    def clock_problem(self) -> _Fault | None:
        """Why the last clock probe failed."""
    @property
    def now_ms(self) -> int | None:
        """An estimate of the broker's time, for display only."""

@final
class Tally:
    """Counts for a delayed topic since the engine began. `acknowledged` counts the copies that Kafka has acknowledged or, in transactions,
    committed. `waited_for_target` counts how often a due record had to wait for its topic. `dead_lettered` counts by reason. `lateness` has
    the time from the due time of a release to its sending."""

    @property
    def taken_in(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def released(self) -> int: ...
    @property
    def hopped(self) -> int: ...
    @property
    def misrouted(self) -> int: ...
    @property
    def waited_for_target(self) -> int: ...
    @property
    def dead_lettered(self) -> dict[str, int]: ...
    @property
    def lateness(self) -> Histogram: ...

@final
class Engine:
    """The consumer, the producers of copies, and every record between them.

    The engine runs in a thread of its own, which never takes the interpreter's lock, until the object is garbage-collected. It reads an
    assigned partition from `begin` on. `wait` reports Kafka's errors. Any method raises RuntimeError if the engine has ended because of
    an internal error.
    """

    def __new__(
        cls,
        *,
        library: str,
        producer: _Properties,
        clock: _Properties,
        clock_topic: str,
        window_bytes: int,
        commit_interval_ms: int,
        renew_seconds: int,
        exactly_once: bool,
    ) -> Engine:
        """`library` is the path of librdkafka. `producer` has no compression, and a `transactional.id` if `exactly_once`. `clock` is for
        the producer of probes to `clock_topic`. `window_bytes` bounds the memory of held records. `commit_interval_ms` is the time between
        commits, and `renew_seconds` is how often unchanged offsets are committed again. Raises RuntimeError for an unsuitable library, and
        OSError if the system has no descriptor left.
        """

    def add_topic(self, front: str, delays: str, ready: str, dead_letter: str) -> None:
        """Add a delayed topic. Other calls name it by its number, which counts from 0 in the order of these calls."""

    def serve(
        self,
        number: int,
        policy: Policy | None,
        *,
        paused: bool,
        skew_ms: int,
        compression: str,
        replicated: bool | None,
        dead_letter_partitions: int,
        has_control_topic: bool,
    ) -> None:
        """Set what the registry says about a delayed topic, which is not served if `policy` is None. `skew_ms` is by how much brokers'
        clocks may differ. `replicated`: whether its topics have replicas; None: not known yet. `dead_letter_partitions` is 0
        while that topic is missing. Without a control topic, no request is followed."""

    def want(self, number: int, changes: Sequence[tuple[bytes, int | None]]) -> list[bool]:
        """Make records with these ids due at these times, or cancel them (None). Returns for each id whether one was released lately."""
    def withdraw(self, number: int, ids: Sequence[bytes] | None) -> None:
        """Drop the requests for these ids. With None, drop all requests, and forget which records were released."""

    def subscribe(self, topics: Sequence[str], consumer: _Properties, *, grown: Sequence[str]) -> None:
        """Join the group, or read other topics, or more partitions of the topics in `grown`. Raises ValueError for invalid properties."""

    def assign(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Take over the partitions of an `Assigned` at these offsets, which are -1 where the offset is not known yet."""

    def begin(
        self,
        topic: str,
        partition: int,
        *,
        topic_id: str,
        delay_seconds: int | None,
        offset: int,
        metadata: str,
        commit: bool,
        stands: bool = False,
    ) -> None:
        """Read a partition from its committed offset; ignored before `assign`. `delay_seconds` is None for a front partition. `commit`:
        commit even if no record comes. `stands`: stop it from the beginning. Raises ValueError if the metadata cannot be decoded."""

    def stop(self, topic: str, partition: int) -> None:
        """Send nothing more from the partition, and stop it when the results of its copies in flight are known."""
    def go_on(self, topic: str, partition: int) -> None:
        """Serve the partition again, from its lowest unfinished offset."""
    def forget(self, topic: str, partition: int) -> None:
        """Neither commit nor serve the partition until it begins again."""
    def wait(self, longest_seconds: float) -> list[tuple[Any, ...]]:
        """Wait up to `longest_seconds` for events, and return those since the last call, see delayed_topics_worker.engine_events."""
    @property
    def still_seconds(self) -> float:
        """The time since the end of the last turn, which is less than a second if all is well."""
    def look(self) -> list[Seen]:
        """Return the state of each assigned partition."""
    def state(self) -> State: ...
    def tallies(self, numbers: Sequence[int]) -> list[Tally]: ...
    def is_finished(self, topic: str, partition: int, offset: int) -> bool | None:
        """Return whether an offset is finished, so that a restart would not repeat it; None if the partition is not assigned."""

    def committed(self, places: Sequence[_Place], timeout_ms: int) -> list[tuple[str, int, int, str]]:
        """Return the committed offset (-1001 if there is none) and metadata of each partition that the coordinator reports in time."""

    def leave(self, for_good: bool) -> None:
        """Begin to leave the group in an orderly way, until `left`. A static member keeps its partitions unless `for_good`."""

    @property
    def left(self) -> bool: ...
    def leave_at_once(self) -> None:
        """Give up the consumer, and with it all partitions as lost."""

@final
class Policy:
    """What routing needs of the layout record of a delayed topic."""

    def __new__(
        cls,
        *,
        delay_seconds: Sequence[int],
        ladder_seconds: Sequence[int],
        partition_delays: Sequence[int],
        retry_cap: int,
        ready_partitions: int,
        max_delay_seconds: int,
        targets: Sequence[tuple[str, int | None]],
        outage_budget_seconds: int,
    ) -> Policy:
        """The fields are those of a `LayoutRecord`. `targets` has the other ready topics with their number of partitions: 0 if the topic is
        missing, None if no one has checked yet. Raises ValueError if the delay list is empty, or a delay has no partition."""

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
        """`delay_seconds` is the delay of the record's partition of the delays topic, or None for a record of the front topic.
        `appended_at_ms` is None if the topic has producers' timestamps. `headers` is None if the headers cannot be read.
        """

@final
class Wait:
    """A record that is held until its turn, which may have come already."""

    root: bytes
    due_at_ms: int
    turn_at_ms: int
    misrouted: bool

@final
class Copy:
    """The copy of a record. For a dead letter, `partition` is that of the root, to be taken modulo the partitions of the topic."""

    target: str
    """"ready", "delays", "dead-letter", or the name of another ready topic."""
    partition: int
    root: bytes
    due_at_ms: int | None
    reason: str | None
    headers: list[_Header]

def decide(record: Record, policy: Policy, now_ms: int) -> Wait | Copy:
    """Decide what happens to a record that has just been read. `now_ms` is a lower bound of the broker's time."""

def take_turn(record: Record, wait: Wait, policy: Policy, now_ms: int) -> Wait | Copy:
    """Decide what happens to a record whose turn has come: it is released, hops again, is held longer, or becomes a dead letter."""

def too_large(record: Record, *, value_bytes: int, foreign_headers: bool) -> Copy:
    """Return the dead letter of a record whose copy Kafka refused as too large, with or without its foreign headers."""

@final
class Pending:
    """Offsets that wait for their turn. Those with equal turns are in the order of the offsets."""

    def __new__(cls) -> Pending: ...
    @property
    def next_turn_at_ms(self) -> int | None:
        """When the earliest turn comes; None if nothing waits."""

    def add(self, turn_at_ms: int, offset: int) -> None: ...
    def pop(self, now_ms: int) -> int | None:
        """Remove and return the offset with the earliest turn, if that turn has come."""

    def due_count(self, now_ms: int) -> int:
        """Return the number of offsets whose turn has come by `now_ms`."""

    def __len__(self) -> int: ...

@final
class Window:
    """The offsets of one partition between the committed offset and the position."""

    def __new__(cls, start: int, finished: Sequence[int] = ...) -> Window:
        """`start` is the committed offset, and `finished` has the finished offsets above it."""

    @property
    def position(self) -> int:
        """The offset that comes next."""

    @property
    def span(self) -> int:
        """The number of offsets between the offset to commit and the position. At MAX_SPAN, intake has to pause."""

    @property
    def lowest_unfinished(self) -> int:
        """The offset to commit."""

    def take(self, offset: int) -> bool:
        """Take in an offset. Returns False if it is finished already. Raises ValueError if it is below the position."""

    def skip_to(self, offset: int) -> bool:
        """Move the position to `offset`, below which Kafka has no more records. Returns False if the position is not below it."""

    def renewed(self) -> Window:
        """Return a window that begins at the lowest unfinished offset, with the same finished offsets above it."""

    def finish(self, offset: int) -> bool:
        """Mark an offset as finished, because its copy is acknowledged. Returns False if the offset was not held."""

    def is_finished(self, offset: int) -> bool: ...
    def commit_point(self, topic_id: str = "") -> tuple[int, str]:
        """Return the offset and the metadata to commit."""

def encode_metadata(committed: int, finished: Sequence[int], topic_id: str = "") -> str:
    """Return the metadata of a commit. If the finished offsets do not fit, the highest ones are left out."""

def decode_metadata(committed: int, metadata: str) -> list[int]:
    """Return the finished offsets above `committed`, in ascending order. Raises ValueError if the metadata cannot be decoded."""

def committed_topic_id(metadata: str) -> str | None:
    """Return the id of the topic that a commit was made for; None if the metadata has none."""

def broker_time_ms(probes: Sequence[tuple[int, int, int]], now_ns: int) -> int | None:
    """Return a lower bound of the broker's time; None if the last probe is older than a second. A probe has three times: when it was sent
    and when its acknowledgement was seen, in nanoseconds of this machine, and when the broker appended it, in milliseconds."""
