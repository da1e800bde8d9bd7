"""What is to be done about an audit."""

from dataclasses import dataclass

from delayed_topics_crds import DelayedTopicAuditStatus, DelayedTopicStatus

from delayed_topics_operator.values.plan import (
    AddFinalizer,
    ApplyChild,
    DeleteChild,
    Notice,
    RemoveFinalizer,
    WriteRegistry,
)


@dataclass(frozen=True, kw_only=True)
class Expire:
    """Lets Kubernetes remove the Job `seconds` after its end, and the ConfigMap with it, because the verdict was read."""

    namespace: str
    job: str
    job_uid: str
    config_map: str | None
    seconds: int


AuditAction = AddFinalizer | RemoveFinalizer | ApplyChild | DeleteChild | WriteRegistry | Expire


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """`topic_status`: what this controller owns of the DelayedTopic's status. A status of None stays as it is. `wake_seconds`: None if
    nothing is left to do."""

    actions: tuple[AuditAction, ...] = ()
    status: DelayedTopicAuditStatus | None = None
    topic_status: DelayedTopicStatus | None = None
    notices: tuple[Notice, ...] = ()
    wake_seconds: float | None = None
