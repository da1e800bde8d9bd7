"""Plans: values that `engine/execute.py` executes and `explain.py` puts into words."""

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
    """Adds the finalizer, before anything is made for the resource. `uid`: the UID of the resource, so that one that was created since
    under the same name does not get the finalizer. `installation`: the installation that begins, recorded in the same call; None: none
    is recorded."""

    uid: str
    installation: str | None = None


@dataclass(frozen=True, kw_only=True)
class RemoveFinalizer:
    """Removes the finalizer, after everything was removed, or left behind as the deletion policy requires."""


@dataclass(frozen=True, kw_only=True)
class WriteRegistry:
    """`why`: what the record changes, as a phrase for people."""

    record: RegistryRecord
    why: str


@dataclass(frozen=True, kw_only=True)
class RemoveFromRegistry:
    keys: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True)
class CreateTopics:
    """`record`: the registry's record of the resource's topics so far. The ids of topics that can't be marked are added to it."""

    specs: tuple[NewTopicSpec, ...]
    record: TopicsRecord


@dataclass(frozen=True, kw_only=True)
class GrowTopic:
    """`present`, `total`: the number of partitions before and afterwards."""

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
    """Commits the start offsets of a group, before it has members."""

    group: str
    offsets: Mapping[TopicPartitionKey, int]


@dataclass(frozen=True, kw_only=True)
class DeleteGroup:
    group: str


@dataclass(frozen=True, kw_only=True)
class FenceWorkers:
    """Fences workers that are gone for good, by their transactional ids, so that their open transactions no longer hold readers back."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DeleteTopics:
    topics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ApplyChild:
    """`change`: created, repaired (it had drifted) or changed (something else is wanted). `rolls`: whether its pods are replaced."""

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
    """Changes only the number of pods of a StatefulSet, so that scaling does not wait for a rollout that is held back. `rolls`: whether all
    pods stop because others are to start in their place."""

    namespace: str
    name: str
    uid: str
    present: int
    replicas: int
    rolls: bool = False


@dataclass(frozen=True, kw_only=True)
class DeleteChild:
    """`orphan`: the object's dependents stay. A StatefulSet is then created again, and adopts its pods."""

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
    """An Event about the resource. `outlives_namespace`: it is about something that stays, so it is written about the Namespace if the
    namespace is being deleted and takes no Events any more. `of_installation`: it says the same about many resources of a kind, and is
    written about the first of them."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    outlives_namespace: bool = False
    of_installation: bool = False


Conditions = Mapping[Condition, ConditionState]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check. `proceed`: whether later checks run. `wake_seconds`: see Plan."""

    actions: tuple[Action, ...] = ()
    conditions: Conditions = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    proceed: bool = True
    wake_seconds: float | None = None


def merged(findings: Sequence[Finding]) -> Finding:
    """Combines the findings. If several have the same condition, the last one counts."""
    return Finding(
        actions=tuple(action for finding in findings for action in finding.actions),
        conditions={kind: state for finding in findings for kind, state in finding.conditions.items()},
        notices=tuple(notice for finding in findings for notice in finding.notices),
        proceed=all(finding.proceed for finding in findings),
        wake_seconds=min((f.wake_seconds for f in findings if f.wake_seconds is not None), default=None),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The actions are executed in order. A failure at Kafka ends those at Kafka, and one in Kubernetes those that depend on it; see
    `Executor.execute`. `status`: None leaves it as it is. `wake_seconds`: when to look again, in addition to the resync. `takes`: what the
    resource has of its namespace's quota from now on; None: as before. `decided`: a status that is written before the actions, because
    later passes depend on what it decides; None: nothing new is decided."""

    actions: tuple[Action, ...] = ()
    status: DelayedTopicStatus | None = None
    notices: tuple[Notice, ...] = ()
    wake_seconds: float | None = None
    takes: QuotaUsed | None = None
    decided: DelayedTopicStatus | None = None
