"""Whether the topics are still the same ones: asked every few seconds, on a thread of its own, since the admin client blocks."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.background import Repeated

INTERVAL_SECONDS = 3.0


class TopicsSnapshot(NamedTuple):
    """How Kafka described topics when it was asked at `asked_at` (seconds of the worker's clock); None: the topic doesn't exist."""

    asked_at: float
    topics: Mapping[str, TopicInfo | KafkaCallError | None]


class TopicWatch:
    """`snapshot` is replaced as a whole by the thread and read by the worker's."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self.snapshot = TopicsSnapshot(float("-inf"), {})
        self._admin = admin
        self._seconds = seconds
        self._topics: tuple[str, ...] = ()
        self._thread = Repeated("topic-watch", self._see, interval_seconds=INTERVAL_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def look(self, topics: Sequence[str] | None = None) -> None:
        """Ask at once, and from now on about these topics."""
        if topics is not None:
            self._topics = tuple(topics)
        self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def _see(self) -> None:
        asked_at = self._seconds()
        if self._topics:
            self.snapshot = TopicsSnapshot(asked_at, self._admin.describe_topics(self._topics))
