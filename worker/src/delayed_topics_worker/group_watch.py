"""Asks Kafka, once this worker was assigned partitions, whether each partition has a worker. Runs on a thread of its own.

A static member that returns gets its former partitions, and no one checks whether there are others by now: librdkafka compares the topics
with their state when the member joined (KAFKA-13435 describes the same for the Java client). If partitions were added or topics were
created again while the group's leader restarted, they have no member until the leader joins again. A member can't find out which member
is the leader.

The registry announces partitions that are added while all members run; the client by itself looks only every few minutes. With protocol
`consumer`, brokers assign partitions, and this problem does not exist.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaRefused
from delayed_topics_kafka.model import GroupInfo, TopicInfo

from delayed_topics_worker.background import Repeated

ASK_SECONDS: Final = 3.0
REJOIN_SECONDS: Final = 6.0
"""Leaves time for another worker that may be joining already."""
REJOIN_AGAIN_SECONDS: Final = 30.0


class MembershipStage(Enum):
    AWAY = "in no group"
    JOINING = "has asked for partitions"
    JOINED = "has got partitions; others may have no worker"
    SETTLED = "every partition has had a worker since it got some"


@dataclass(frozen=True)
class Membership:
    """The membership of this worker in its group. `since`: since when each partition has had no worker, in seconds of the watch's clock."""

    stage: MembershipStage = MembershipStage.AWAY
    group: str = ""
    topics: Sequence[str] = ()
    since: Mapping[TopicPartitionKey, float] = field(default_factory=dict)


class GroupWatch:
    """The worker's thread reports the progress of its membership. The watch's thread asks Kafka while the membership is JOINED."""

    def __init__(self, admin: KafkaAdmin, seconds: Callable[[], float]) -> None:
        self._admin = admin
        self._seconds = seconds
        self._lock = threading.Lock()
        self._membership = Membership()
        self._rejoin_at = float("-inf")
        self._thread = Repeated("group-watch", self._see, interval_seconds=ASK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def joining(self, group: str, topics: Sequence[str]) -> None:
        """Reports that the worker joins the group. Partitions without a worker count as such until the group is described again."""
        with self._lock:
            self._membership = replace(
                self._membership, stage=MembershipStage.JOINING, group=group, topics=tuple(topics)
            )

    def assigned(self) -> None:
        with self._lock:
            if self._membership.stage is not MembershipStage.AWAY:
                self._membership = replace(self._membership, stage=MembershipStage.JOINED)
                self._thread.hasten()

    def left(self) -> None:
        with self._lock:
            self._membership = Membership()

    def close(self) -> None:
        self._thread.close()

    @property
    def unassigned(self) -> Mapping[TopicPartitionKey, float]:
        """For how many seconds each of these partitions has had no worker. While the group rebalances, nothing is known."""
        now = self._seconds()
        return {place: now - since for place, since in self._membership.since.items()}

    def should_rejoin(self) -> bool:
        """Returns whether the worker should join again, so that partitions get a member: once, and again later if that did not help."""
        now = self._seconds()
        if now < self._rejoin_at or max(self.unassigned.values(), default=0.0) < REJOIN_SECONDS:
            return False
        self._rejoin_at = now + REJOIN_AGAIN_SECONDS
        return True

    def _see(self) -> None:
        asked = self._membership
        if asked.stage is not MembershipStage.JOINED:
            return
        seen = self._seen(asked)
        with self._lock:
            if self._membership is asked:
                self._membership = seen

    def _seen(self, asked: Membership) -> Membership:
        """Returns the membership after a description of the group by Kafka."""
        now = self._seconds()
        infos = self._admin.describe_topics(asked.topics)
        group = self._admin.describe_classic_group(asked.group)
        if isinstance(group, KafkaRefused):
            return replace(asked, stage=MembershipStage.SETTLED, since={})
        if not isinstance(group, GroupInfo) or group.state != "Stable":
            return replace(asked, since={})
        places = {
            (topic, partition)
            for topic, info in infos.items()
            if isinstance(info, TopicInfo)
            for partition in range(info.partitions)
        } - {place for member in group.members for place in member.assignment}
        may_come = any(not isinstance(info, TopicInfo) for info in infos.values())
        stage = MembershipStage.JOINED if places or may_come else MembershipStage.SETTLED
        return replace(asked, stage=stage, since={place: asked.since.get(place, now) for place in sorted(places)})
