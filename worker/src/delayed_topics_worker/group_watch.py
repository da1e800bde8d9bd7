"""Whether each partition has a worker once this one has joined its group: asked on a thread of its own until it is so.

A static member that comes back gets the partitions that it had, and nobody looks whether there are others by now: librdkafka
compares the topics with what they were when the member joined (KAFKA-13435 tells of the same in Java's client). Partitions that
came while the group's leader restarted, or topics that were made again meanwhile, are left without a member until the leader
joins once more. Nothing tells a member who leads.

No longer than that, since the client library can abort the process when the group's coordinator goes away during this question:
https://github.com/confluentinc/librdkafka/issues/4605. Whoever leads sees by itself what comes while it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaRefused
from delayed_topics_kafka.model import GroupInfo, TopicInfo, TopicPartitionKey

from delayed_topics_worker.background import Repeated

ASK_SECONDS: Final = 3.0
REJOIN_SECONDS: Final = 6.0
"""Another worker that leads sees within 5 s what came to the topics."""
REJOIN_AGAIN_SECONDS: Final = 30.0


class Joined(NamedTuple):
    """Which time it was, from 1 on, and what was joined."""

    number: int
    group: str
    topics: Sequence[str]


class GroupWatch:
    """`unassigned`, with for how many seconds each partition has had no member, is replaced as a whole by the thread and read
    by the worker's. Nothing is known of a group that rebalances."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self.unassigned: Mapping[TopicPartitionKey, float] = {}
        self._admin = admin
        self._seconds = seconds
        self._joining = Joined(0, "", ())
        self._joined = self._joining
        self._settled = 0
        self._since: dict[TopicPartitionKey, float] = {}
        self._rejoin_at = float("-inf")
        self._thread = Repeated("group-watch", self._see, interval_seconds=ASK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def joining(self, group: str, topics: Sequence[str]) -> None:
        """A member is about to get partitions of these."""
        self._joining = Joined(self._joining.number + 1, group, tuple(topics))

    def assigned(self) -> None:
        """It has got some."""
        if self._joined is not self._joining:
            self._joined = self._joining
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
        number, group, topics = self._joined
        if number == self._settled:
            return
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
            if not places:
                self._settled = number
        elif isinstance(found, KafkaRefused):
            places, self._settled = set(), number
        else:
            places = set()
        self._since = {place: self._since.get(place, now) for place in sorted(places)}
        self.unassigned = {place: now - since for place, since in self._since.items()}
