"""Arguments and results of admin calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from delayed_topics_core.offsets import TopicPartitionKey


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterInfo:
    """`brokers`: the ids of those that answer."""

    cluster_id: str
    brokers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicInfo:
    """`id` as Kafka's own tools print it. `replication_factor`: the lowest of its partitions. `leaders_known`: all partitions serve.
    `leaderless`: partitions that don't. `lagging`: those that have replicas out of sync. `left_out`: of a topic that was just made, the
    settings that Kafka refused.
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
    """`target` is what the member shall have once it has followed; None under the classic protocol."""

    client_id: str
    assignment: tuple[TopicPartitionKey, ...]
    target: tuple[TopicPartitionKey, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupInfo:
    """`state` as Kafka spells it: Stable, PreparingRebalance, CompletingRebalance, Empty, Dead, Unknown.

    A group that doesn't exist is Dead. Under the consumer protocol a rebalance under way shows as Unknown: `settled` tells
    whether every member has what it shall have. `assignor`: as Kafka names it; empty while there is none.
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
