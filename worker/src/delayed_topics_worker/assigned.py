"""A partition that is assigned to this worker, as far as the engine doesn't know it: where it begins, and why it isn't served."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from delayed_topics_core.events import format_places
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.words import counted, shortened
from delayed_topics_engine import Seen

from delayed_topics_worker.happenings import Removed
from delayed_topics_worker.served import Served

ChangeKind = Literal["assignment", "assigned", "caught-up", "revoked", "lost", "producers-replaced"]


class Change(NamedTuple):
    """What happened to partitions of one delayed topic, in the words of `core.events`.

    `assignment`: Kafka gave them to this worker; `assigned`: all that it gave then of this topic are served, whatever those of other
    topics wait for; `caught-up`: what was due of them before they were served has come out, `delayed` records; `producers-replaced`:
    what the producers before had on its way is sent again.
    `places`, `kept`: as `format_places` writes them. `generation`: of the group, when it assigned them, or the latest. `at`: the worker's
    seconds.
    """

    kind: ChangeKind
    topic: str
    partitions: int
    places: list[str]
    generation: int
    at: float
    took_ms: int
    kept: Sequence[str] = ()
    delayed: int = 0
    in_flight: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Why a partition isn't served. `retry_at`: seconds of the worker's clock; None: only a new assignment tries again.
    `topic`: that is missing, or another one. `topic_gone`: it is the partition's own, which doesn't exist any more, whatever has taken
    its name. `refused`: the offset of the record whose copy was refused, and `target` the topic that it should go to.
    """

    reason: Reason
    message: str
    retry_at: float | None
    topic: str | None = None
    topic_gone: bool = False
    refused: int | None = None
    target: str | None = None


@dataclass(eq=False, kw_only=True)
class AssignedPartition:
    """`generation`: counts what this process was assigned; `group_generation`: the group's. `begun`: the engine serves it, or would if it
    were not stopped. `told`: Kafka has told what is `committed`; None: nothing is. `unanswered`: it was not told at once, and is asked for
    beside the loop. `anew`: its topic was made again, and begins at its noted start, whatever is committed. `tried`: the stop after which
    it is served again, until the copy that was refused is accepted. `removed`: what comes next is not in Kafka any more. `seen`: as the
    engine had it when somebody looked last. `delayed`: as Seen has it. `in_flight`: as Revoked has it. `missing_since`: when its topic was
    found to be missing.
    """

    served: Served
    topic: str
    partition: int
    generation: int
    group_generation: int
    assigned_at: float
    begin_at: float = 0.0
    topic_id: str = ""
    committed: OffsetAndMetadata | None = None
    told: bool = False
    unanswered: bool = False
    anew: bool = False
    begun: bool = False
    gone: bool = False
    stop: Stop | None = None
    tried: Stop | None = None
    missing_since: float | None = None
    removed: Removed | None = None
    seen: Seen | None = None
    delayed: int = 0
    in_flight: int = 0

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}]"

    @property
    def place(self) -> TopicPartitionKey:
        return self.topic, self.partition

    @property
    def is_front(self) -> bool:
        return self.topic == self.served.names.front

    @property
    def is_foreign(self) -> bool:
        """A partition beyond the layout that is served: somebody has added it, or it is part of a plan that Kafka may refuse for weeks. It
        is not served, and nothing waits for it. A front partition is served as soon as its start is noted."""
        layout, topics = self.served.layout, self.served.topics
        if layout is None or self.begun:
            return False
        if not self.is_front:
            return self.partition >= layout.layout.partition_count
        noted = topics.start_offsets.get(self.topic, ()) if topics is not None else ()
        return self.partition >= max(layout.front_partitions, len(noted))

    @property
    def delay_seconds(self) -> int | None:
        """Of a delays partition that the layout knows."""
        delays = self.served.layout.layout.partition_delays if self.served.layout else ()
        return delays[self.partition] if not self.is_front and self.partition < len(delays) else None


def of_topics(owned: Iterable[AssignedPartition]) -> dict[str, list[AssignedPartition]]:
    """By front topic."""
    found: dict[str, list[AssignedPartition]] = {}
    for o in owned:
        found.setdefault(o.served.topic, []).append(o)
    return found


def changes_of(
    kind: ChangeKind,
    owned: Iterable[AssignedPartition],
    *,
    kept: Iterable[AssignedPartition],
    began: float,
    at: float,
) -> list[Change]:
    """One of each delayed topic."""
    kept_of = of_topics(kept)
    return [
        Change(
            kind,
            topic,
            partitions=len(of_topic),
            places=format_places(o.place for o in of_topic),
            generation=of_topic[0].group_generation,
            at=at,
            took_ms=int((at - began) * 1000),
            kept=format_places(o.place for o in kept_of.get(topic, ())),
            delayed=sum(o.delayed for o in of_topic),
            in_flight=sum(o.in_flight for o in of_topic),
        )
        for topic, of_topic in of_topics(owned).items()
    ]


def named(owned: Sequence[AssignedPartition]) -> str:
    return f"{counted(len(owned), 'partition')}: {shortened(sorted(map(str, owned)), 50)}" if owned else "nothing"
