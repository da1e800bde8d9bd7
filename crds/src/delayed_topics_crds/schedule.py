"""Audits on a schedule, and what every audit can be given."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from delayed_topics_crds.base import Entries, Keys, LabelKeys, Limits, Matches, Rule, Spec
from delayed_topics_crds.common import ObjectName
from delayed_topics_crds.output import Output
from delayed_topics_crds.pods import LabelValue, Toleration

DEADLINE_SECONDS = 86_400
ActiveDeadlineSeconds = Annotated[int, Limits(1, 31_536_000, "seconds (365 days)")]
MaxLatenessMs = Annotated[int, Limits(0, 86_400_000, "milliseconds (1 day)")]

CRON_FIELD = r"[0-9A-Za-z*,/L#-]+"


SPARK_CONF = (
    "spark.default.parallelism",
    "spark.memory.fraction",
    "spark.memory.storageFraction",
    "spark.network.timeout",
    "spark.speculation",
    "spark.sql.adaptive.enabled",
    "spark.sql.shuffle.partitions",
    "spark.task.maxFailures",
)
"""What changes how fast an audit is, and neither what it does nor with whose rights."""


SparkMemory = Annotated[
    str,
    Matches(
        r"[1-9][0-9]{0,5}g|(51[2-9]|5[2-9][0-9]|[6-9][0-9]{2}|[1-9][0-9]{3,5})m",
        "must be a whole number with m or g, at least 512m, as 1g or 768m",
        7,
    ),
]


def mebibytes(memory: str) -> int:
    """Of what SparkMemory allows: `2g`, `768m`."""
    return int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)


DiskSize = Annotated[
    str, Matches(r"[1-9][0-9]{0,5}(Mi|Gi|Ti)", "must be a whole number with Mi, Gi or Ti, as 500Mi or 100Gi", 8)
]


class LocalDisk(Spec):
    """A disk that belongs to one pod, for as long as it is there."""

    size: DiskSize
    """How large it is. A pod that writes more to its node's disk is evicted."""
    storage_class_name: ObjectName | None = None
    """The StorageClass of a volume that is made for each pod. Unless set, it is a part of its node's disk."""


MAX_EXECUTORS = 100
MAX_CORES = 64


class Spark(Spec):
    """What the Spark job gets."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.minExecutors) || self.minExecutors <= self.executors",
            message="minExecutors must not be above executors, which is the most that there may be",
            field_path=".minExecutors",
        ),
        Rule(
            cel="self.mode != 'SparkApplication' || self.executors > 0",
            message="a SparkApplication must have executors: its driver only leads",
            field_path=".executors",
        ),
    )

    mode: Literal["Job", "SparkApplication"] = "Job"
    """What runs the audit: a Job, or a SparkApplication, which the Spark Operator of Kubeflow must be there to run."""
    executors: Annotated[int, Limits(0, MAX_EXECUTORS, "executors")] = 0
    """Pods that share the work, beside the one that leads; without any that one does it all."""
    min_executors: Annotated[int, Limits(0, MAX_EXECUTORS, "executors")] | None = None
    """Begin with so many, and make more up to `executors` while tasks wait for one; unless set, all are made at once."""
    cores: Annotated[int, Limits(1, MAX_CORES, "cores")] = 1
    """CPU cores, of each executor if there are any."""
    memory: SparkMemory = "1g"
    """Heap of each Java machine, in MiB (`m`) or GiB (`g`); Spark does not start with less than 512m."""
    local_disk: LocalDisk | None = None
    """Of each executor, or of the Job's pod if there are none: what does not fit into memory is written there. Unless set, each pod
    requests so much of its node's disk as the window needs."""
    node_selector: Annotated[Mapping[str, LabelValue], LabelKeys(16, "labels")] | None = None
    """Labels that a node must have, for the Job's pod and for executors."""
    tolerations: Annotated[tuple[Toleration, ...], Entries(0, 16, "tolerations")] | None = None
    """Taints that don't keep them away."""
    client_rack: (
        Annotated[
            str,
            Matches(r"[a-zA-Z0-9._-]+", "must be letters, digits, '.', '_' and '-', as broker.rack of a broker", 63),
        ]
        | None
    ) = None
    """`client.rack` of what reads Kafka, where brokers let consumers read from the nearest replica. Unless set, the zone of each pod's
    node, which pods know since Kubernetes 1.35."""
    conf: (
        Annotated[
            Mapping[str, Annotated[str, Field(max_length=100)]],
            Keys(SPARK_CONF, "the rest of Spark's settings is the operator's"),
        ]
        | None
    ) = None
    """Settings of Spark, by name."""


class ScheduledAudit(Spec):
    """DelayedTopicAudits that the operator makes. Each goes on where the one before ended."""

    schedule: Annotated[
        str,
        Matches(
            rf"{CRON_FIELD}( {CRON_FIELD}){{4}}",
            "must be five cron fields, as '0 3 * * *' for every day at 3:00 UTC",
            120,
        ),
    ]
    """When, as a cron expression of five fields, in UTC. A time that comes while an audit runs is made up for after it."""
    history_limit: Annotated[int, Limits(1, 100, "audits")] = 7
    """How many finished ones of these are kept."""
    max_lateness_ms: MaxLatenessMs = 1000
    """As `spec.maxLatenessMs` of a DelayedTopicAudit."""
    spark: Spark = Spark()
    """As `spec.spark` of a DelayedTopicAudit."""
    active_deadline_seconds: ActiveDeadlineSeconds = DEADLINE_SECONDS
    """As `spec.activeDeadlineSeconds` of a DelayedTopicAudit."""
    output: Output | None = None
    """As `spec.output` of a DelayedTopicAudit: each keeps its account in a folder of its own, which is yours to remove."""
