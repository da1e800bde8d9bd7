"""Turns the alarms of the workers, and slow rebalances, into the condition Alarm."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.words import counted
from delayed_topics_crds import RebalanceRecord

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile import rebalances
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.workers import workers_name
from delayed_topics_operator.values.eventlog import RaisedAlarm
from delayed_topics_operator.values.plan import ConditionState, Finding, Notice

REBALANCING_WAKE_SECONDS = 2.0
SHOWN = 3
REASONS = {str(reason): reason for reason in Reason}
HARMLESS = frozenset({Reason.MISROUTED_RECORDS, Reason.RETENTION_AT_RISK})
"""Alarms that somebody has to look into, although everything is served."""


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    assert o.rebalance is not None, "it is noted first"
    serving = _workers(o)
    alarms = sorted(
        (a for a in o.kafka.news.alarms if a.member in serving),
        key=lambda a: (reason_of(a) in HARMLESS, a.reason, a.member),
    )
    slow_seconds = o.wanted.spec.rebalance.slow_seconds
    state = _alarm_state(alarms)
    slow = rebalances.slow(o.rebalance, now=o.now, slow_seconds=slow_seconds)
    if slow is not None and (state.status == "False" or state.reason in HARMLESS):
        state = ConditionState(status="True", reason=Reason.REBALANCE_SLOW, message=slow)
    ended = rebalances.ended_slowly(o.subject.status.rebalance, o.rebalance, slow_seconds=slow_seconds)
    wake_seconds = REBALANCING_WAKE_SECONDS if not o.kafka.group.settled else None
    if wake_seconds is None and slow is None and rebalances.under_way_since(o.rebalance) is not None:
        wake_seconds = (
            slow_seconds  # workers report the end of a rebalance, but nothing reports that it has become slow
        )
    return Finding(
        conditions={Condition.ALARM: state},
        notices=tuple(_slow_one(record, slow_seconds) for record in ended),
        wake_seconds=wake_seconds,
    )


def _workers(o: Observation) -> set[str]:
    """Returns the names of the pods that serve the topics now, and of those that will serve them."""
    shared = o.connection.shared if isinstance(o.connection, Usable) and o.shares_workers else None
    pods = {f"{shared.name}-{ordinal}" for ordinal in range(shared.replicas)} if shared is not None else set()
    if o.has_own_workers:
        pods |= {f"{workers_name(o)}-{ordinal}" for ordinal in range(o.wanted.replicas)}
    return pods


def _slow_one(record: RebalanceRecord, slow_seconds: int) -> Notice:
    message = (
        f"the rebalance of generation {record.generation} ({record.reason}) took {(record.duration_ms or 0) / 1000:.1f} s, which is longer "
        f"than spec.rebalance.slowSeconds ({slow_seconds} s). Records of "
        f"{counted(record.moved_partitions, 'partition')} waited during that time"
    )
    return Notice(type="Warning", reason=Reason.REBALANCE_SLOW, message=message)


def reason_of(alarm: RaisedAlarm) -> Reason:
    """Returns the reason of an alarm, or NotReleasing if a newer worker has a reason that this operator does not know."""
    return REASONS.get(alarm.reason, Reason.NOT_RELEASING)


def _alarm_state(alarms: list[RaisedAlarm]) -> ConditionState:
    if not alarms:
        return ConditionState(status="False", reason=Reason.NONE_RAISED, message="no worker has raised an alarm")
    shown = ". ".join(f"{alarm.member}: {alarm.message}" for alarm in alarms[:SHOWN])
    more = f". Alarms that are not shown: {len(alarms) - SHOWN}" if len(alarms) > SHOWN else ""
    return ConditionState(status="True", reason=reason_of(alarms[0]), message=shown + more)
