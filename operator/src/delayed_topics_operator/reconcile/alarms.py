"""What do the workers say of themselves?"""

from delayed_topics_core.reasons import Condition, Reason

from delayed_topics_operator.eventlog import RaisedAlarm
from delayed_topics_operator.observation import Observation
from delayed_topics_operator.plan import Finding, Said
from delayed_topics_operator.reconcile.workers import workers_name

REBALANCING_WAKE_SECONDS = 2.0
SHOWN = 3
REASONS = {str(reason): reason for reason in Reason}
HARMLESS = frozenset({Reason.MISROUTED_RECORDS, Reason.RETENTION_AT_RISK})
"""Alarms of something that has to be looked at while everything is served."""


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    name = workers_name(o)
    serving = {f"{name}-{ordinal}" for ordinal in range(o.wanted.replicas)}
    alarms = sorted(
        (a for a in o.kafka.news.alarms if a.member in serving),
        key=lambda a: (reason_of(a) in HARMLESS, a.reason, a.member),
    )
    rebalancing = not o.kafka.group.settled
    return Finding(
        conditions={Condition.ALARM: _said(alarms)}, wake_seconds=REBALANCING_WAKE_SECONDS if rebalancing else None
    )


def reason_of(alarm: RaisedAlarm) -> Reason:
    """A newer worker may have reasons that this operator does not know."""
    return REASONS.get(alarm.reason, Reason.NOT_RELEASING)


def _said(alarms: list[RaisedAlarm]) -> Said:
    if not alarms:
        return Said(status="False", reason=Reason.NONE_RAISED, message="no worker raises an alarm")
    shown = "; ".join(f"{alarm.member}: {alarm.message}" for alarm in alarms[:SHOWN])
    more = f"; and {len(alarms) - SHOWN} more" if len(alarms) > SHOWN else ""
    return Said(status="True", reason=reason_of(alarms[0]), message=shown + more)
