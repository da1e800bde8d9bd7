"""What a pass over a DelayedTopicAudit knows. A value: nothing in it changes any more."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.reasons import Reason
from delayed_topics_crds import DelayedTopic, DelayedTopicAudit

from delayed_topics_operator.values.manifest import Manifest


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
    """Not with this connection, or not in this installation."""

    message: str


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """`installation`: the namespace of the operator. `home`: that of the Job. `files`: the connection, of which it gets a copy; None
    while no Job is to begin. Refused: it must not, or must not any more.

    `spark_applications`: whether this installation has them; without, none of them is looked at.
    `most_local_disk_mebibytes`: what each pod may have of its node's; None: nobody limits it.
    `fs_group`: the group that may write to a volume; None: the cluster chooses it. `labels`, `annotations`: those that every pod
    has in this installation.
    """

    image: str
    image_pull_policy: str
    installation: str
    home: str
    files: Mapping[str, str] | Waiting | Refused | None
    spark_applications: bool = False
    most_local_disk_mebibytes: int | None = None
    fs_group: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditObservation:
    """`job_name`: of the Job that it has or would get. `topic` None: there is no such DelayedTopic. `barred`: why nobody has looked for
    what there is of the audit; None: it was looked for. `replaced`: what there is of the audit was made for another one, which had the
    name of `topic` before.

    `frozen`: looked for while nothing has begun. `ahead`: an older audit of the same DelayedTopic that has no verdict yet.
    `job`: what runs it, a Job or a SparkApplication. `secret`: its own. `pods`: its own, and those that Spark has made for it.
    `warnings`: Events that may say why there is none, or why one has not started.
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
