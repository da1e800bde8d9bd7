"""DelayedTopic, status: what there is. Bounded, without counters, written only when it changed."""

from typing import Annotated, Literal

from pydantic import Field

from delayed_topics_crds.base import ListMap, Status, Time
from delayed_topics_crds.common import StatusBase, Verdict

MAX_MEMBERS = 50
MAX_RECENT = 10

GroupState = Literal["Stable", "Rebalancing", "Empty", "Unknown"]
LayoutState = Literal["planned", "serving", "retired"]
RangeRole = Literal["main", "delay", "ladder", "retired"]
TopicRole = Literal["front", "delays", "ready", "dead-letter", "control"]


class LayoutRange(Status):
    """The partitions of `<topic>.delays` with one delay."""

    delay_seconds: int
    """Their delay, in seconds; it never changes."""
    partitions: str
    """The partitions, as `0-8,12`."""
    role: RangeRole
    """`main` is the first delay, `delay` a further one, `ladder` one that due times are reached by, `retired` one that left the list
    and is served to its end."""


class LadderStatus(Status):
    """What due times cost: how often a record is copied until it is due. The copy into the ready topic comes on top."""

    average_hops: int
    """On average, for due times that are spread evenly over the longest delay of the ladder."""
    max_hops: int
    """At most, for a due time that is as far ahead as `spec.maxDelaySeconds` allows."""


class LayoutStatus(Status):
    """Which partition of `<topic>.delays` stands for which delay; a copy for people, the truth is the registry."""

    generation: int
    """Counts the changes of the layout."""
    state: LayoutState
    """`planned` until Kafka has the partitions, then `serving`."""
    ranges: tuple[LayoutRange, ...] = ()
    """The partitions, delay by delay."""
    ladder: LadderStatus | None = None
    """What due times cost; unset without `spec.ladder`."""


class TopicStatus(Status):
    """One of its topics."""

    role: TopicRole
    """Which of them."""
    name: str
    """Its name in Kafka."""
    id: str | None = None
    """Kafka's topic id: another id is another topic, even under the same name."""
    partitions: int | None = None
    """How many partitions it has."""
    replication_factor: int | None = None
    """How many copies of each."""


class WorkersScaled(Status):
    """A decision of autoscaling."""

    time: Time
    """When it was made."""
    from_replicas: int
    """How many workers were wanted before."""
    to_replicas: int
    """How many are wanted since."""
    message: str
    """Why."""


class WorkersStatus(Status):
    """The pods that move records."""

    replicas: int
    """How many there are."""
    ready_replicas: int = 0
    """How many are ready."""
    selector: str | None = None
    """The label selector of the pods, for autoscalers."""
    wanted_replicas: int | None = None
    """How many autoscaling wants; unset without `spec.workers.autoscale`. There may be fewer, where the connection grants no more."""
    last_scaled: WorkersScaled | None = None
    """The last decision of autoscaling that changed `wantedReplicas`."""
    shared: bool = False
    """Whether they serve other DelayedTopics of the connection, too."""


class GroupMember(Status):
    """A worker in the consumer group."""

    name: str
    """The pod."""
    partitions: str
    """What it serves, as `orders:0-3 orders.delays:0-2`."""


class RebalanceRecord(Status):
    """A rebalance: a generation of the consumer group in which partitions of the delayed topic went to another worker."""

    generation: int
    """Of the group, as Kafka counts them; with the protocol `Consumer` its epoch."""
    reason: str
    """Why: `WorkerJoined`, `WorkerLeft`, `WorkerLost` (it was killed, or cut off for longer than its session),
    `TopicChanged` or `Unknown`."""
    started_at: Time
    """When the first of the moved partitions stopped being served. Of a worker that was lost: its session timeout before
    others got them."""
    duration_ms: int | None = None
    """Until all of them were served again, in milliseconds; unset while they are not."""
    moved_partitions: int
    """How many went to another worker."""
    affected_workers: int
    """Workers that gave or got one of them."""
    unaffected_workers: int
    """Other workers that have partitions."""
    delayed_records: int | None = None
    """Records that were due before their partition was served again, and so came out late; unset while there are some."""


class RefusedProtocol(Status):
    """Kafka refuses the rebalance protocol of the spec, or its assignor. The workers have `Classic` with `Range` until the spec changes."""

    generation: int
    """Of the resource, whose spec asks for it."""
    message: str
    """Why, as a worker said it."""


class RebalanceStatus(Status):
    """The consumer group of the workers."""

    state: GroupState
    """The group's state."""
    protocol: str | None = None
    """The protocol in use, `Classic` or `Consumer`."""
    assignor: str | None = None
    """Kafka's name of the assignor in use, as `range` or `cooperative-sticky`."""
    members: Annotated[tuple[GroupMember, ...], Field(max_length=MAX_MEMBERS)] = ()
    """The first 50 members, by name."""
    member_count: int = 0
    """How many members there are in all."""
    rebalancing_since: Time | None = None
    """Since when the state is `Rebalancing`; unset otherwise."""
    refused: RefusedProtocol | None = None
    """Set while the workers have another protocol than the spec asks for."""
    count: int = 0
    """How many rebalances there have been."""
    recent: Annotated[tuple[RebalanceRecord, ...], Field(max_length=MAX_RECENT)] = ()
    """The last ten rebalances, the latest first."""


class LastAudit(Status):
    """The latest audit of all records, or of a chain, that finished."""

    name: str
    """The DelayedTopicAudit."""
    verdict: Verdict
    """What it found."""
    started_at: Time | None = None
    """When its offsets were frozen. The latest audit is the one with the latest offsets."""
    time: Time
    """When it finished."""
    reason: str | None = None
    """The verdict's reason, as in the audit's condition `Verified`."""
    message: str | None = None
    """The verdict in a sentence."""


class LastViolation(Status):
    """The latest broken promise that an audit found, of whatever records."""

    name: str
    """The DelayedTopicAudit."""
    started_at: Time | None = None
    """When its offsets were frozen."""
    time: Time
    """When it finished."""
    message: str
    """What was broken, and of which records."""


class DelayedTopicStatus(StatusBase):
    """What there is, written by the operator."""

    topic: str | None = None
    """The front topic."""
    produce_to: str | None = None
    """Where to produce."""
    consume_from: str | None = None
    """Where records come out when they are due."""
    dead_letter_to: str | None = None
    """Where records end that failed too often."""
    delays: str | None = None
    """The delay list for people, as `0s,10s,1m`."""
    group: str | None = None
    """The consumer group of the workers."""
    layout: LayoutStatus | None = None
    """Which partition stands for which delay."""
    topics: Annotated[tuple[TopicStatus, ...], ListMap("role")] = ()
    """Its topics, as far as they were made."""
    workers: WorkersStatus | None = None
    """The pods that move records."""
    rebalance: RebalanceStatus | None = None
    """The consumer group of the workers."""
    last_audit: LastAudit | None = None
    """The latest audit of all records, or of a chain, that finished."""
    last_violation: LastViolation | None = None
    """The latest broken promise that an audit found. `DeliveryVerified` stays False until the annotation
    `delayedtopics.io/acknowledged-audit` names that audit."""
