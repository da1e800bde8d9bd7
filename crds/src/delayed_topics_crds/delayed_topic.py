"""DelayedTopic, spec: what a team writes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from delayed_topics_crds.base import Entries, LabelKeys, Limits, Matches, Resource, Rule, Spec
from delayed_topics_crds.common import ObjectName
from delayed_topics_crds.delayed_topic_status import DelayedTopicStatus
from delayed_topics_crds.pods import Affinity, LabelValue, ResourceRequirements, Toleration
from delayed_topics_crds.schedule import ScheduledAudit

MAX_DELAY_SECONDS = 30 * 24 * 3600
MAX_PARTITIONS = 10_000
MAX_WORKERS = 1000
MAX_TOPIC_NAME_LENGTH = 249  # Kafka's
SUFFIXES = (".delays", ".ready", ".dead", ".control")
MAX_TOPIC_LENGTH = MAX_TOPIC_NAME_LENGTH - len(".control")  # the longest suffix
MAX_READY_TOPICS = 50

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ConnectionKind = Literal["ClusterKafkaConnection", "KafkaConnection"]
DeletionPolicy = Literal["Retain", "Delete"]
Guarantee = Literal["AtLeastOnce", "ExactlyOnce"]
RebalanceProtocol = Literal["Classic", "Consumer"]
Preset = Literal["RocketMQ18"]
Assignor = Literal["Range", "RoundRobin", "Sticky", "Uniform"]
ASSIGNORS: Mapping[RebalanceProtocol, tuple[Assignor, ...]] = {
    "Classic": ("Range", "RoundRobin", "Sticky"),
    "Consumer": ("Uniform", "Range"),
}
"""Those of each protocol; the first is the default."""


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


_TOO_LONG = f"must have at most {MAX_TOPIC_LENGTH} characters: Kafka allows 249 and '.control' is appended"


def _reserved(topic: str, *, unless: str = "", say: str = "") -> tuple[Rule, ...]:
    """Names that would get in the way of the system's own topics; `topic` is a CEL expression."""
    prefixes = " || ".join(f"{topic}.startsWith('{prefix}')" for prefix in ("__", "delayedtopics.", "delayedtopics_"))
    suffixes = " || ".join(f"{topic}.endsWith('{suffix}')" for suffix in SUFFIXES)
    return (
        Rule(
            cel=f"{unless}!({prefixes})",
            message=f"{say}must not start with '__', 'delayedtopics.' or 'delayedtopics_': choose another name",
        ),
        Rule(
            cel=f"{unless}!({suffixes})",
            message=f"{say}must not end with {_one_of([repr(s) for s in SUFFIXES])}: those are appended to the front topic's name",
        ),
    )


_PREFIXES, _SUFFIXES = _reserved("self")
TopicName = Annotated[
    str,
    Matches(
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
    Matches(
        r"[a-zA-Z0-9._-]+",
        "must be a Kafka topic name: letters, digits, '.', '_' and '-' only",
        MAX_TOPIC_NAME_LENGTH,
        too_long=f"must have at most {MAX_TOPIC_NAME_LENGTH} characters",
        headroom=8,
    ),
    Rule(cel="self != '.' && self != '..'", message="must not be '.' or '..': Kafka has no such topics"),
    *_reserved("self"),
]
"""No delayed topic's own: what is written there is believed."""


class Ready(Spec):
    """Where records come out."""

    allowed_topics: Annotated[tuple[ReadyTopicName, ...], Entries(0, MAX_READY_TOPICS, "topics")] = ()
    """Topics besides `<topic>.ready` into which a record is released if its header `dt-target` names one. They are not made: whoever
    owns them does, and allows the workers to write there. A ClusterKafkaConnection has to grant them (`allow[].readyTopicPrefixes`)."""


class ConnectionRef(Spec):
    """The resource that says how to reach Kafka."""

    kind: ConnectionKind = "ClusterKafkaConnection"
    """`KafkaConnection` is one of the same namespace, `ClusterKafkaConnection` one that the cluster's owner grants."""
    name: ObjectName = "default"
    """Its name."""


class Ladder(Spec):
    """The delays by which records get to due times of their own: 1 s, `base`, `base`², and so on."""

    max_seconds: Annotated[int, Limits(1, MAX_DELAY_SECONDS, "seconds (30 days)")] = 65_536
    """The longest of them is at most as long, in seconds; 18 hours unless set. A record that is due later takes the longest one again."""
    base: Annotated[int, Limits(2, 60, "times")] = 2
    """How many times as long as the one before each delay is: the more, the fewer partitions, and the more copies on the way."""


class DeadLetter(Spec):
    """The dead-letter topic, `<topic>.dead`."""

    retention_seconds: Annotated[int, Limits(60, 315_360_000, "seconds (10 years)")] = 2_592_000
    """For how long dead letters are kept, in seconds; 30 days unless set."""


class ControlTopic(Spec):
    """The control topic, `<topic>.control`. Whoever may write there cancels a record by one with its `dt-id` as key and the value
    `cancel`: it goes to the dead-letter topic instead of coming out."""


class Rebalance(Spec):
    """How partitions are shared out among workers."""

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
    """Kafka's rebalance protocol: `Classic`, or `Consumer` (KIP-848, brokers 4.0 or newer). Changing it rolls the workers."""
    assignor: Assignor | None = None
    """Who gets which partition. With `Classic`: `Range` unless set, `RoundRobin`, or `Sticky`, by which partitions that stay where they are
    are not interrupted. With `Consumer`: `Uniform` unless set, or `Range`. From and to `Sticky` all workers stop before they start again,
    others are replaced one by one."""
    slow_seconds: Annotated[int, Limits(1, 3600, "seconds")] = 30
    """A rebalance that takes longer raises the alarm `RebalanceSlow`, in seconds."""


class WorkerTemplate(Spec):
    """What is added to the worker pods."""

    labels: Annotated[Mapping[str, LabelValue], LabelKeys(64, "labels")] | None = None
    """Labels added to the pods."""
    annotations: Annotated[Mapping[str, str], LabelKeys(64, "annotations")] | None = None
    """Annotations added to the pods."""
    resources: ResourceRequirements | None = None
    """CPU and memory of the worker; the operator's defaults unless set. The memory limit bounds what a worker holds."""
    node_selector: Annotated[Mapping[str, LabelValue], LabelKeys(64, "labels")] | None = None
    """Labels that a node must have."""
    tolerations: tuple[Toleration, ...] | None = None
    """Taints that don't keep workers away."""
    affinity: Affinity | None = None
    """Where workers go, and with whom."""
    priority_class_name: ObjectName | None = None
    """The workers' PriorityClass."""


class Autoscale(Spec):
    """How many workers there may be, when the operator decides."""

    rules: ClassVar = (Rule(cel="self.min <= self.max", message="min must not be above max", field_path=".min"),)

    min: Annotated[int, Limits(1, MAX_WORKERS, "workers")] = 1
    """The fewest workers."""
    max: Annotated[int, Limits(1, MAX_WORKERS, "workers")]
    """The most workers. There are never more than partitions, or than the connection grants."""


class Workers(Spec):
    """The pods that move records."""

    replicas: Annotated[int, Limits(0, MAX_WORKERS, "workers")] = 1
    """How many workers; `kubectl scale` writes it. More workers than partitions have nothing to do; 0 stops releasing. With `autoscale`
    it is what scaling begins with, and 0 still stops all of them."""
    autoscale: Autoscale | None = None
    """Has the operator decide how many workers there are, by the records that are due and not released yet; records that wait for
    their time don't count. Not set: `replicas` decides."""
    template: WorkerTemplate | None = None
    """What is added to the worker pods. Changing it rolls them."""


class DelayedTopicSpec(Spec):
    """What is wanted."""

    rules: ClassVar = (
        Rule(
            cel="has(self.topic) == has(oldSelf.topic) && (!has(self.topic) || self.topic == oldSelf.topic)",
            message="topic must stay as it was created, set or not set: make a new DelayedTopic for another topic",
            field_path=".topic",
        ),
        Rule(
            cel="has(self.delaySeconds) != has(self.preset)",
            message="must have one of delaySeconds and preset, and not both",
        ),
        # The sum of 1/(how often a delay is listed) over the list counts the distinct delays, without a library that
        # older API servers lack; a preset has 18. Partitions beyond max(partitions, this) are never made, and partitions has
        # its own limit.
        Rule(
            cel=(
                "self.lanesPerDelay * ((has(self.delaySeconds) ? int(self.delaySeconds.map(d,"
                " 1.0 / double(self.delaySeconds.filter(e, e == d).size())).sum() + 0.5) : 18) - 1)"
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
                "audit.output must come with a KafkaConnection: with a cluster connection audits run in a namespace of the"
                " operator's, whose claims and Secrets are nobody else's"
            ),
            field_path=".audit.output",
        ),
    )

    topic: TopicName | None = None
    """The front topic, where any client produces; `metadata.name` unless set. `<topic>.delays`, `<topic>.ready`, `<topic>.dead`
    and `<topic>.control` belong to it."""
    delay_seconds: (
        Annotated[
            tuple[Annotated[int, Limits(0, MAX_DELAY_SECONDS, "seconds (30 days)")], ...], Entries(1, 64, "delays")
        ]
        | None
    ) = None
    """The delay list, in seconds: entry n is the wait before consumption attempt n, the last entry repeats. Equal
    entries share their partitions."""
    preset: Preset | None = None
    """A delay list by its name, instead of `delaySeconds`. `RocketMQ18`: the 18 delay levels of RocketMQ, from 1 s to 2 h."""
    partitions: Annotated[int, Limits(1, MAX_PARTITIONS, "partitions")] = 1
    """Partitions of `<topic>.delays`. Every delay after the first gets `lanesPerDelay` of them and the first all others,
    at least one, even if that makes more than asked for. They grow and never shrink."""
    lanes_per_delay: Annotated[int, Limits(1, MAX_PARTITIONS, "partitions")] = 1
    """Partitions for each delay after the first: more carry more records of that delay."""
    front_partitions: Annotated[int, Limits(1, MAX_PARTITIONS, "partitions")] | None = None
    """Partitions of the front and the ready topic; those of the first delay unless set."""
    replication_factor: Annotated[int, Limits(1, 100, "replicas")] | None = None
    """Copies of each partition of its topics; 3 unless set, or the highest number of brokers ever seen if that is
    less. With 1 or 2 a record counts as written when one broker has it: the condition `DurabilityReduced` says so."""
    retry_cap: Annotated[int, Limits(0, 1000, "retries")] = 5
    """How often a record may be retried; what fails once more goes to the dead-letter topic."""
    ladder: Ladder | None = None
    """Has records come out at due times of their own, to the second or better, in the header `dt-deliver-at`. Adds partitions to
    `<topic>.delays`, `lanesPerDelay` for each delay of the ladder. Not set: such records go to the dead-letter topic."""
    max_delay_seconds: Annotated[int, Limits(1, 315_360_000, "seconds (10 years)")] = MAX_DELAY_SECONDS
    """How far ahead a due time may lie, in seconds; 30 days unless set. Records that ask for more go to the dead-letter topic."""
    ready: Ready = Ready()
    """Where records come out, besides `<topic>.ready`."""
    dead_letter: DeadLetter = DeadLetter()
    """The dead-letter topic."""
    control: ControlTopic | None = None
    """Has records cancelled by writing to `<topic>.control`: the `dt-id` of a record as key and `cancel` as value make a dead letter of
    it. Not set: there is no control topic. One that was made stays when this is removed, and is deleted with the others."""
    outage_budget_seconds: Annotated[int, Limits(60, 31_536_000, "seconds (365 days)")] = 604_800
    """For how long releasing may stand still without losing a record, in seconds; 7 days unless set. Records are kept
    for the longest delay and this."""
    workers: Workers | None = None
    """The pods that move records. Not set: those that DelayedTopics of its connection share, if there are such (`sharedWorkers`) and
    the guarantee is AtLeastOnce; else one pod of its own."""
    rebalance: Rebalance = Rebalance()
    """How partitions are shared out among workers."""
    guarantee: Guarantee = "AtLeastOnce"
    """What a crash of a worker may do: `AtLeastOnce` repeats what was released since the last commit, usually 100 ms of it
    and never more than 5,000 records a partition; `ExactlyOnce` releases in transactions, so that a consumer with
    `isolation.level=read_committed` gets every record once, and some 100 ms later. Changing it rolls the workers."""
    audit: ScheduledAudit | None = None
    """Audits on a schedule; none unless set."""
    compression: Compression = "lz4"
    """How workers compress what they write."""
    deletion_policy: DeletionPolicy = "Retain"
    """What happens to the topics when this resource is deleted: `Retain` keeps them, and the claim on them for the same
    namespace and name; `Delete` deletes them with all records."""
    paused: Annotated[bool, Strict()] = False
    """Stops releasing; records stay where they are. Mind `outageBudgetSeconds`."""
    connection_ref: Annotated[
        ConnectionRef,
        Rule(
            cel="self == oldSelf",
            message="must stay as it was created: make a new DelayedTopic for another Kafka cluster",
        ),
    ] = ConnectionRef()
    """The connection that says how to reach Kafka."""


class DelayedTopic(Resource):
    """A topic whose records come out later, each at its own time, are retried along a list of delays, and end in a
    dead-letter topic when the cap is reached."""

    rules: ClassVar = (
        Rule(
            cel=f"has(self.spec.topic) || size(self.metadata.name) <= {MAX_TOPIC_LENGTH}",
            message=f"metadata.name is the topic here and {_TOO_LONG}",
        ),
        *_reserved("self.metadata.name", unless="has(self.spec.topic) || ", say="metadata.name is the topic here and "),
    )

    kind: Literal["DelayedTopic"]
    spec: DelayedTopicSpec
    """What is wanted."""
    status: DelayedTopicStatus = Field(default_factory=DelayedTopicStatus)
    """What there is, written by the operator."""
