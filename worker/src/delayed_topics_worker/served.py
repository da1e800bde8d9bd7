"""A delayed topic as the registry shows it now. Live: whoever holds it sees every change."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import LayoutRecord, TopicsRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_engine import Policy
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.topic_watch import TopicsSnapshot


@dataclass
class Served:
    """`layout`: what is served; None before the first, and when it is not for these workers. `dead_letter_partitions`:
    0 while it isn't known. `target_partitions`: of other ready topics, 0 of those that are missing, or that this worker may not see;
    not of those of which nobody knows yet. `listed`: the registry has a layout of it for these workers, if only a planned one,
    and not a retired one. `is_control_known`: the control topic was read to its end.

    `owner`: whose workers these are; empty: anybody's. `group`: which one they are in; empty: the layout's. `number`: the engine's.
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
    is_control_known: bool = False

    @classmethod
    def of(cls, topic: str, *, owner: str = "", group: str = "") -> "Served":
        return cls(topic=topic, names=TopicNames.of(topic), owner=owner, group=group)

    def follow(self, state: RegistryState) -> bool:
        """Takes what the registry says; True if anything changed. A planned layout is not followed until it serves."""
        record, topics = state.layouts.get(self.topic), state.topics.get(self.topic)
        layout = record.served if record is not None and self._is_ours(record) else None
        changed = layout != self.layout or topics != self.topics
        self.layout, self.topics = layout, topics
        self.listed = record is not None and record.state != "retired" and self._is_ours(record)
        return changed

    def _is_ours(self, layout: LayoutRecord) -> bool:
        return self.owner in ("", str(layout.owner)) and self.group in ("", layout.group)

    def count_partitions(self, snapshot: TopicsSnapshot) -> bool:
        """Of the dead-letter topic, and of other ready topics. True if a number changed."""
        before = (self.dead_letter_partitions, self.target_partitions)
        name = self.names.dead_letter
        info = snapshot.topics.get(name)
        if not isinstance(info, KafkaCallError):
            same = info is not None and self.noted_id(name) in (None, info.id)
            self.dead_letter_partitions = info.partitions if info and same else 0
        counted = {topic: self._partitions_of_target(topic, snapshot) for topic in self.targets}
        self.target_partitions = {topic: count for topic, count in counted.items() if count is not None}
        return before != (self.dead_letter_partitions, self.target_partitions)

    def _partitions_of_target(self, topic: str, snapshot: TopicsSnapshot) -> int | None:
        if topic not in snapshot.topics or isinstance(info := snapshot.topics[topic], KafkaUnreachable):
            return self.target_partitions.get(topic)
        return info.partitions if isinstance(info, TopicInfo) else 0

    @property
    def targets(self) -> tuple[str, ...]:
        """Ready topics that records may ask for."""
        return self.layout.targets if self.layout is not None else ()

    @property
    def watched(self) -> tuple[str, ...]:
        """All its topics, and those that records may ask for."""
        control = (self.names.control,) if self.has_control_topic else ()
        return (*self.names.topics, *control, *self.targets)

    @property
    def partitions(self) -> dict[str, int]:
        """By topic that is read, as the layout has it."""
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
        """Records can be cancelled."""
        return self.layout is not None and self.layout.control

    @property
    def skew_ms(self) -> int:
        return self.layout.broker_skew_ms if self.layout else 0

    @property
    def paused(self) -> bool:
        return self.layout is None or self.layout.paused

    @property
    def hurried(self) -> bool:
        """A record may be due as soon as it comes in."""
        return self.layout is not None and (
            0 in self.layout.layout.delay_seconds or bool(self.layout.layout.ladder_seconds)
        )

    def goes_on_at(self, topic: str, partition: int, committed: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
        """Where its group has left it, or the group that served this before."""
        handover = self.topics.handover if self.topics else None
        if handover is None or self.layout is None or handover.group != self.layout.group:
            return committed
        return handover.goes_on_at(topic, partition, committed)

    def noted_id(self, topic: str) -> str | None:
        return self.topics.ids.get(topic) if self.topics else None

    def mirrored_id(self, topic: str) -> str | None:
        """What the id was in the Kafka cluster that the topic comes from, with the committed offsets."""
        return self.topics.mirrored_from.get(topic) if self.topics else None


class ServedTopics:
    """All delayed topics of this worker, in the order in which the engine numbers them. None ever leaves: one that others serve now has no
    layout."""

    def __init__(self, config: WorkerConfig, owner: str = "") -> None:
        """`owner`: whose workers these are, of topics that are named in the configuration."""
        self._group = config.group if not config.topics else None
        self._by_source: dict[str, Served] = {}
        self._all: list[Served] = []
        self._followed: RegistryState | None = None
        self._followed_to = -1
        for topic in config.topics:
            self._add(Served.of(topic, owner=owner, group=config.group))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._all)

    def numbered(self, number: int) -> Served:
        """Raises IndexError."""
        return self._all[number]

    def of_source(self, topic: str) -> Served:
        """Whose front or delays topic this is. Raises KeyError."""
        return self._by_source[topic]

    def find(self, topic: str) -> Served | None:
        """The same; None if it is of none that this worker knows."""
        return self._by_source.get(topic)

    def is_surplus(self, member: str) -> bool:
        """Whether there are to be fewer workers than its number says, so that nobody of its name comes after it."""
        number = member.rpartition("-")[2]
        wanted = [served.layout.workers for served in self._all if served.layout is not None]
        return number.isdecimal() and bool(wanted) and all(n is not None and n <= int(number) for n in wanted)

    def follow(self, state: RegistryState) -> set[str]:
        """Takes what the registry says. Returns the front topics of which it says something else than before."""
        if state is self._followed and state.next_offset == self._followed_to:
            return set()
        self._followed, self._followed_to = state, state.next_offset
        for topic, layout in state.layouts.items():
            if layout.group == self._group and layout.served is not None and topic not in self._by_source:
                self._add(Served.of(topic, group=self._group))
        return {served.topic for served in self._all if served.follow(state)}

    def _add(self, served: Served) -> None:
        served.number = len(self._all)
        self._all.append(served)
        self._by_source.update({served.names.front: served, served.names.delays: served})
