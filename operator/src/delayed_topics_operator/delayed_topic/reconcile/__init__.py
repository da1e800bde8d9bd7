"""Turns an observation into a plan, by a chain of small checks. Each check returns actions to take and conditions to report.

Pure: these modules use no clock and make no calls. The same checks decide what has to be done and whether the resource is ready, so the two
can't disagree.
"""

from collections.abc import Callable
from dataclasses import replace

from delayed_topics_operator.delayed_topic.reconcile import (
    access,
    alarms,
    audit_schedule,
    autoscale,
    claim,
    deletion,
    layout,
    planned,
    protocol,
    quota,
    rebalances,
    status,
    take_over,
    topics,
    upkeep,
    verdict,
    workers,
)
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.plan import Finding, Plan, merged
from delayed_topics_operator.values.rollout import Rollout

__all__ = ["reconcile"]

CHECKS: tuple[Callable[[Observation], Finding], ...] = (
    verdict.check,
    take_over.stop_serving,
    access.check,
    quota.check,
    claim.check,
    topics.check,
    layout.check,
    workers.check,
    autoscale.check,
    alarms.check,
    audit_schedule.check,
)


def reconcile(o: Observation) -> Plan:
    """Returns the next actions, with the status before they are executed."""
    if o.subject.deleting:
        return deletion.plan(rebalances.with_status(o))
    o = rebalances.with_status(protocol.settled(quota.limited(autoscale.scaled(o))))
    if o.subject.plan_only:
        o = replace(o, rollout=Rollout())  # a plan that is only shown waits for no turn
        return Plan(status=status.undecided(o.subject.status, status.of(o, planned.conditions(o, _found(o)))))
    found = _found(o)
    now = status.of(o, found.conditions)
    return Plan(
        actions=found.actions,
        status=now,
        notices=found.notices,
        wake_seconds=found.wake_seconds,
        takes=quota.takes(o, found.actions),
        decided=status.decided(o.subject.status, now) if found.actions else None,
    )


def _found(o: Observation) -> Finding:
    findings: list[Finding] = []
    for check in CHECKS:
        findings.append(check(o))
        if not findings[-1].proceed:
            findings.append(upkeep.check(o, [action for finding in findings for action in finding.actions]))
            break
    return merged(findings)
