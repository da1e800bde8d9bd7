"""The delayed topics of a worker, as the registry describes them now. The objects are shared, so every holder sees each change."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import LayoutRecord, TopicsRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_engine import Policy
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.topic_watch import TopicsSnapshot

RECREATED_SECONDS: Final = 60.0


@dataclass
class Served:
    """A delayed topic that this worker serves, or has served.

    `layout`: the layout that is served; None before the first one, and while the topic is not for these workers. `listed`: the registry
    has a layout for these workers, perhaps only a planned one, but not a retired one. `dead_letter_partitions`: 0 while it is not known.
    `target_partitions`: the number of partitions of other ready topics; 0 for topics that are missing or that this worker may not describe.
    It lacks the topics that Kafka has not been asked about. `replicated`: whether its topics have replicas; None: Kafka has
    not described them yet. `is_control_known`: the control topic was read to its end once.

    `owner`: the owner of these workers; empty: any. `group`: the group of these workers; empty: that of the layout. `number`: see
    `Engine.add_topic`.
    """

    topic: str
    names: TopicNames
    number: int = 0
    owner: str = ""
    group: str = ""
    layout: LayoutRecord | None = None
    topics: TopicsRecord | None = None
    listed: bool = False
    dead_letter_partitions: int = 0
    target_partitions: dict[str, int] = field(default_factory=dict)
    replicated: bool | None = None
    is_control_known: bool = False

    @classmethod
    def of(cls, topic: str, *, owner: str = "", group: str = "") -> "Served":
        return cls(topic=topic, names=TopicNames.of(topic), owner=owner, group=group)

    def follow(self, state: RegistryState) -> bool:
        """Adopts what the registry says. Returns whether anything changed. A planned layout is not adopted until it serves."""
        record, topics = state.layouts.get(self.topic), state.topics.get(self.topic)
        layout = record.served if record is not None and self._is_ours(record) else None
        changed = layout != self.layout or topics != self.topics
        self.layout, self.topics = layout, topics
        self.listed = record is not None and record.state != "retired" and self._is_ours(record)
        return changed

    def _is_ours(self, layout: LayoutRecord) -> bool:
        return self.owner in ("", str(layout.owner)) and self.group in ("", layout.group)

    def describe(self, snapshot: TopicsSnapshot) -> bool:
        """Adopts what Kafka says about the topics. Returns whether anything changed."""
        before = (self.dead_letter_partitions, self.target_partitions, self.replicated)
        name = self.names.dead_letter
        info = snapshot.topics.get(name)
        if not isinstance(info, KafkaCallError):
            same = info is not None and self.registered_id(name) in (None, info.id)
            self.dead_letter_partitions = info.partitions if info and same else 0
        counted = {topic: self._partitions_of_target(topic, snapshot) for topic in self.targets}
        self.target_partitions = {topic: count for topic, count in counted.items() if count is not None}
        infos = {topic: snapshot.topics.get(topic) for topic in (*self.names.topics, *self.targets)}
        replicas = {topic: info.replication_factor for topic, info in infos.items() if isinstance(info, TopicInfo)}
        if replicas.keys() >= set(self.names.topics):
            self.replicated = max(replicas.values()) > 1
        return before != (self.dead_letter_partitions, self.target_partitions, self.replicated)

    def _partitions_of_target(self, topic: str, snapshot: TopicsSnapshot) -> int | None:
        if topic not in snapshot.topics or isinstance(info := snapshot.topics[topic], KafkaUnreachable):
            return self.target_partitions.get(topic)
        return info.partitions if isinstance(info, TopicInfo) else 0

    @property
    def targets(self) -> tuple[str, ...]:
        """The other ready topics that records may request."""
        return self.layout.targets if self.layout is not None else ()

    @property
    def watched(self) -> tuple[str, ...]:
        """All its topics, and the other ready topics that records may request."""
        control = (self.names.control,) if self.has_control_topic else ()
        return (*self.names.topics, *control, *self.targets)

    @property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of the front and the delays topic, according to the layout."""
        if self.layout is None:
            return {}
        return {
            self.names.front: self.layout.front_partitions,
            self.names.delays: self.layout.layout.partition_count,
        }

    @property
    def policy(self) -> Policy | None:
        if self.layout is None:
            return None
        layout = self.layout.layout
        return Policy(
            delay_seconds=layout.delay_seconds,
            ladder_seconds=layout.ladder_seconds,
            partition_delays=layout.partition_delays,
            retry_cap=self.layout.retry_cap,
            ready_partitions=self.layout.ready_partitions,
            max_delay_seconds=self.layout.max_delay_seconds,
            targets=[(topic, self.target_partitions.get(topic)) for topic in self.layout.targets],
            outage_budget_seconds=self.layout.outage_budget_seconds,
        )

    @property
    def has_control_topic(self) -> bool:
        """Whether records can be cancelled and rescheduled."""
        return self.layout is not None and self.layout.control

    @property
    def skew_ms(self) -> int:
        return self.layout.broker_skew_ms if self.layout else 0

    @property
    def paused(self) -> bool:
        return self.layout is None or self.layout.paused

    @property
    def hurried(self) -> bool:
        """Whether a record may be due as soon as it comes in."""
        return self.layout is not None and (
            0 in self.layout.layout.delay_seconds or bool(self.layout.layout.ladder_seconds)
        )

    def goes_on_at(self, topic: str, partition: int, committed: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Returns where to continue a partition: where its group has left it, or, after a handover, the group that served it before."""
        handover = self.topics.handover if self.topics else None
        if handover is None or self.layout is None or handover.group != self.layout.group:
            return committed
        return handover.goes_on_at(topic, partition, committed)

    def registered_id(self, topic: str) -> str | None:
        return self.topics.ids.get(topic) if self.topics else None

    def ids(self, snapshot: TopicsSnapshot) -> dict[str, str]:
        """The ids of the topics that the engine reads and writes: its own ones as registered, the others as Kafka describes them."""
        described = ((topic, snapshot.topics.get(topic)) for topic in self.targets)
        registered = ((topic, self.registered_id(topic)) for topic in self.names.topics)
        return {topic: found.id for topic, found in described if isinstance(found, TopicInfo)} | {
            topic: topic_id for topic, topic_id in registered if topic_id is not None
        }

    def mirrored_id(self, topic: str) -> str | None:
        """The id that the topic had in the Kafka cluster from which it was mirrored, together with its committed offsets."""
        return self.topics.mirrored_from.get(topic) if self.topics else None


class ServedTopics:
    """All delayed topics of this worker, in the order of their numbers in the engine. None is ever removed: a topic that other workers
    serve now has no layout."""

    def __init__(self, config: WorkerConfig, owner: str = "") -> None:
        """`owner`: the owner of these workers, if the configuration names their topics; empty: any."""
        self._group = config.group if not config.topics else None
        self._by_source: dict[str, Served] = {}
        self._all: list[Served] = []
        self._followed: RegistryState | None = None
        self._followed_to = -1
        self._ids: dict[str, str] = {}
        self._no_further_before = 0.0
        for topic in config.topics:
            self._add(Served.of(topic, owner=owner, group=config.group))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._all)

    def numbered(self, number: int) -> Served:
        """Returns the delayed topic with this number in the engine. Raises IndexError."""
        return self._all[number]

    def of_source(self, topic: str) -> Served:
        """Returns the delayed topic that has this front or delays topic. Raises KeyError."""
        return self._by_source[topic]

    def find(self, topic: str) -> Served | None:
        """As `of_source`, but returns None if this worker does not know the topic."""
        return self._by_source.get(topic)

    def is_surplus(self, member: str) -> bool:
        """Returns whether every layout wants too few workers for the ordinal of this pod, so that no pod of its name follows it."""
        number = member.rpartition("-")[2]
        wanted = [served.layout.workers for served in self._all if served.layout is not None]
        return number.isdecimal() and bool(wanted) and all(n is not None and n <= int(number) for n in wanted)

    def follow(self, state: RegistryState) -> set[str]:
        """Adopts what the registry says. Returns the front topics about which it says something else than before."""
        if state is self._followed and state.next_offset == self._followed_to:
            return set()
        self._followed, self._followed_to = state, state.next_offset
        for topic, layout in state.layouts.items():
            if layout.group == self._group and layout.served is not None and topic not in self._by_source:
                self._add(Served.of(topic, group=self._group))
        return {served.topic for served in self._all if served.follow(state)}

    def recreated(self, snapshot: TopicsSnapshot, now: float) -> list[str]:
        """Returns the topics whose ids have changed since the last call. The engine needs new clients for them: after a topic was created
        again, a client believes nothing that has a lower leader epoch than the former topic had (2.16,
        `rd_kafka_toppar_leader_update`). Returns further ones only a while later, so that somebody who creates a topic again and again
        does not interrupt all others as often."""
        ids = {topic: topic_id for served in self._all for topic, topic_id in served.ids(snapshot).items()}
        recreated = [topic for topic, topic_id in ids.items() if self._ids.get(topic, topic_id) != topic_id]
        if recreated and now < self._no_further_before:
            return []
        if recreated:
            self._no_further_before = now + RECREATED_SECONDS
        self._ids |= ids
        return recreated

    def _add(self, served: Served) -> None:
        served.number = len(self._all)
        self._all.append(served)
        self._by_source.update({served.names.front: served, served.names.delays: served})
