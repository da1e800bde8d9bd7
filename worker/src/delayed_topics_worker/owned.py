"""A partition that is assigned to this worker, and the records that it holds of it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, Message
from delayed_topics_core.headers import OWN_HEADERS, Header
from delayed_topics_core.reasons import Reason
from delayed_topics_core.routing import Decision
from delayed_topics_core.window import Window
from delayed_topics_kafka.model import CommittedOffset

from delayed_topics_worker.served import Served
from delayed_topics_worker.shelf import Shelf

MAX_UNCOMMITTED = 5_000
"""Promise 3: a crash repeats no more than this of a partition."""
STALL_SECONDS = 1.0
"""A partition that has records gives one within this time, or reading is placed again; twice as long each time."""
RECORD_OVERHEAD_BYTES = 750
"""What a held record costs beyond its key, value and headers: the client's message, ours, the queues' entries."""
HEADER_OVERHEAD_BYTES = 165
"""And each header beyond its name and value: three Python objects."""


class Held:
    """A record between its intake and the acknowledgement of its copy. It is its copy's delivery callback itself:
    a closure per record would cost more than the record.

    `decision` None: not yet decided, or it takes a short way. `own_headers`: how many there are, -1 if they can't be read.
    `due_at_ms`, `root_partition`: of one that takes a short way over the shelf, else negative. `target`: the topic that its
    copy was last sent to.
    """

    __slots__ = (
        "cuts",
        "decision",
        "due_at_ms",
        "headers",
        "message",
        "offset",
        "own_headers",
        "owned",
        "root_partition",
        "size",
        "target",
    )

    def __init__(self, owned: "Owned", offset: int, message: Message, headers: Sequence[Header] | None) -> None:
        """`headers` None: they can't be read."""
        self.owned = owned
        self.offset = offset
        self.message = message
        self.headers = headers
        self.decision: Decision | None = None
        self.due_at_ms = -1
        self.root_partition = 0
        self.target = ""
        self.cuts = 0
        size = RECORD_OVERHEAD_BYTES + len(message) + len(message.key() or b"")
        own_headers = 0 if headers is not None else -1
        for name, value in headers or ():
            size += HEADER_OVERHEAD_BYTES + len(name)
            if value is not None:
                size += len(value)
            if name in OWN_HEADERS:
                own_headers += 1
        self.own_headers = own_headers
        self.size = size

    def __call__(self, error: KafkaError | None, _: Message | None) -> None:
        if error is not None:
            self.owned.refused.append(Refusal(self, error, queued=True))


class Refusal(NamedTuple):
    """A copy that Kafka didn't take, and why. `queued`: the producer had taken it."""

    held: Held
    error: KafkaError
    queued: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Why a partition isn't served. `retry_at`: seconds of the worker's clock; None: only a new assignment tries again.
    `topic_gone`: its own topic doesn't exist any more, whatever has taken its name. `refused`: the offset of the record
    whose copy was refused, and `target` the topic that it should go to.
    """

    reason: Reason
    message: str
    retry_at: float | None
    topic_gone: bool = False
    refused: int | None = None
    target: str | None = None


class Owned:
    """`window` None: not begun. `rewinding`: goes back to the lowest unfinished offset as soon as nothing is on its way.
    `committed`: as it was on assignment, None if it couldn't be read. `reads_at`: where the client was told to read, None
    if it has yet to be told. `unproven`: no record has come since then. `void`: the window is of a topic that is gone, a
    commit would be taken for one of the topic that has its name now. `anew`: that one is served now, from its noted start
    and whatever is committed. `alone`: offsets whose copies were refused in a transaction, with which all of it was lost; they
    go by themselves. `commit_at`: not before, since Kafka refused its last commit and took those of others.
    `tried`: the stop after which it is served again, until the copy that was refused is accepted. `unanswered`: what is
    committed was not told at once, and is asked for beside the loop.
    """

    __slots__ = (
        "alone",
        "anew",
        "arrived",
        "assigned_at",
        "begin_at",
        "commit_at",
        "committed",
        "committing",
        "dirty",
        "door",
        "gap_at",
        "generation",
        "gone",
        "held_bytes",
        "outstanding",
        "partition",
        "paused",
        "placed_at",
        "reads_at",
        "refused",
        "registered_turn_ms",
        "rewinding",
        "served",
        "shelf",
        "stall_seconds",
        "stop",
        "topic",
        "topic_id",
        "tried",
        "unanswered",
        "uncommitted",
        "unproven",
        "void",
        "window",
    )

    def __init__(self, served: Served, topic: str, partition: int, *, generation: int, assigned_at: float) -> None:
        self.served = served
        self.topic = topic
        self.partition = partition
        self.door = "f" if topic == served.names.front else "d"
        self.generation = generation
        self.assigned_at = assigned_at
        self.begin_at = assigned_at
        self.topic_id = ""
        self.committed: CommittedOffset | None = None
        self.unanswered = False
        self.reads_at: int | None = None
        self.placed_at = assigned_at
        self.unproven = True
        self.gap_at: int | None = None
        self.stall_seconds = STALL_SECONDS
        self.window: Window | None = None
        self.arrived: deque[Held] = deque()
        self.shelf = Shelf()
        self.held_bytes = 0
        self.outstanding: list[Held] = []
        self.refused: list[Refusal] = []
        self.alone: set[int] = set()
        self.uncommitted = 0
        self.committing = 0
        self.commit_at = 0.0
        self.dirty = False
        self.paused = True
        self.rewinding = False
        self.gone = False
        self.void = False
        self.anew = False
        self.stop: Stop | None = None
        self.tried: Stop | None = None
        self.registered_turn_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}]"

    @property
    def takes_in(self) -> bool:
        return self.window is not None and self.stop is None and not self.rewinding and not self.gone

    @property
    def may_commit(self) -> bool:
        return self.window is not None and not self.gone and not self.void

    @property
    def room(self) -> int:
        """How many copies may still be sent before the next commit is acknowledged."""
        return MAX_UNCOMMITTED - self.uncommitted - self.committing

    @property
    def waiting(self) -> int:
        return len(self.arrived) + len(self.shelf)

    @property
    def next_turn_ms(self) -> int | None:
        """When there is something to do, in milliseconds of broker time: 0 for at once, None for nothing."""
        if not self.takes_in or self.served.policy is None:
            return None
        if self.arrived:
            return 0
        turn_ms = self.shelf.next_turn_ms
        return None if turn_ms is None or self.served.paused else turn_ms + self.served.skew_ms

    def drop_held(self) -> None:
        """Forget the records that are held and not sent. The window keeps what is finished."""
        self.held_bytes = sum(held.size for held in self.outstanding)
        self.arrived.clear()
        self.shelf.clear()
