"""Reports what audits found: the latest verdict, and a broken promise until somebody has acknowledged it."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import LastAudit, LastViolation

from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.annotations import ACKNOWLEDGED_AUDIT
from delayed_topics_operator.values.plan import ConditionState, Finding
from delayed_topics_operator.values.verdicts import TRUTH


def check(o: Observation) -> Finding:
    last, broken = o.subject.status.last_audit, unacknowledged(o)
    if broken is not None:
        return _finding(ConditionState(status="False", reason=Reason.PROMISE_BROKEN, message=_broken(o, broken, last)))
    known = o.subject.status.last_violation
    if known is not None and (last is None or _is_one(last, known)):
        message = f"audit {known.name}: {known.message}. Somebody has acknowledged this. The next audit reports the state since then"
        return _finding(ConditionState(status="Unknown", reason=Reason.VIOLATION_ACKNOWLEDGED, message=message))
    if last is None:
        return Finding()
    message = f"audit {last.name}: {last.message}"
    return _finding(ConditionState(status=TRUTH[last.verdict], reason=Reason(last.reason), message=message))


def unacknowledged(o: Observation) -> LastViolation | None:
    broken = o.subject.status.last_violation
    return broken if broken is not None and broken.acknowledge_as != o.subject.acknowledged_audit else None


def _is_one(last: LastAudit, broken: LastViolation) -> bool:
    """Whether the latest audit is the one that found this violation. A later audit can have the same name."""
    return (last.name, last.started_at) == (broken.name, broken.started_at)


def _broken(o: Observation, broken: LastViolation, last: LastAudit | None) -> str:
    later = (
        f". The verdict of the later audit {last.name} is {last.verdict}" if last and not _is_one(last, broken) else ""
    )
    annotate = f"kubectl annotate dtopic {o.subject.name} -n {o.subject.namespace} --overwrite"
    return (
        f"audit {broken.name}: {broken.message}{later}. The condition stays until somebody has acknowledged this. "
        f"Find the cause, and then run: {annotate} {ACKNOWLEDGED_AUDIT}={broken.acknowledge_as}"
    )


def _finding(state: ConditionState) -> Finding:
    return Finding(conditions={Condition.DELIVERY_VERIFIED: state})
