"""Arguments and results of admin calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from delayed_topics_core.offsets import TopicPartitionKey


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterInfo:
    """`brokers` has the ids of the brokers that are up."""

    cluster_id: str
    brokers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicInfo:
    """The description of a topic.

    `id` is spelled as Kafka's own tools print it. `replication_factor` is the lowest of all partitions. `leaders_known` is True if all
    partitions have a leader, and `leaderless` has those that have none. `lagging` has the partitions with replicas out of sync.
    `left_out` has the settings that Kafka refused, if the topic was just created.
    """

    name: str
    id: str
    partitions: int
    replication_factor: int
    leaders_known: bool
    leaderless: tuple[int, ...] = ()
    lagging: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTopicSpec:
    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMember:
    """`target` is the assignment that the member is moving to; None under the classic protocol."""

    client_id: str
    assignment: tuple[TopicPartitionKey, ...]
    target: tuple[TopicPartitionKey, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupInfo:
    """`state` is spelled as in Kafka: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead, Unknown.

    A group that doesn't exist is Dead. Under the consumer protocol, a group in a rebalance is Unknown. `settled` says whether every
    member has its target assignment. `assignor` is spelled as in Kafka, and empty if the group has none.
    """

    group: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]
    assignor: str = ""

    @property
    def settled(self) -> bool:
        return self.state in ("Stable", "Empty", "Dead") and all(
            m.target is None or set(m.target) == set(m.assignment) for m in self.members
        )
