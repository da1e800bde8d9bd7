"""Whether the topics are still the same ones: asked every few seconds, on a thread of its own, since the admin client blocks."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaDoorError
from delayed_topics_kafka.model import TopicInfo

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 3.0


class Sight(NamedTuple):
    """What Kafka said to a question asked at `asked_at` (seconds of the worker's clock); None: the topic doesn't exist."""

    asked_at: float
    topics: Mapping[str, TopicInfo | KafkaDoorError | None]


class TopicWatch:
    """`sight` is replaced as a whole by the thread and read by the worker's."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self.sight = Sight(float("-inf"), {})
        self._admin = admin
        self._seconds = seconds
        self._topics: tuple[str, ...] = ()
        self._asked = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self, topics: Sequence[str] | None = None) -> None:
        """Ask at once, and from now on about these topics."""
        if topics is not None:
            self._topics = tuple(topics)
        self._asked.set()

    def close(self) -> None:
        self._ended = True
        self._asked.set()

    def _run(self) -> None:
        while not self._ended:
            self._asked.clear()
            asked_at = self._seconds()
            if self._topics:
                self.sight = Sight(asked_at, self._admin.describe_topics(self._topics))
            self._asked.wait(INTERVAL_SECONDS)
