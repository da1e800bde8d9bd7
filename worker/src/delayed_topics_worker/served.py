"""A delayed topic as the registry shows it now. Live: whoever holds it sees every change."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord, RegistryState, TopicsRecord
from delayed_topics_kafka.errors import KafkaDoorError

from delayed_topics_worker.topic_watch import Sight


@dataclass
class Served:
    """`layout`: the newest that was seen serving, None before the first. `dead_letter_partitions`: 0 while it isn't known.

    `owner`: whose workers these are; empty: anybody's. `taken_over`: the topics are another's now, whose own workers serve them.
    """

    topic: str
    names: TopicNames
    owner: str = ""
    layout: LayoutRecord | None = None
    topics: TopicsRecord | None = None
    dead_letter_partitions: int = 0
    taken_over: bool = False

    @classmethod
    def of(cls, topic: str, owner: str = "") -> "Served":
        return cls(topic=topic, names=TopicNames.of(topic), owner=owner)

    def follow(self, state: RegistryState) -> bool:
        """Takes what the registry says; True if anything changed. A planned layout is not followed until it serves."""
        layout, topics = state.layouts.get(self.topic), state.topics.get(self.topic)
        self.taken_over = layout is not None and self.owner not in ("", str(layout.owner))
        if self.taken_over:
            layout = None
        elif layout is not None and layout.state != "serving":
            layout = self.layout
        changed = layout != self.layout or topics != self.topics
        self.layout, self.topics = layout, topics
        return changed

    def count_dead_letter_partitions(self, sight: Sight) -> bool:
        """None are counted while the topic is missing, or isn't the one that the registry notes. True if the number changed."""
        name = self.names.dead_letter
        info = sight.topics.get(name)
        if isinstance(info, KafkaDoorError):
            return False
        same = info is not None and self.noted_id(name) in (None, info.id)
        before, self.dead_letter_partitions = self.dead_letter_partitions, info.partitions if info and same else 0
        return before != self.dead_letter_partitions

    @property
    def skew_ms(self) -> int:
        return self.layout.broker_skew_ms if self.layout else 0

    @property
    def paused(self) -> bool:
        return self.layout is None or self.layout.paused

    @property
    def hurried(self) -> bool:
        """A record may be due as soon as it comes in."""
        return self.layout is not None and 0 in self.layout.layout.delay_seconds

    def noted_id(self, topic: str) -> str | None:
        return self.topics.ids.get(topic) if self.topics else None


@dataclass
class ServedTopics:
    """All delayed topics of this worker, by front topic. The engine names them by their place here."""

    by_front: dict[str, Served] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: tuple[str, ...], owner: str = "") -> "ServedTopics":
        return cls({topic: Served.of(topic, owner) for topic in topics})

    def __iter__(self) -> Iterator[Served]:
        return iter(self.by_front.values())
