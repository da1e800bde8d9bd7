"""The relay's hot path, in Rust: `Engine`, and by themselves its decisions, the headers of copies, and what may be committed.

The latter are for tests, tools and benchmarks. Times are milliseconds since the epoch. Header names are bytes, values bytes or null.
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
"""Upper bounds of the buckets of a `Histogram`."""
MAX_METADATA_CHARS: int
"""Metadata is not longer."""
MAX_SPAN: int
"""Offsets that metadata covers whatever is finished of them."""
_Header: TypeAlias = tuple[bytes, bytes | None]
_Place: TypeAlias = tuple[str, int]
"""Kafka topic and partition."""
_Fault: TypeAlias = tuple[int, str, str]
"""Kafka's code of an error, its name, and a text for people; codes below 0 are librdkafka's."""
_Properties: TypeAlias = Sequence[tuple[str, str]]
"""librdkafka's."""

@final
class Histogram:
    """Durations, counted by how long they are."""

    @property
    def counts(self) -> list[int]:
        """By bucket of DURATION_BOUNDS_MS; the last is for what is above all bounds."""
    @property
    def sum_ms(self) -> int: ...

@final
class Seen:
    """A partition as it is now."""

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
        """Nothing more is read, since too much is held."""
    @property
    def read_error(self) -> str | None:
        """Why what comes next could not be read."""
    @property
    def position(self) -> int:
        """The offset that comes next."""

    @property
    def lowest_unfinished(self) -> int:
        """The offset that would be committed."""

    @property
    def end(self) -> int:
        """Where the partition ended when something was fetched last; negative while that isn't known."""

    @property
    def waiting(self) -> int:
        """Records that are held."""
    @property
    def due(self) -> int:
        """Those of them that are due, and copies that are not acknowledged, or in a transaction that is not committed."""

    @property
    def ahead_ms(self) -> int:
        """By how much the append time of the record that comes next is ahead of the broker's time; 0: it isn't."""

    @property
    def unacknowledged(self) -> tuple[bool, bool, bool, bool]:
        """Whether there are such copies, to the ready, delays and dead-letter topic, and to other ready topics."""

    @property
    def stuck_seconds(self) -> float:
        """For how long none of them has come back."""

    @property
    def delayed(self) -> int:
        """Records that were due before it was served after its assignment and have come out; none follow once it has `caught_up`."""
    @property
    def caught_up(self) -> bool: ...

@final
class State:
    """What concerns all partitions."""

    @property
    def may_send(self) -> bool:
        """The last commit was accepted within the last second, or a transaction is open."""

    @property
    def problem(self) -> str | None:
        """Why the last commit or transaction failed."""

    @property
    def refused(self) -> str | None:
        """What Kafka refuses to this worker for good, as far as anybody can know."""

    @property
    def commits(self) -> Histogram:
        """From sending offsets, or from ending a transaction, until Kafka has accepted it."""

    @property
    def failed_commits(self) -> int: ...
    @property
    def held_bytes(self) -> int:
        """Memory that held records count for."""
    @property
    def time_known(self) -> bool:
        """The broker's."""

    @property
    def clock_problem(self) -> _Fault | None:
        """Why the last probe of it failed."""

    @property
    def now_ms(self) -> int | None:
        """An estimate of it, for showing."""

@final
class Tally:
    """Done for a delayed topic since the engine began. `waited_for_target`: how often a due record waited on for its topic.
    `dead_lettered`: by reason. `lateness`: of releases, from the due time to the sending."""

    @property
    def taken_in(self) -> int: ...
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
    """One consumer, the producers of copies, and every record between them.

    It runs in a thread of its own, which never takes the interpreter's lock, until it is collected. A partition that was
    assigned is read from `begin` on. Errors of Kafka come as happenings. Any method raises RuntimeError when the engine has ended by a
    fault of its own.
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
        """`library`: the path of librdkafka. `producer`: without a compression, and with a `transactional.id` if `exactly_once`.
        `clock`: of the producer of probes to `clock_topic`. `window_bytes`: memory for records that are held. `commit_interval_ms`:
        how long copies go uncommitted. `renew_seconds`: how long partitions do, if nothing is new. Raises RuntimeError for a library that
        isn't the one that is needed, OSError if the system gives no descriptor.
        """

    def add_topic(self, front: str, delays: str, ready: str, dead_letter: str) -> None:
        """One more delayed topic. Other calls name it by its number, from 0 in this order."""

    def serve(
        self,
        number: int,
        policy: Policy | None,
        *,
        paused: bool,
        skew_ms: int,
        compression: str,
        dead_letter_partitions: int,
        has_control_topic: bool,
    ) -> None:
        """What the registry says of a delayed topic; None: nothing of it is served. `skew_ms`: by how much brokers' clocks may
        differ. `dead_letter_partitions`: 0 while the topic is missing. Without a control topic no id is cancelled."""

    def want(self, number: int, changes: Sequence[tuple[bytes, int | None]]) -> list[bool]:
        """From now on records of these ids are due at these times; None: they are not released. True: one was, lately."""
    def withdraw(self, number: int, ids: Sequence[bytes] | None) -> None:
        """Nothing is wanted of records of these ids any more; None: of none, and what was released is forgotten."""

    def subscribe(self, topics: Sequence[str], consumer: _Properties, *, grown: Sequence[str]) -> None:
        """Join the group, or read other topics, or more partitions of `grown`. Raises ValueError for properties that can't be."""

    def assign(self, places: Sequence[tuple[str, int, int]]) -> None:
        """Take over what an Assigned told, at these offsets; -1 where it isn't known where to begin."""

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
        """Read a partition from what is committed of it; ignored before `assign`. `delay_seconds`: of a delays partition. `commit`: do so
        even if nothing comes. `stands`: it is stopped from the first. Raises ValueError for metadata that is neither empty nor ours."""

    def stop(self, topic: str, partition: int) -> None:
        """The partition stands still from now on, once what is on its way is known."""
    def go_on(self, topic: str, partition: int) -> None:
        """The partition is served again, from its lowest unfinished offset."""
    def forget(self, topic: str, partition: int) -> None:
        """Nothing of the partition is committed or served any more until it begins again."""
    def wait(self, longest_seconds: float) -> list[tuple[Any, ...]]:
        """What has happened since, waiting for it: see delayed_topics_worker.happenings."""
    @property
    def still_seconds(self) -> float:
        """For how long it has not come to the end of a turn: less than a second, as long as all is well."""
    def look(self) -> list[Seen]:
        """All partitions that are assigned."""
    def state(self) -> State: ...
    def tallies(self, numbers: Sequence[int]) -> list[Tally]: ...
    def is_finished(self, topic: str, partition: int, offset: int) -> bool | None:
        """Whether a restart would not repeat a record; None: the partition isn't assigned."""

    def committed(self, places: Sequence[_Place], timeout_ms: int) -> list[tuple[str, int, int, str]]:
        """Offset, -1001 for none, and metadata of those of which the group's coordinator tells in time."""

    def leave(self, for_good: bool) -> None:
        """Begin to leave the group in peace, until `left`; a static member keeps its partitions unless `for_good`."""

    @property
    def left(self) -> bool: ...
    def leave_at_once(self) -> None:
        """Give up the consumer, and all partitions with it, as lost."""

@final
class Policy:
    """What routing needs of a layout record."""

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
        """As of a `LayoutRecord`. `targets`: other ready topics, and how many partitions they have; 0: they are missing, None:
        nobody has looked yet. Raises ValueError if the delay list is empty, or a delay has no partition."""

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
    misrouted: bool

@final
class Copy:
    """What is produced for a record. `partition` of a dead letter: the root's, to be taken modulo those of the topic."""

    target: str
    """"ready", "delays", "dead-letter", or the name of another ready topic."""
    partition: int
    root: bytes
    due_at_ms: int | None
    reason: str | None
    headers: list[_Header]

def decide(record: Record, policy: Policy, now_ms: int) -> Wait | Copy:
    """What becomes of a record that has just been read. `now_ms`: a lower bound of the broker's time."""

def take_turn(record: Record, wait: Wait, policy: Policy, now_ms: int) -> Wait | Copy:
    """What becomes of a record whose turn has come: it is released, hops on, or is held until it is due."""

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

def broker_time_ms(probes: Sequence[tuple[int, int, int]], now_ns: int) -> int | None:
    """What the broker's clock shows at least; None if the last probe is older than a second. A probe: when it was sent and its
    acknowledgement seen, by this machine, in nanoseconds, and when the broker appended it."""
