"""The status of a DelayedTopic. Its size is bounded, it has no fast-changing counters, and the operator writes it only when it changes."""

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
    """The partitions of `<topic>.delays` that have one delay."""

    delay_seconds: int
    """The delay of these partitions, in seconds. It never changes."""
    partitions: str
    """The partitions, in the form `0-8,12`."""
    role: RangeRole
    """What the partitions are for. `main` is the first delay, and `delay` is a further delay of the list. `ladder` is a delay of the
    ladder. `retired` is a delay that left the list, and workers serve it to its end."""


class LadderStatus(Status):
    """How often workers copy a record with a due time of its own until it is due. The copy into the ready topic is not included."""

    average_hops: int
    """The average number of copies, for due times that are spread evenly over the longest delay of the ladder."""
    max_hops: int
    """The highest number of copies, for a due time that is as far ahead as `spec.maxDelaySeconds` allows."""


class LayoutStatus(Status):
    """Which partition of `<topic>.delays` stands for which delay. This is a copy for people, and the registry decides."""

    generation: int
    """The number of the layout. It rises with each change of the layout."""
    state: LayoutState
    """The state of the layout. It is `planned` until Kafka has the partitions, and then `serving`. Workers do not serve a layout that is
    `retired`."""
    ranges: tuple[LayoutRange, ...] = ()
    """The partitions of each delay."""
    ladder: LadderStatus | None = None
    """How often workers copy a record with a due time of its own. It is unset without `spec.ladder`."""


class TopicStatus(Status):
    """A topic that belongs to the DelayedTopic."""

    role: TopicRole
    """What the topic is for."""
    name: str
    """The name of the topic in Kafka."""
    id: str | None = None
    """The topic id in Kafka. A topic with another id is another topic, even under the same name."""
    partitions: int | None = None
    """How many partitions the topic has."""
    replication_factor: int | None = None
    """How many replicas each partition has."""


class WorkersScaled(Status):
    """A decision of autoscaling."""

    time: Time
    """When the operator made the decision."""
    from_replicas: int
    """The desired number of workers before the decision."""
    to_replicas: int
    """The desired number of workers since the decision."""
    message: str
    """The reason for the decision."""


class WorkersStatus(Status):
    """The state of the worker pods."""

    replicas: int
    """How many workers there are."""
    ready_replicas: int = 0
    """How many workers are ready."""
    selector: str | None = None
    """The label selector of the pods, for autoscalers."""
    wanted_replicas: int | None = None
    """How many workers autoscaling asks for. There may be fewer if the connection does not grant so many. It is unset without
    `spec.workers.autoscale`."""
    last_scaled: WorkersScaled | None = None
    """The last decision of autoscaling that changed `wantedReplicas`."""
    shared: bool = False
    """Whether the workers also serve other DelayedTopics of the connection."""


class GroupMember(Status):
    """A worker in the consumer group."""

    name: str
    """The name of the pod."""
    partitions: str
    """The partitions that the worker serves, in the form `orders:0-3 orders.delays:0-2`."""


class RebalanceRecord(Status):
    """A rebalance. It is a generation of the consumer group in which partitions of the delayed topic went to another worker."""

    generation: int
    """The generation of the group, as Kafka counts it. With the protocol `Consumer`, it is the epoch of the group."""
    reason: str
    """Why partitions moved. The reason is `WorkerJoined`, `WorkerLeft`, `WorkerLost`, `TopicChanged`, `SpecChanged` or `Unknown`. A worker
    is lost if it was killed, or cut off from Kafka for longer than its session."""
    started_at: Time
    """When the first of the moved partitions stopped being served. For a lost worker, it is the session timeout before other workers got
    its partitions."""
    duration_ms: int | None = None
    """The time until all moved partitions were served again, in milliseconds. It is unset until then."""
    moved_partitions: int
    """How many partitions went to another worker."""
    affected_workers: int
    """How many workers gave up or received a partition."""
    unaffected_workers: int
    """How many other workers have partitions."""
    in_flight_records: int | None = None
    """How many records the workers had released, but not committed, when they gave up their partitions. These records may come twice
    without the guarantee `ExactlyOnce`. It is unset until all of these workers have reported, which a worker that was killed never does."""
    delayed_records: int | None = None
    """How many records were due before their partition was served again, and so came out late. It is unset until all of them have come
    out."""


class RefusedProtocol(Status):
    """A rebalance protocol or assignor of the spec that Kafka refuses. The workers use `Classic` with `Range` until the spec changes."""

    generation: int
    """The `metadata.generation` of the spec that asks for it."""
    message: str
    """Why Kafka refuses it, in the words of a worker."""


class RebalanceStatus(Status):
    """The state of the consumer group of the workers."""

    state: GroupState
    """The state of the group."""
    protocol: str | None = None
    """The protocol in use, `Classic` or `Consumer`."""
    assignor: str | None = None
    """The assignor in use, under its name in Kafka, such as `range` or `cooperative-sticky`."""
    members: Annotated[tuple[GroupMember, ...], Field(max_length=MAX_MEMBERS)] = ()
    """The first 50 members of the group, sorted by name."""
    member_count: int = 0
    """How many members the group has in total."""
    rebalancing_since: Time | None = None
    """Since when the state has been `Rebalancing`. It is unset in any other state."""
    refused: RefusedProtocol | None = None
    """The refusal by Kafka. It is set while the workers use another protocol or assignor than the spec asks for."""
    count: int = 0
    """How many rebalances there have been."""
    recent: Annotated[tuple[RebalanceRecord, ...], Field(max_length=MAX_RECENT)] = ()
    """The last ten rebalances, the latest one first."""


class LastAudit(Status):
    """The latest finished audit of all records, or of a chain."""

    name: str
    """The name of the DelayedTopicAudit."""
    verdict: Verdict
    """The verdict of the audit."""
    started_at: Time
    """When the operator froze the offsets of the audit. The latest audit is the one with the latest offsets."""
    time: Time
    """When the audit finished."""
    reason: str
    """The reason of the verdict, as in the condition `Verified` of the audit."""
    message: str
    """The verdict in a sentence."""


class LastViolation(Status):
    """The latest broken promise that an audit found, no matter which records it looked at."""

    name: str
    """The name of the DelayedTopicAudit."""
    started_at: Time
    """When the operator froze the offsets of the audit."""
    time: Time
    """When the audit finished."""
    message: str
    """Which promise was broken, and for which records."""
    acknowledge_as: str
    """The value of the annotation `delayedtopics.io/acknowledged-audit` that acknowledges this broken promise: the name of the audit. If an
    earlier audit of the same name is known, `startedAt` follows the name, after a `/`."""


class DelayedTopicStatus(StatusBase):
    """The observed state. The operator writes it."""

    topic: str | None = None
    """The front topic."""
    produce_to: str | None = None
    """The topic to produce to."""
    consume_from: str | None = None
    """The topic in which records come out when they are due."""
    dead_letter_to: str | None = None
    """The topic for records that failed too often."""
    delays: str | None = None
    """The delay list in a form for people, such as `0s,10s,1m`."""
    group: str | None = None
    """The consumer group of the workers."""
    layout: LayoutStatus | None = None
    """Which partition stands for which delay."""
    topics: Annotated[tuple[TopicStatus, ...], ListMap("role")] = ()
    """The topics of the DelayedTopic that exist."""
    workers: WorkersStatus | None = None
    """The state of the worker pods."""
    rebalance: RebalanceStatus | None = None
    """The state of the consumer group of the workers, and its rebalances."""
    last_audit: LastAudit | None = None
    """The latest finished audit of all records, or of a chain."""
    last_violation: LastViolation | None = None
    """The latest broken promise that an audit found. The condition `DeliveryVerified` stays False until the annotation
    `delayedtopics.io/acknowledged-audit` has the value of `acknowledgeAs`."""
