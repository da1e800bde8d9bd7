"""What a pass over a DelayedTopicAudit knows, as an immutable value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.reasons import Reason
from delayed_topics_crds import DelayedTopic, DelayedTopicAudit

from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pod_spec import PodDefaults


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The audit can't begin yet."""

    reason: Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Unauditable:
    """No audit of this delayed topic can see what it needs, however long it waits."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The audit must not run with this connection, or in this installation."""

    message: str


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """`installation`: the namespace of the operator. `home`: the namespace of the Job. `files`: the connection, of which the Job gets a
    copy. None: no Job is to begin. Refused: the Job must not begin, or must not any more.

    `spark_applications`: whether this installation allows them. `most_local_disk_mebibytes`: how much of the node's disk each pod may
    have; None: there is no limit. `most_ttl_seconds`: how long the Job may be kept; None: there is no limit. `fs_group`: the group that
    may write to a volume; None: the cluster chooses it. `labels`, `annotations`: those of every pod in this installation. `defaults`:
    where pods run.
    """

    image: str
    image_pull_policy: str
    installation: str
    home: str
    files: Mapping[str, str] | Waiting | Refused | None
    spark_applications: bool = False
    most_local_disk_mebibytes: int | None = None
    most_ttl_seconds: int | None = None
    fs_group: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    defaults: PodDefaults = field(default_factory=PodDefaults)


@dataclass(frozen=True, kw_only=True)
class AuditObservation:
    """`job_name`: the name of the Job that the audit has or would get. `topic`: None if there is no such DelayedTopic. `barred`: why the
    objects of the audit were not observed; None: they were. `replaced`: whether these objects were made for another DelayedTopic, which
    had the name of `topic` before.

    `frozen`: the window, observed while nothing has begun. `ahead`: the audit of the same DelayedTopic that this one waits for. `job`: the
    Job or SparkApplication. `secret`: its Secret. `pods`: its pods, and those that Spark has created for it. `warnings`: Events that may
    say why there is no pod, or why one has not started.
    """

    now: datetime
    job_name: str
    audit: DelayedTopicAudit
    topic: DelayedTopic | None
    replaced: bool
    job_settings: JobSettings
    frozen: AuditWindow | Waiting | Unauditable | Refused | None
    ahead: str | None
    config_map: Manifest | None
    secret: Manifest | None
    job: Manifest | None
    pods: tuple[Manifest, ...]
    warnings: tuple[Manifest, ...] = ()
    barred: str | None = None

    @property
    def namespace(self) -> str:
        return self.audit.metadata.namespace or ""

    @property
    def name(self) -> str:
        return self.audit.metadata.name
