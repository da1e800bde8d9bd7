"""The Events about a change of status. Pure."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.words import counted
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopicStatus
from delayed_topics_crds.common import StatusBase

from delayed_topics_operator.values.plan import Notice

WARNED = frozenset(
    {
        Reason.SPEC_INVALID,
        Reason.CONNECTION_MISSING,
        Reason.CREDENTIALS_MISSING,
        Reason.KAFKA_UNREACHABLE,
        Reason.TOKEN_MISSING,
        Reason.KAFKA_REFUSED,
        Reason.NOT_ALLOWED,
        Reason.GRANT_EXCEEDED,
        Reason.CLUSTER_CHANGED,
        Reason.REGISTRY_LOST,
        Reason.REGISTRY_TOO_LARGE,
        Reason.CLAIMED_BY_OTHER,
        Reason.TOPIC_FOREIGN,
        Reason.TOPIC_RECREATED,
        Reason.TOPIC_MISSING,
        Reason.PARTITIONS_FOREIGN,
        Reason.WORKERS_FAILING,
        Reason.SCALED_TO_ZERO,
        Reason.PROTOCOL_REFUSED,
        Reason.KUBERNETES_REFUSED,
        Reason.QUOTA_EXCEEDED,
    }
)


def autoscaled(before: DelayedTopicStatus, after: DelayedTopicStatus) -> tuple[Notice, ...]:
    """Returns an Event if autoscaling has scaled the workers between the two statuses."""
    known = before.workers.last_scaled if before.workers is not None else None
    found = after.workers.last_scaled if after.workers is not None else None
    if found is None or found == known:
        return ()
    message = f"scaled from {found.from_replicas} to {counted(found.to_replicas, 'worker')}: {found.message}"
    return (Notice(type="Normal", reason="WorkersScaled", message=message),)


def notices(before: StatusBase, after: StatusBase) -> tuple[Notice, ...]:
    """Returns Events if Ready became True, or has a new reason that warns, and if an alarm was raised or cleared."""
    found: list[Notice] = []
    was, now = _of(before, Condition.READY), _of(after, Condition.READY)
    if now is not None and now.status == "True" and (was is None or was.status != "True"):
        found.append(Notice(type="Normal", reason="Ready", message=now.message))
    if now is not None and now.reason in WARNED and (was is None or was.reason != now.reason):
        found.append(Notice(type="Warning", reason=now.reason, message=now.message))
    was, now = _of(before, Condition.ALARM), _of(after, Condition.ALARM)
    if (
        now is not None
        and now.status == "True"
        and (was is None or (was.status, was.reason) != (now.status, now.reason))
    ):
        found.append(Notice(type="Warning", reason=now.reason, message=now.message))
    if now is not None and now.status == "False" and was is not None and was.status == "True":
        found.append(Notice(type="Normal", reason="AlarmCleared", message=now.message))
    return tuple(found)


def _of(status: StatusBase, kind: Condition) -> StatusCondition | None:
    return next((c for c in status.conditions if c.type == kind), None)
