"""What is to be done: values that `execute` walks and `explain` prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import RegistryRecord, TopicsRecord
from delayed_topics_crds import DelayedTopicStatus, QuotaUsed
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_operator.values.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class AddFinalizer:
    """Before anything is made. `uid`: of the resource; one that was made under the same name since does not get it. `installation`: noted
    with it, as the one that began; None: nothing is noted."""

    uid: str
    installation: str | None = None


@dataclass(frozen=True, kw_only=True)
class RemoveFinalizer:
    """After everything is removed, or left behind as the policy says."""


@dataclass(frozen=True, kw_only=True)
class WriteRegistry:
    """`why` is a phrase for people."""

    record: RegistryRecord
    why: str


@dataclass(frozen=True, kw_only=True)
class RemoveFromRegistry:
    keys: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True)
class CreateTopics:
    """`record`: what is noted of the resource's topics before; the ids of those that can't be marked are added to it."""

    specs: tuple[NewTopicSpec, ...]
    record: TopicsRecord


@dataclass(frozen=True, kw_only=True)
class GrowTopic:
    """`total`: partitions afterwards."""

    topic: str
    present: int
    total: int


@dataclass(frozen=True, kw_only=True)
class AlterSettings:
    """`settings`: those that differ. `present`: what they are now."""

    topic: str
    settings: Mapping[str, str]
    present: Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class CommitOffsets:
    """For the group, before it has members."""

    group: str
    offsets: Mapping[TopicPartitionKey, int]


@dataclass(frozen=True, kw_only=True)
class DeleteGroup:
    group: str


@dataclass(frozen=True, kw_only=True)
class FenceWorkers:
    """Those that are gone for good, by their transactional ids: what they left open holds readers back no longer."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DeleteTopics:
    topics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ApplyChild:
    """`change`: created, repaired (it had drifted) or changed (something else is wanted). `rolls`: its pods are replaced."""

    manifest: Manifest = field(repr=False)
    change: Literal["created", "repaired", "changed"]
    rolls: bool = False

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, kw_only=True)
class ScaleWorkers:
    """Of a StatefulSet, whose pods stay as they are: how many there are does not wait for a rollout that is held back."""

    namespace: str
    name: str
    uid: str
    present: int
    replicas: int


@dataclass(frozen=True, kw_only=True)
class DeleteChild:
    """`orphan`: what it made stays; a StatefulSet is made again around its pods."""

    kind: str
    namespace: str
    name: str
    uid: str
    orphan: bool = False


Action = (
    AddFinalizer
    | RemoveFinalizer
    | WriteRegistry
    | RemoveFromRegistry
    | CreateTopics
    | GrowTopic
    | AlterSettings
    | CommitOffsets
    | DeleteGroup
    | FenceWorkers
    | DeleteTopics
    | ApplyChild
    | ScaleWorkers
    | DeleteChild
)


@dataclass(frozen=True, kw_only=True)
class ConditionState:
    """One condition without the time of its last transition."""

    status: Literal["True", "False", "Unknown"]
    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An Event for the resource. `outlives_namespace`: it is about what stays, and so is told of the Namespace if the resource's is
    being deleted and takes no Events any more."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    outlives_namespace: bool = False


Conditions = Mapping[Condition, ConditionState]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found. `proceed`: later checks may go on."""

    actions: tuple[Action, ...] = ()
    conditions: Conditions = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    proceed: bool = True
    wake_seconds: float | None = None


def merged(findings: Sequence[Finding]) -> Finding:
    """What all of them found. Of a condition that several have, the last one counts."""
    return Finding(
        actions=tuple(action for finding in findings for action in finding.actions),
        conditions={kind: said for finding in findings for kind, said in finding.conditions.items()},
        notices=tuple(notice for finding in findings for notice in finding.notices),
        proceed=all(finding.proceed for finding in findings),
        wake_seconds=min((f.wake_seconds for f in findings if f.wake_seconds is not None), default=None),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Executed in order. A failure at Kafka ends what is to be done there, and one in Kubernetes what is to be done there; see
    `Executor.execute`. `wake_seconds`: when to look again, beside the resync. `status` None: leave it. `takes`: what the resource has of
    its namespace's quota from now on; None: as before. `decided`: a status that is written before the actions, since the passes that
    follow go by what it decides; None: they decide nothing new."""

    actions: tuple[Action, ...] = ()
    status: DelayedTopicStatus | None = None
    notices: tuple[Notice, ...] = ()
    wake_seconds: float | None = None
    takes: QuotaUsed | None = None
    decided: DelayedTopicStatus | None = None
