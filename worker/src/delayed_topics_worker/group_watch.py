"""Whether each partition has a member of the group: asked every few seconds, on a thread of its own.

A static member that comes back gets the partitions that it had, and nobody looks whether there are others by now: librdkafka
compares the topics with what they were when the member joined (KAFKA-13435 tells of the same in Java's client). Partitions that
came while the group's leader restarted, or topics that were made again meanwhile, are left without a member until the leader
joins once more. Nothing tells a member who leads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.model import GroupInfo, TopicInfo, TopicPartitionKey

from delayed_topics_worker.background import Repeated

ASK_SECONDS: Final = 3.0
REJOIN_SECONDS: Final = 6.0
"""The leader sees by itself within 5 s what comes while it runs."""
REJOIN_AGAIN_SECONDS: Final = 30.0


class GroupWatch:
    """`unassigned`, with for how many seconds each partition has had no member, is replaced as a whole by the thread and read
    by the worker's. Nothing is known of a group that rebalances."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self.unassigned: Mapping[TopicPartitionKey, float] = {}
        self._admin = admin
        self._seconds = seconds
        self._asked: tuple[str, tuple[str, ...]] | None = None
        self._since: dict[TopicPartitionKey, float] = {}
        self._rejoin_at = float("-inf")
        self._thread = Repeated("group-watch", self._see, interval_seconds=ASK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def look(self, group: str, topics: Sequence[str]) -> None:
        """From now on at these, which a member has subscribed to."""
        self._asked = group, tuple(topics)
        self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def should_rejoin(self) -> bool:
        """Whether the worker is to join again, so that partitions get a member. Told once, and again if that didn't help."""
        now = self._seconds()
        if now < self._rejoin_at or max(self.unassigned.values(), default=0.0) < REJOIN_SECONDS:
            return False
        self._rejoin_at = now + REJOIN_AGAIN_SECONDS
        return True

    def _see(self) -> None:
        if self._asked is None:
            return
        group, topics = self._asked
        now = self._seconds()
        infos = self._admin.describe_topics(topics)
        places = {
            (topic, partition)
            for topic, info in infos.items()
            if isinstance(info, TopicInfo)
            for partition in range(info.partitions)
        }
        found = self._admin.describe_groups([group])[group]
        if isinstance(found, GroupInfo) and found.state == "Stable":
            places -= {place for member in found.members for place in member.assignment}
        else:
            places.clear()
        self._since = {place: self._since.get(place, now) for place in sorted(places)}
        self.unassigned = {place: now - since for place, since in self._since.items()}
