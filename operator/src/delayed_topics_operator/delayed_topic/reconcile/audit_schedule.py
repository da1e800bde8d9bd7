"""Creates the audits of `spec.audit.schedule`, one after the other, and deletes the oldest ones.

If scheduled times passed while the operator was away, or while an audit still ran, one audit for the last of them makes up for all. Each
audit begins where the one before ended, so no record is left out.
"""

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import API_VERSION, to_dict
from delayed_topics_crds.schedule import ScheduledAudit

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.schedule import last_time, times
from delayed_topics_operator.delayed_topic.reconcile.verdict import unacknowledged
from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.values.labels import MANAGED_BY
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import ApplyChild, ConditionState, DeleteChild, Finding, Notice

SCHEDULED_FOR = "delayedtopics.io/scheduled-for"
TIME = "%Y-%m-%dT%H:%M:%SZ"
SECOND = timedelta(seconds=1)
MAX_NAME = 253
RETRY_SECONDS = 10.0


def check(o: Observation) -> Finding:
    asked = o.wanted.spec.audit
    if asked is None:
        return Finding()
    last = max((_made_for(audit, o.now) for audit in o.audits), default=o.subject.created_at or o.now)
    # if the operator's clock was ahead, an audit may exist for a time after `last`
    made = {audit["metadata"]["name"] for audit in o.audits}
    try:
        passed = last_time(asked.schedule, o.now + SECOND)
        last = max(last, passed - SECOND) if passed is not None else last
        first = _next(o, asked, last, made)
        due = _next(o, asked, last, made | o.taken)
    except SpecInvalid as e:
        state = ConditionState(status="False", reason=Reason.SPEC_INVALID, message=str(e))
        return Finding(conditions={Condition.READY: state})
    notices = (_passed_over(o, first, due),) if first < due and first <= o.now else ()
    done = sorted((audit for audit in o.audits if _verdict(audit)), key=_created)
    known = _acknowledged(o, done)
    outdated = tuple(
        _delete(audit)
        for at, audit in enumerate(done[: max(0, len(done) - asked.history_limit)])
        if at < known or _verdict(audit) != "Violated"
    )
    if len(done) < len(o.audits):
        return Finding(actions=outdated, notices=notices, wake_seconds=RETRY_SECONDS)
    if due <= o.now:
        another = ApplyChild(manifest=_audit(o, asked, due), change="created")
        return Finding(actions=(*outdated, another), notices=notices)
    return Finding(actions=outdated, notices=notices, wake_seconds=(due - o.now).total_seconds())


def _next(o: Observation, asked: ScheduledAudit, last: datetime, taken: Set[str]) -> datetime:
    """Returns the first time after `last` whose audit would have a name that is not taken. Raises SpecInvalid."""
    return next(at for at in times(asked.schedule, last) if audit_name(o.subject.name, at) not in taken)


def audit_name(topic: str, at: datetime) -> str:
    """Returns a name that follows from the time, like the name of a Job of a CronJob: an operator that is killed and restarted does not
    create the audit twice."""
    suffix = f"-{int(at.timestamp()) // 60}"
    return topic[: MAX_NAME - len(suffix)].rstrip("-.") + suffix


def stems(audit: Manifest) -> tuple[tuple[str, str]]:
    """The index for `Store.by_index`: the namespace, and the name without the time, which all audits of one schedule have in common."""
    meta = audit["metadata"]
    return ((str(meta["namespace"]), stem(str(meta["name"]))),)


def stem(name: str) -> str:
    return name.rpartition("-")[0]


def _passed_over(o: Observation, at: datetime, due: datetime) -> Notice:
    message = (
        f"DelayedTopicAudit {audit_name(o.subject.name, at)} has the name that the audit of the schedule would get, and either is not of "
        f"the schedule, or is being deleted. So the next audit of the schedule is the one for {due.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    return Notice(type="Warning", reason=Reason.AUDIT_WAITING, message=message)


def _acknowledged(o: Observation, done: Sequence[Manifest]) -> int:
    """Returns how many of the finished audits came no later than the acknowledged audit, which need not be one of the schedule."""
    name, last = (o.subject.acknowledged_audit or "").partition("/")[0], o.subject.status.last_violation
    if last is not None and unacknowledged(o) is None:
        return len(done)
    if last is not None and last.name == name:
        return 0  # somebody acknowledged an earlier audit of that name
    return next((at + 1 for at, audit in enumerate(done) if audit["metadata"]["name"] == name), 0)


def _created(audit: Manifest) -> datetime:
    return datetime.fromisoformat(audit["metadata"]["creationTimestamp"])


def _made_for(audit: Manifest, now: datetime) -> datetime:
    """Returns the time up to which the audit covers the schedule: one audit stands for all scheduled times that had passed at its
    creation. The operator's clock says which had, and may have been ahead of the API server's. A time that is yet to come does not count:
    either the clock is right again, or somebody has edited the annotation."""
    annotation = (audit["metadata"].get("annotations") or {}).get(SCHEDULED_FOR) or ""
    try:
        at = datetime.strptime(annotation, TIME).replace(tzinfo=UTC)
    except ValueError:
        return _created(audit)
    return max(at, _created(audit)) if at <= now else _created(audit)


def _audit(o: Observation, asked: ScheduledAudit, at: datetime) -> Manifest:
    owner = {"apiVersion": API_VERSION, "kind": "DelayedTopic", "name": o.subject.name, "uid": o.subject.uid}
    return {
        "apiVersion": API_VERSION,
        "kind": "DelayedTopicAudit",
        "metadata": {
            "name": audit_name(o.subject.name, at),
            "namespace": o.subject.namespace,
            "labels": {"app.kubernetes.io/managed-by": MANAGED_BY},
            "annotations": {SCHEDULED_FOR: at.astimezone(UTC).strftime(TIME)},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "delayedTopicRef": {"name": o.subject.name},
            "window": {"sinceLast": True},
            "maxLatenessMs": asked.max_lateness_ms,
            "spark": to_dict(asked.spark),
            "activeDeadlineSeconds": asked.active_deadline_seconds,
            **({"output": to_dict(asked.output)} if asked.output is not None else {}),
        },
    }


def _verdict(audit: Manifest) -> str | None:
    return (audit.get("status") or {}).get("verdict")


def _delete(audit: Manifest) -> DeleteChild:
    meta = audit["metadata"]
    return DeleteChild(kind="DelayedTopicAudit", namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
