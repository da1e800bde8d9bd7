"""Audits on a schedule, and the settings that every audit can have."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from delayed_topics_crds.base import Rule, Spec, entries, keys, label_keys, limits, matches
from delayed_topics_crds.common import ObjectName
from delayed_topics_crds.output import Output
from delayed_topics_crds.pods import LabelValue, Toleration

DEADLINE_SECONDS = 86_400
ActiveDeadlineSeconds = Annotated[int, limits(1, 31_536_000, "seconds (365 days)")]
TTL_SECONDS = 86_400
TtlSeconds = Annotated[int, limits(0, 31_536_000, "seconds (365 days)")]
MaxLatenessMs = Annotated[int, limits(0, 86_400_000, "milliseconds (1 day)")]

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
"""Settings of Spark that change how fast an audit is, but neither what it does nor with whose rights."""


SparkMemory = Annotated[
    str,
    matches(
        r"[1-9][0-9]{0,5}g|(51[2-9]|5[2-9][0-9]|[6-9][0-9]{2}|[1-9][0-9]{3,5})m",
        "must be a whole number with m or g, at least 512m, such as 1g or 768m",
        7,
    ),
]


def mebibytes(memory: str) -> int:
    """Returns a SparkMemory value, such as `2g` or `768m`, in MiB."""
    return int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)


DiskSize = Annotated[
    str, matches(r"[1-9][0-9]{0,5}(Mi|Gi|Ti)", "must be a whole number with Mi, Gi or Ti, such as 500Mi or 100Gi", 8)
]


class LocalDisk(Spec):
    """Local disk that belongs to one pod, for as long as the pod exists."""

    size: DiskSize
    """The size of the disk. A pod that writes more to its node's disk is evicted."""
    storage_class_name: ObjectName | None = None
    """The StorageClass of a volume that Kubernetes creates for each pod. Unless set, a pod gets a part of its node's disk."""


MAX_EXECUTORS = 100
MAX_CORES = 64


class Spark(Spec):
    """Resources and settings of the Spark job."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.minExecutors) || self.minExecutors <= self.executors",
            message="minExecutors must not be above executors, which is the maximum",
            field_path=".minExecutors",
        ),
        Rule(
            cel="self.mode != 'SparkApplication' || self.executors > 0",
            message="a SparkApplication must have executors: its driver only coordinates them",
            field_path=".executors",
        ),
    )

    mode: Literal["Job", "SparkApplication"] = "Job"
    """The kind of object that runs the audit. A SparkApplication needs the Spark Operator of Kubeflow in the cluster."""
    executors: Annotated[int, limits(0, MAX_EXECUTORS, "executors")] = 0
    """How many executor pods share the work. The Job's pod then only leads. With 0 executors, it does all the work itself."""
    min_executors: Annotated[int, limits(0, MAX_EXECUTORS, "executors")] | None = None
    """How many executors the audit starts with. Spark adds more, up to `executors`, while tasks wait for one. Unless set, all executors
    start at once."""
    cores: Annotated[int, limits(1, MAX_CORES, "cores")] = 1
    """CPU cores of each executor, or of the Job's pod if there are no executors."""
    memory: SparkMemory = "1g"
    """The heap of each Java process, in MiB (`m`) or GiB (`g`). Spark does not start with less than 512m."""
    local_disk: LocalDisk | None = None
    """Local disk of each executor, or of the Job's pod if there are no executors. Spark writes data there that does not fit into memory.
    Unless set, each pod requests as much of its node's disk as the window needs."""
    node_selector: Annotated[Mapping[str, LabelValue], label_keys(16, "labels")] | None = None
    """Labels that a node must have to run the Job's pod and the executors."""
    tolerations: Annotated[tuple[Toleration, ...], entries(0, 16, "tolerations")] | None = None
    """Taints of nodes that the Job's pod and the executors tolerate."""
    client_rack: (
        Annotated[
            str,
            matches(r"[a-zA-Z0-9._-]+", "must be letters, digits, '.', '_' and '-', like broker.rack of a broker", 63),
        ]
        | None
    ) = None
    """The `client.rack` of the audit's consumers, for brokers that let consumers read from the nearest replica. Unless set, each pod uses
    the zone of its node, which pods know since Kubernetes 1.35."""
    conf: (
        Annotated[
            Mapping[str, Annotated[str, Field(max_length=100)]],
            keys(SPARK_CONF, "the operator controls the other settings of Spark"),
        ]
        | None
    ) = None
    """Settings of Spark, by their names."""


class ScheduledAudit(Spec):
    """DelayedTopicAudits that the operator creates on a schedule. Each one continues where the one before ended."""

    schedule: Annotated[
        str,
        matches(
            rf"{CRON_FIELD}( {CRON_FIELD}){{4}}",
            "must be five cron fields, such as '0 3 * * *' for every day at 3:00 UTC",
            120,
        ),
    ]
    """When to audit, as a cron expression of five fields in UTC. If times of the schedule pass while an audit runs, one audit makes up for
    them afterwards."""
    history_limit: Annotated[int, limits(1, 100, "audits")] = 7
    """How many finished audits of the schedule are kept."""
    max_lateness_ms: MaxLatenessMs = 1000
    """The same as `spec.maxLatenessMs` of a DelayedTopicAudit."""
    spark: Spark = Spark()
    """The same as `spec.spark` of a DelayedTopicAudit."""
    active_deadline_seconds: ActiveDeadlineSeconds = DEADLINE_SECONDS
    """The same as `spec.activeDeadlineSeconds` of a DelayedTopicAudit."""
    output: Output | None = None
    """The same as `spec.output` of a DelayedTopicAudit. Each audit keeps its account in a folder of its own. Nothing removes these folders,
    so remove them yourself."""
