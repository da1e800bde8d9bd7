"""Asks Kafka every few seconds whether the topics are still the same ones, on a thread of its own, because the admin client blocks."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.background import Repeated

INTERVAL_SECONDS: Final = 3.0
MAX_TOPICS: Final = 1000
"""Topics of one request. What librdkafka computes for each topic of an answer grows with their number."""
NEVER: Final = float("-inf")


class TopicsSnapshot(NamedTuple):
    """How Kafka described each topic when it was last asked; None: the topic does not exist. `asked_at`: when that was, by topic, in
    seconds of the worker's clock."""

    topics: Mapping[str, TopicInfo | KafkaCallError | None]
    asked_at: Mapping[str, float]

    def is_younger(self, than: float, topics: Iterable[str]) -> bool:
        """Returns whether Kafka was asked about each of these topics at that time or later."""
        return all(self.asked_at.get(topic, NEVER) >= than for topic in topics)


class TopicWatch:
    """Asks on a thread of its own, which replaces `snapshot` as a whole. The worker's thread reads it. If there are more topics than
    MAX_TOPICS, each request is about those whose last request is the longest ago."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self.snapshot = TopicsSnapshot({}, {})
        self._admin = admin
        self._seconds = seconds
        self._topics: Collection[str] = ()
        self._first: Collection[str] = ()
        self._thread = Repeated("topic-watch", self._see, interval_seconds=INTERVAL_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def follow(self, topics: Collection[str]) -> None:
        """Asks about these topics from now on."""
        self._topics = tuple(dict.fromkeys(topics))
        self._thread.hasten()

    def look(self, first: Collection[str] = ()) -> None:
        """Asks at once, about the followed topics that are in `first` before all others."""
        self._first = first
        self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def _see(self) -> None:
        topics, first, (known, asked_at) = self._topics, self._first, self.snapshot
        if not topics:
            return
        asked = sorted(topics, key=lambda topic: (topic not in first, asked_at.get(topic, NEVER)))[:MAX_TOPICS]
        now = self._seconds()
        found = {**known, **self._admin.describe_topics(asked)}
        times = {**asked_at, **dict.fromkeys(asked, now)}
        self.snapshot = TopicsSnapshot(
            {topic: found[topic] for topic in topics if topic in found},
            {topic: times[topic] for topic in topics if topic in times},
        )
