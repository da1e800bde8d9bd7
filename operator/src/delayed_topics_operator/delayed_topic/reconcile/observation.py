"""Defines the observation: what a pass over one DelayedTopic knows. It has values only; `observe` gathers them and `reconcile` judges
them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from delayed_topics_core.layout import LayoutSpec
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.registry import Claim, LayoutRecord, Owner, TopicsRecord
from delayed_topics_crds import DelayedTopicStatus, QuotaUsed, RebalanceStatus, RefusedProtocol, WorkersScaled
from delayed_topics_crds.delayed_topic import (
    Assignor,
    Autoscale,
    DelayedTopicSpec,
    RebalanceProtocol,
    WorkerTemplate,
)
from delayed_topics_kafka.model import GroupInfo, TopicInfo

from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.delayed_topic.reconcile.load import Load
from delayed_topics_operator.values.eventlog import WorkerNews
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ConditionState
from delayed_topics_operator.values.refusal import Refusal
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a manifest asks for: its spec, and what follows from the spec in the terms of core. `targets`: ready topics that records may
    name. `own_workers`: the resource shares no workers. `replicas`, `protocol` and `assignor` are later replaced by what is granted, or by
    what Kafka supports."""

    spec: DelayedTopicSpec = field(repr=False)
    names: TopicNames
    layout: LayoutSpec
    targets: tuple[str, ...]
    front_partitions: int
    own_workers: bool
    replicas: int
    autoscale: Autoscale | None = None
    measures_due_lag: bool = False
    template: WorkerTemplate
    protocol: RebalanceProtocol
    assignor: Assignor
    connection: Key

    @property
    def control(self) -> bool:
        """Whether the spec asks for a control topic."""
        return self.spec.control is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics that the spec asks for."""
        return self.names.possible if self.control else self.names.topics


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The resource itself. `accepted_losses`: ids of topics whose loss the user accepts by annotation. `acknowledged_audit`: the audit
    whose violation the user has acknowledged. `take_over_from`: the annotation that says whose topics to take over; see
    `reconcile.take_over`."""

    owner: Owner
    uid: str
    generation: int
    has_finalizer: bool
    deleting: bool
    plan_only: bool
    accepted_losses: frozenset[str]
    status: DelayedTopicStatus
    namespace_labels: Mapping[str, str]
    namespace_terminating: bool
    created_at: datetime | None = None
    acknowledged_audit: str | None = None
    take_over_from: str = ""

    @property
    def namespace(self) -> str:
        return self.owner.namespace

    @property
    def name(self) -> str:
        return self.owner.name


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What the registry says of one delayed topic. `holder`: the claim that counts for its names. `own`: the claim of this resource."""

    holder: Claim | None
    own: Claim | None
    layout: LayoutRecord | None
    topics: TopicsRecord | None


@dataclass(frozen=True, kw_only=True)
class KafkaView:
    """The state of Kafka that concerns one delayed topic. `refused`: the settings that Kafka refused, by topic and setting.
    `registry_fullness`: how much of the limit the whole registry has, from 0 to 1.

    `earliest`, `latest`: offsets of partitions that have no start offset in the registry. Partitions without a leader are left out, except
    at an adoption. `committed`: commits of partitions that are not known to have begun; of all partitions if the group has no members or
    its offsets are handed over. `load`: None unless the due lag is measured. `unmarked`: see `Executor.unmarked`.
    """

    registered: Registered
    topics: Mapping[str, TopicInfo | None]
    configs: Mapping[str, Mapping[str, str]]
    earliest: Mapping[TopicPartitionKey, int]
    latest: Mapping[TopicPartitionKey, int]
    committed: Mapping[TopicPartitionKey, OffsetAndMetadata | None]
    group: GroupInfo
    news: WorkerNews
    registry_fullness: float = 0.0
    refused: Mapping[str, Mapping[str, Refusal]] = field(default_factory=dict)
    unmarked: Mapping[str, str] = field(default_factory=dict)
    load: Load | None = None


@dataclass(frozen=True, kw_only=True)
class GrantExceeded:
    """Why the resource does not get all that the spec asks for; None where the grants allow it.

    `topics`: why no topics are created, or why they stay as large as they are. `workers`: why there are fewer workers.
    """

    topics: ConditionState | None = None
    workers: str | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """`children`: live objects by (kind, name). `rollout`: whether its pods may be replaced now.

    `worker_pods`, `warnings`: the pods by name, and Events that may say why they are not ready; both are empty if all workers are ready.
    `others`: what the rest of the namespace uses of its quota on this connection. `own`: what this resource was granted before; see
    `Usage.noted`. `beyond`: what exceeds the grants; see `reconcile.quota`. `refused_protocol`: see `reconcile.protocol`. `rebalance`: what
    the status will report about the consumer group; see `reconcile.rebalances`. `autoscaled`: how many workers autoscaling wants. `scaled`:
    its decision, if it is new; for both see `reconcile.autoscale`. `in_vain`: actions that changed nothing when they were last executed,
    for example because a webhook reverted them. `audits`: the audits that the schedule made. `taken`: the names of other audits, which
    audits of the schedule can't have. `vanished`: names of pods beyond the wanted replicas that existed at the last look and are gone now.
    """

    now: datetime
    gone_after_seconds: float
    subject: Subject
    wanted: Wanted
    connection: Usable | Unusable
    kafka: KafkaView | None
    pods: PodSettings
    children: Mapping[tuple[str, str], Manifest]
    rollout: Rollout = field(default_factory=Rollout)
    in_vain: tuple[Action, ...] = ()
    others: QuotaUsed = field(default_factory=QuotaUsed)
    own: QuotaUsed = field(default_factory=QuotaUsed)
    beyond: GrantExceeded = GrantExceeded()
    refused_protocol: RefusedProtocol | None = None
    rebalance: RebalanceStatus | None = None
    autoscaled: int | None = None
    scaled: WorkersScaled | None = None
    audits: tuple[Manifest, ...] = ()
    taken: frozenset[str] = frozenset()
    vanished: tuple[str, ...] = ()
    worker_pods: tuple[Manifest, ...] = ()
    warnings: tuple[Manifest, ...] = ()

    @property
    def wanted_group(self) -> str:
        """The consumer group of the workers that should serve the topics."""
        shared = self.shared_group
        return self.wanted.names.group if self.wanted.own_workers or shared is None else shared

    @property
    def shared_group(self) -> str | None:
        """The consumer group of the shared workers of the connection; None if there are none."""
        shared = self.connection.shared if isinstance(self.connection, Usable) else None
        return shared.group if shared is not None and not shared.leaving else None

    @property
    def group(self) -> str:
        """The consumer group that the layout names: its workers serve the topics now. Offsets belong to a group; see
        `reconcile.handover`."""
        layout = self.kafka.registered.layout if self.kafka is not None else None
        return layout.group if layout is not None else self.wanted_group

    @property
    def shares_workers(self) -> bool:
        return self.group != self.wanted.names.group

    @property
    def has_own_workers(self) -> bool:
        """Whether the resource has own workers, or will have them while other workers serve its topics until the own ones are ready."""
        return self.wanted.names.group in (self.group, self.wanted_group)

    @property
    def leaves_own_workers(self) -> bool:
        """Whether the topics are to move to shared workers, and the own workers serve them until then. The spec no longer describes own
        workers."""
        return self.group == self.wanted.names.group != self.wanted_group
