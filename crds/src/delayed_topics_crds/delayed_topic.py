"""DelayedTopic and its spec, which a team writes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import Resource, Rule, Spec, entries, label_keys, limits, matches
from delayed_topics_crds.common import ObjectName
from delayed_topics_crds.delayed_topic_status import DelayedTopicStatus
from delayed_topics_crds.pods import Affinity, LabelValue, ResourceRequirements, Some, Toleration
from delayed_topics_crds.schedule import ScheduledAudit

MAX_DELAY_SECONDS = 30 * 24 * 3600
MAX_PARTITIONS = 10_000
MAX_WORKERS = 1000
MAX_TOPIC_NAME_LENGTH = 249  # Kafka's
SUFFIXES = (".delays", ".ready", ".dead", ".control")
MAX_TOPIC_LENGTH = MAX_TOPIC_NAME_LENGTH - len(".control")  # the longest suffix
MAX_READY_TOPICS = 50
MAX_ANNOTATION = 4096
"""64 such values are as much as Kubernetes allows in all annotations of a pod."""

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ConnectionKind = Literal["ClusterKafkaConnection", "KafkaConnection"]
DeletionPolicy = Literal["Retain", "Delete"]
Guarantee = Literal["AtLeastOnce", "ExactlyOnce"]
RebalanceProtocol = Literal["Classic", "Consumer"]
Preset = Literal["RocketMQ18"]
PRESETS: Mapping[Preset, tuple[int, ...]] = {
    "RocketMQ18": (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200),
}
"""Named delay lists, in seconds. `RocketMQ18` is the default of RocketMQ's `messageDelayLevel`."""
Assignor = Literal["Range", "RoundRobin", "Sticky", "Uniform"]
ASSIGNORS: Mapping[RebalanceProtocol, tuple[Assignor, ...]] = {
    "Classic": ("Range", "RoundRobin", "Sticky"),
    "Consumer": ("Uniform", "Range"),
}
"""The assignors of each protocol. The first is the default."""


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _distinct_delays_of_preset() -> str:
    """Returns a CEL expression for the number of distinct delays of `self.preset`. It is 1 if there is no preset, which another rule
    refuses."""
    counts = ((name, len(set(delays))) for name, delays in PRESETS.items())
    return "!has(self.preset) ? 1 : " + "".join(f"self.preset == '{name}' ? {count} : " for name, count in counts) + "1"


_TOO_LONG = f"must have at most {MAX_TOPIC_LENGTH} characters: Kafka allows 249, and the operator appends '.control'"


def _reserved(topic: str, *, unless: str = "", say: str = "") -> tuple[Rule, ...]:
    """Returns rules that refuse names which would conflict with this project's own topics. `topic` is a CEL expression."""
    prefixes = " || ".join(f"{topic}.startsWith('{prefix}')" for prefix in ("__", "delayedtopics.", "delayedtopics_"))
    suffixes = " || ".join(f"{topic}.endsWith('{suffix}')" for suffix in SUFFIXES)
    return (
        Rule(
            cel=f"{unless}!({prefixes})",
            message=f"{say}must not start with '__', 'delayedtopics.' or 'delayedtopics_': choose another name",
        ),
        Rule(
            cel=f"{unless}!({suffixes})",
            message=f"{say}must not end with {_one_of([repr(s) for s in SUFFIXES])}: the operator appends these to the front topic's name",
        ),
    )


_PREFIXES, _SUFFIXES = _reserved("self")
TopicName = Annotated[
    str,
    matches(
        r"[a-zA-Z0-9._-]+",
        "must be a Kafka topic name: letters, digits, '.', '_' and '-' only",
        MAX_TOPIC_LENGTH,
        too_long=_TOO_LONG,
        headroom=8,
    ),
    Rule(cel="self != '.' && self != '..'", message="must not be '.' or '..': Kafka has no such topics"),
    _PREFIXES,
    _SUFFIXES,
]


ReadyTopicName = Annotated[
    str,
    matches(
        r"[a-zA-Z0-9._-]+",
        "must be a Kafka topic name: letters, digits, '.', '_' and '-' only",
        MAX_TOPIC_NAME_LENGTH,
        too_long=f"must have at most {MAX_TOPIC_NAME_LENGTH} characters",
        headroom=8,
    ),
    Rule(cel="self != '.' && self != '..'", message="must not be '.' or '..': Kafka has no such topics"),
    *_reserved("self"),
]
"""A ready topic can't be one of the topics of a delayed topic, because workers trust the records in those."""


class Ready(Spec):
    """The ready topics."""

    allowed_topics: Annotated[tuple[ReadyTopicName, ...], entries(0, MAX_READY_TOPICS, "topics")] = ()
    """Further ready topics, in addition to `<topic>.ready`. The header `dt-target` of a record names the one that the record comes out in.
    The operator does not create these topics. Their owner creates them and allows the workers to write there. A ClusterKafkaConnection must
    grant them in `allow[].readyTopicPrefixes`."""


class ConnectionRef(Spec):
    """A reference to the connection that says how to reach Kafka."""

    kind: ConnectionKind = "ClusterKafkaConnection"
    """The kind of the connection. A `KafkaConnection` is in the same namespace. A `ClusterKafkaConnection` is granted to the namespace by
    the cluster's owner."""
    name: ObjectName = "default"
    """The name of the connection."""


class Ladder(Spec):
    """Further delays of 1 s, `base` s, `base`² s and so on. They carry records to due times of their own."""

    max_seconds: Annotated[int, limits(1, MAX_DELAY_SECONDS, "seconds (30 days)")] = 65_536
    """The upper limit of the longest delay of the ladder, in seconds. A record that is due later takes the longest delay more than once.
    Defaults to 18 hours."""
    base: Annotated[int, limits(2, 60, "times")] = 2
    """The factor between one delay of the ladder and the next. A larger factor needs fewer partitions, but more copies of each record."""


class DeadLetter(Spec):
    """Settings of the dead-letter topic, `<topic>.dead`."""

    retention_seconds: Annotated[int, limits(60, 315_360_000, "seconds (10 years)")] = 2_592_000
    """How long the topic keeps dead letters at least, in seconds. It keeps them for no less than the other topics keep records, see
    `outageBudgetSeconds`. A lower value does not shorten the retention of an existing topic. Defaults to 30 days."""


class ControlTopic(Spec):
    """The control topic, `<topic>.control`. To cancel or reschedule a record, a producer writes a record there. The key is the `dt-id`. The
    value is `cancel`, or `deliver-at` and the new due time in milliseconds. A cancelled record goes to the dead-letter topic."""


class Rebalance(Spec):
    """How Kafka distributes partitions among the workers."""

    rules: ClassVar = (
        Rule(
            cel=(
                "!has(self.assignor) || ("
                + " || ".join(
                    f"self.protocol == '{protocol}' && self.assignor in {list(assignors)}"
                    for protocol, assignors in ASSIGNORS.items()
                )
                + ")"
            ),
            message="assignor must be "
            + ", and ".join(
                f"{_one_of(assignors)} with protocol {protocol}" for protocol, assignors in ASSIGNORS.items()
            ),
            field_path=".assignor",
        ),
    )

    protocol: RebalanceProtocol = "Classic"
    """The rebalance protocol of Kafka, `Classic` or `Consumer` (KIP-848, brokers 4.0 or newer). A change replaces the worker pods."""
    assignor: Assignor | None = None
    """Decides which worker gets which partition. The protocol `Classic` has `Range` (default), `RoundRobin` and `Sticky`. With `Sticky`, a
    partition that keeps its worker is served without interruption. The protocol `Consumer` has `Uniform` (default) and `Range`. For a
    change from or to `Sticky`, all workers stop before they start again. For any other change, workers are replaced one by one."""
    slow_seconds: Annotated[int, limits(1, 3600, "seconds")] = 30
    """A rebalance that takes longer than this, in seconds, raises the alarm `RebalanceSlow`."""


class WorkerTemplate(Spec):
    """Additions to the worker pods."""

    labels: Annotated[Mapping[str, LabelValue], label_keys(64, "labels")] | None = None
    """Labels to add to the pods."""
    annotations: (
        Annotated[Mapping[str, Annotated[str, Field(max_length=MAX_ANNOTATION)]], label_keys(64, "annotations")] | None
    ) = None
    """Annotations to add to the pods."""
    resources: ResourceRequirements | None = None
    """CPU and memory of a worker. Unless set, the operator uses its own defaults. The memory limit bounds how many records a worker
    holds."""
    node_selector: Annotated[Mapping[str, LabelValue], label_keys(64, "labels")] | None = None
    """Labels that a node must have to run a worker."""
    tolerations: Some[Toleration] | None = None
    """Taints of nodes that workers tolerate."""
    affinity: Affinity | None = None
    """Rules for the nodes on which workers run, and for the pods next to them."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of the workers."""


class Autoscale(Spec):
    """The range of worker counts from which the operator chooses."""

    rules: ClassVar = (Rule(cel="self.min <= self.max", message="min must not be above max", field_path=".min"),)

    min: Annotated[int, limits(1, MAX_WORKERS, "workers")] = 1
    """The fewest workers."""
    max: Annotated[int, limits(1, MAX_WORKERS, "workers")]
    """The most workers. There are never more workers than partitions, or than the connection grants."""


class Workers(Spec):
    """The worker pods, which move records between the topics."""

    replicas: Annotated[int, limits(0, MAX_WORKERS, "workers")] = 1
    """How many workers there are. `kubectl scale` writes this field. If there are more workers than partitions, some have nothing to do.
    With 0, no record is released. With `autoscale`, this is the number that scaling starts from, and 0 still stops all workers."""
    autoscale: Autoscale | None = None
    """Lets the operator decide how many workers there are. It counts the records that are due and not released yet, but not the records
    that wait for their due time. Unless set, `replicas` decides."""
    measure_due_lag: bool = False
    """Measures the records that are due and not released yet, for another autoscaler such as KEDA. The operator publishes their number as
    the metric `delayedtopics_operator_due_lag_records`, with 0 workers too. With `autoscale`, it always does."""
    template: WorkerTemplate | None = None
    """Additions to the worker pods. A change replaces the pods one by one."""


class DelayedTopicSpec(Spec):
    """The desired state."""

    rules: ClassVar = (
        Rule(
            cel="has(self.topic) == has(oldSelf.topic) && (!has(self.topic) || self.topic == oldSelf.topic)",
            message="topic must stay as it was created, set or not set: create a new DelayedTopic for another topic",
            field_path=".topic",
        ),
        Rule(
            cel="has(self.delaySeconds) != has(self.preset)",
            message="must have one of delaySeconds and preset, and not both",
        ),
        # The sum of 1/(how often a delay is listed) over the list is the number of distinct delays. This needs no CEL library that
        # older API servers lack. The topic never gets more partitions than the larger of `partitions`, which has a limit of its own,
        # and the result of this rule.
        Rule(
            cel=(
                "!has(self.lanesPerDelay) || self.lanesPerDelay * ((has(self.delaySeconds) ? int(self.delaySeconds.map(d,"
                " 1.0 / double(self.delaySeconds.filter(e, e == d).size())).sum() + 0.5) :"
                f" {_distinct_delays_of_preset()}) - 1)"
                f" < {MAX_PARTITIONS}"
            ),
            message=(
                f"lanesPerDelay x (distinct delays - 1) + 1 must be at most {MAX_PARTITIONS} partitions:"
                " use fewer lanes or fewer delays"
            ),
            field_path=".lanesPerDelay",
        ),
        Rule(
            cel="!has(self.audit) || !has(self.audit.output) || self.connectionRef.kind == 'KafkaConnection'",
            message=(
                "audit.output must come with a KafkaConnection: audits of a ClusterKafkaConnection run in a namespace whose"
                " claims and Secrets belong to the operator"
            ),
            field_path=".audit.output",
        ),
    )

    topic: TopicName | None = None
    """The front topic, to which any client produces. The topics `<topic>.delays`, `<topic>.ready`, `<topic>.dead` and `<topic>.control`
    belong to it. Defaults to `metadata.name`."""
    delay_seconds: (
        Annotated[
            tuple[Annotated[int, limits(0, MAX_DELAY_SECONDS, "seconds (30 days)")], ...], entries(1, 64, "delays")
        ]
        | None
    ) = None
    """The delay list, in seconds. Entry n is the wait before consumption attempt n, and the last entry repeats. Equal entries share their
    partitions."""
    preset: Preset | None = None
    """The name of a delay list, instead of `delaySeconds`. `RocketMQ18` has the 18 delay levels of RocketMQ, from 1 s to 2 h."""
    partitions: Annotated[int, limits(1, MAX_PARTITIONS, "partitions")] = 1
    """How many partitions `<topic>.delays` has. Every delay after the first gets `lanesPerDelay` of them, and the first delay gets all
    others, at least one. The topic has more partitions than this if the delays need more. The number grows and never shrinks."""
    lanes_per_delay: Annotated[int, limits(1, MAX_PARTITIONS, "partitions")] | None = None
    """How many partitions each delay after the first has, and each delay of the ladder. More lanes carry more records of a delay. Unless
    set, the delays of the list have equal shares of `partitions`, and those of the ladder have one partition each. A first delay of 0
    has no share, because records of the front topic do not wait there."""
    front_partitions: Annotated[int, limits(1, MAX_PARTITIONS, "partitions")] | None = None
    """How many partitions the front and the ready topic have. Unless set, the number is `partitions` less `lanesPerDelay`, or less 1 if
    that is not set, for each delay after the first. It is at least 1."""
    replication_factor: Annotated[int, limits(1, 100, "replicas")] | None = None
    """How many replicas each partition of the topics has. Defaults to 3, or to the highest number of brokers ever seen if that is less.
    With 1 or 2 replicas, a record counts as written when one broker has it. The condition `DurabilityReduced` says so."""
    retry_cap: Annotated[int, limits(0, 1000, "retries")] = 5
    """How often a record may be retried. A record that fails once more goes to the dead-letter topic."""
    ladder: Ladder | None = None
    """Lets each record name its own due time in the header `dt-deliver-at`, precise to the second or better. The operator adds
    `lanesPerDelay` partitions to `<topic>.delays` for each delay of the ladder. Unless set, such records go to the dead-letter topic."""
    max_delay_seconds: Annotated[int, limits(1, 315_360_000, "seconds (10 years)")] = MAX_DELAY_SECONDS
    """How far ahead a due time may lie, in seconds. Records that ask for more go to the dead-letter topic. Defaults to 30 days."""
    ready: Ready = Ready()
    """The ready topics, in addition to `<topic>.ready`."""
    dead_letter: DeadLetter = DeadLetter()
    """Settings of the dead-letter topic."""
    control: ControlTopic | None = None
    """Creates the control topic `<topic>.control`, in which producers cancel and reschedule records. Unless set, there is no control
    topic. If you remove this field, an existing control topic stays, and it is deleted with the other topics."""
    outage_budget_seconds: Annotated[int, limits(60, 31_536_000, "seconds (365 days)")] = 604_800
    """How long workers may release nothing without losing a record, in seconds. The topics keep records for the longest delay, this time
    and two days. With a ladder, its `maxDelaySeconds` counts as a delay. A lower value does not shorten the retention of existing
    topics. Defaults to 7 days."""
    workers: Workers | None = None
    """The workers of this DelayedTopic. Unless set, the connection's `sharedWorkers` serve it, if there are any and the guarantee is
    `AtLeastOnce`. Otherwise it has one worker of its own."""
    rebalance: Rebalance = Rebalance()
    """How Kafka distributes partitions among the workers."""
    guarantee: Guarantee = "AtLeastOnce"
    """What happens when a worker crashes. With `AtLeastOnce`, the records released since the last commit come out again. These are usually
    100 ms of records and never more than 5,000 records in a partition. With `ExactlyOnce`, workers release in transactions. A consumer with
    `isolation.level=read_committed` gets every record once, some 100 ms later. A change replaces the worker pods."""
    audit: ScheduledAudit | None = None
    """Audits on a schedule. Unless set, there are none."""
    compression: Compression = "lz4"
    """The compression of the records that workers write."""
    deletion_policy: DeletionPolicy = "Retain"
    """What happens to the topics when this resource is deleted. `Retain` keeps the topics, and the claim on them for the same namespace and
    name. `Delete` deletes the topics with all records."""
    paused: Annotated[bool, Strict()] = False
    """Whether workers stop releasing records. Records stay where they are. A pause that is longer than `outageBudgetSeconds` can lose
    records."""
    connection_ref: Annotated[
        ConnectionRef,
        Rule(
            cel="self == oldSelf",
            message="must stay as it was created: create a new DelayedTopic for another Kafka cluster",
        ),
    ] = ConnectionRef()
    """The connection that says how to reach Kafka."""


class DelayedTopic(Resource):
    """A topic whose records come out later, each at its own time. Failed records are retried after the delays of a list. When the retry cap
    is reached, a record ends in the dead-letter topic."""

    rules: ClassVar = (
        Rule(
            cel=f"has(self.spec.topic) || size(self.metadata.name) <= {MAX_TOPIC_LENGTH}",
            message=f"metadata.name is the front topic here and {_TOO_LONG}",
        ),
        *_reserved(
            "self.metadata.name", unless="has(self.spec.topic) || ", say="metadata.name is the front topic here and "
        ),
    )

    kind: Literal["DelayedTopic"]
    spec: DelayedTopicSpec
    """The desired state."""
    status: DelayedTopicStatus = Field(default_factory=DelayedTopicStatus)
    """The observed state. The operator writes it."""
