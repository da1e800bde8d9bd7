"""What a pass over one DelayedTopic knows: values only, gathered by `observe`, judged by `reconcile`."""

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
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a manifest asks for: its spec, and what follows from that in the terms of core. `targets`: ready topics that records may name.
    `own_workers`: it shares none. `replicas`, `protocol` and `assignor` become those that are granted, or that Kafka takes."""

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
        """Whether there is to be a control topic."""
        return self.spec.control is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that there are to be."""
        return self.names.possible if self.control else self.names.topics


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The resource itself. `accepted_losses`: ids of topics that the user gave up by annotation. `acknowledged_audit`: the audit whose
    violation the user knows about. `take_over_from`: whose topics it is to take over, by annotation; see `reconcile.take_over`."""

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
    """What the registry says of one topic. `holder`: whose claim counts for its names. `own`: the claim of this resource."""

    holder: Claim | None
    own: Claim | None
    layout: LayoutRecord | None
    topics: TopicsRecord | None


@dataclass(frozen=True, kw_only=True)
class KafkaView:
    """Kafka, as far as one delayed topic is concerned. `refused`: by topic and setting.

    `earliest`, `latest`: of partitions that the registry has no start offset for, without those that have no leader. `committed`: of
    partitions not known to have begun; of all, if the group has no members or its offsets are handed over. `load`: of a resource whose
    workers are scaled by it. `unmarked`: see `Executor.unmarked`.
    """

    registered: Registered
    topics: Mapping[str, TopicInfo | None]
    configs: Mapping[str, Mapping[str, str]]
    earliest: Mapping[TopicPartitionKey, int]
    latest: Mapping[TopicPartitionKey, int]
    committed: Mapping[TopicPartitionKey, OffsetAndMetadata | None]
    group: GroupInfo
    news: WorkerNews
    refused: Mapping[str, Mapping[str, Refusal]] = field(default_factory=dict)
    unmarked: Mapping[str, str] = field(default_factory=dict)
    load: Load | None = None


@dataclass(frozen=True, kw_only=True)
class GrantExceeded:
    """What is asked for beyond what the connection grants, in words; None: nothing.

    `topics`: why nothing is made, or why the topics stay as large as they are. `workers`: why there are fewer than asked for.
    """

    topics: ConditionState | None = None
    workers: str | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """`children`: live objects by (kind, name). `may_roll`: whether few enough other resources are rolling their workers.

    `worker_pods`, `warnings`: while not all workers are ready, their pods by name, and Events that may say what keeps them.
    `others`: what the rest of its namespace has by its connection. `own`: what this resource was granted before; see `Usage.noted`.
    `beyond`: see `reconcile.quota`.
    `refused_protocol`: see `reconcile.protocol`. `rebalance`: what the status is to say of the consumer group; see `reconcile.rebalances`.
    `autoscaled`: how many workers autoscaling wants. `scaled`: its decision, if that is a new one. See `reconcile.autoscale`.
    `in_vain`: actions that changed nothing when they were last executed, as where a webhook puts back what there was.
    `audits`: those that were made for its schedule. `taken`: names that the next of them can't have, since other audits have them.
    `vanished`: names of pods beyond the wanted replicas that were there at the last look and have gone.
    """

    now: datetime
    gone_after_seconds: float
    subject: Subject
    wanted: Wanted
    connection: Usable | Unusable
    kafka: KafkaView | None
    pods: PodSettings
    children: Mapping[tuple[str, str], Manifest]
    may_roll: bool = True
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
        """The consumer group that its workers are to have."""
        shared = self.shared_group
        return self.wanted.names.group if self.wanted.own_workers or shared is None else shared

    @property
    def shared_group(self) -> str | None:
        """That of the workers that DelayedTopics of the connection are to share, if there are any."""
        shared = self.connection.shared if isinstance(self.connection, Usable) else None
        return shared.group if shared is not None and not shared.leaving else None

    @property
    def group(self) -> str:
        """The consumer group that its workers have now, by the layout. Offsets are a group's; see `reconcile.handover`."""
        layout = self.kafka.registered.layout if self.kafka is not None else None
        return layout.group if layout is not None else self.wanted_group

    @property
    def shares_workers(self) -> bool:
        return self.group != self.wanted.names.group

    @property
    def has_own_workers(self) -> bool:
        """Whether it has them, or is to have them while others serve its topics until they are ready."""
        return self.wanted.names.group in (self.group, self.wanted_group)

    @property
    def leaves_own_workers(self) -> bool:
        """Shared workers are to have its topics, and its own serve them until those can. The spec says nothing of its own any more."""
        return self.group == self.wanted.names.group != self.wanted_group
