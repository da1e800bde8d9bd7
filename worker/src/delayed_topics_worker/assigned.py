"""A partition that is assigned to this worker, with what the engine does not know: where it begins, and why it is not served."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from delayed_topics_core.events import format_places
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.words import counted, shortened
from delayed_topics_engine import Seen

from delayed_topics_worker.engine_events import Removed
from delayed_topics_worker.served import Served

ChangeKind = Literal["assignment", "assigned", "caught-up", "revoked", "lost", "producers-replaced"]


class Change(NamedTuple):
    """What happened to partitions of one delayed topic, in the terms of `core.events`.

    `assignment`: Kafka assigned them to this worker. `assigned`: all partitions of this topic that were assigned together are served,
    whatever those of other topics wait for. `caught-up`: their `delayed` records, which were due before they were served, have come out.
    `producers-replaced`: new producers send again what the former ones had in flight.
    `places`, `kept`: as `format_places` writes them. `generation`: the generation of the group that assigned the first of them. `at`: in
    seconds of the worker's clock.
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
    """Why a partition is not served. `retry_at`: in seconds of the worker's clock; None: only a new assignment tries again. `topic`: the
    topic that is missing or was created again. `topic_gone`: that is the partition's own topic, which does not exist any more, even if
    another one has its name. `refused`: the offset of the record whose copy Kafka refused, and `target`: the topic of that copy.
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
    """A partition that is assigned to this worker.

    `generation`: see `Assignment`; `group_generation`: the group's. `begun`: the engine serves it, or would if it were not stopped.
    `committed_known`: Kafka has reported `committed`, which is None if nothing is committed. `unanswered_since`: Kafka did not report it
    at this time, and another thread asks for it. `recreated`: its topic was created again, so that it begins at its registered start,
    whatever is committed. `began_again_at`: the offset at which it began for that reason. `tried`: the last stop, after which it is
    served again, until Kafka accepts the refused copy. `removed`: its next record is not in Kafka any more. `seen`: its state in the
    engine at the last look. `delayed`: see `Seen`. `in_flight`: see `Revoked`. `missing_since`: when its topic was found to be missing.
    `gone`: it was revoked or lost.
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
    committed_known: bool = False
    unanswered_since: float | None = None
    recreated: bool = False
    began_again_at: int | None = None
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
        """Whether the partition is beyond the layout that is served, because someone has added it, or because it is part of a planned
        layout that Kafka may refuse for weeks. It is not served then, and nothing waits for it. A front partition is served as soon as its
        start is registered."""
        layout, topics = self.served.layout, self.served.topics
        if layout is None or self.begun:
            return False
        if not self.is_front:
            return self.partition >= layout.layout.partition_count
        noted = topics.start_offsets.get(self.topic, ()) if topics is not None else ()
        return self.partition >= max(layout.front_partitions, len(noted))

    @property
    def delay_seconds(self) -> int | None:
        """The delay of a delays partition that the layout has; None for other partitions."""
        delays = self.served.layout.layout.partition_delays if self.served.layout else ()
        return delays[self.partition] if not self.is_front and self.partition < len(delays) else None


def of_topics(owned: Iterable[AssignedPartition]) -> dict[str, list[AssignedPartition]]:
    """Groups partitions by front topic."""
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
    """Returns one change for each delayed topic."""
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
