"""Builds the status of a resource from the observation and from what the checks report. It contains no time of writing, which would make
each pass write it again."""

from collections.abc import Mapping
from dataclasses import replace

from delayed_topics_core.layout import most_hops
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.settings import TopicRole
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import (
    DelayedTopicStatus,
    LadderStatus,
    LayoutRange,
    LayoutStatus,
    RefusedProtocol,
    TopicStatus,
    WorkersStatus,
)

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile import own_workers
from delayed_topics_operator.delayed_topic.reconcile.alarms import HARMLESS, REASONS
from delayed_topics_operator.delayed_topic.reconcile.autoscale import last_scaled
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.target import is_ours, names_of
from delayed_topics_operator.delayed_topic.reconcile.workers import workers_name
from delayed_topics_operator.values.conditions import condition
from delayed_topics_operator.values.plan import Conditions, ConditionState
from delayed_topics_operator.workers.reconcile import worker_sets

_OF_OTHERS = (Condition.SERVED_ELSEWHERE, Condition.COMPLETE, Condition.VERIFIED, Condition.STALLED)
"""Conditions that belong to audits, or that another controller writes. This controller leaves them alone."""
OWN_CONDITIONS = tuple(kind for kind in Condition if kind not in _OF_OTHERS)
"""The conditions that this controller writes, in the order in which the status shows them."""
_SHOWN_ROLES: tuple[TopicRole, ...] = ("front", "delays", "ready", "dead-letter", "control")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def of(o: Observation, reported: Conditions) -> DelayedTopicStatus:
    before, names, kafka = o.subject.status, o.wanted.names, o.kafka
    claimed = kafka is not None and kafka.registered.own is not None and kafka.registered.holder == kafka.registered.own
    registered = kafka.registered.layout if kafka is not None and claimed else None
    return DelayedTopicStatus(
        observed_generation=o.subject.generation,
        conditions=conditions(o, reported),
        topic=names.front,
        produce_to=names.front,
        consume_from=names.ready,
        dead_letter_to=names.dead_letter,
        delays=",".join(in_units(seconds) for seconds in o.wanted.layout.delay_seconds),
        group=o.group if kafka is not None else before.group or o.group,
        layout=_layout(registered) if registered else before.layout,
        topics=_topics(o, kafka) if kafka and claimed else before.topics,
        workers=_workers(o),
        rebalance=o.rebalance if claimed else before.rebalance,
    )


def decided(before: DelayedTopicStatus, status: DelayedTopicStatus) -> DelayedTopicStatus | None:
    """Returns the former status with the new decisions of `status`, or None if there are none. It is written before the actions, because
    the next passes read the decisions in it. Their causes may be gone by then, such as the load, or the pod that reported a refused
    protocol."""
    if _decisions(before) == _decisions(status):
        return None
    return before.model_copy(update={"workers": status.workers, "rebalance": status.rebalance})


def undecided(before: DelayedTopicStatus, status: DelayedTopicStatus) -> DelayedTopicStatus:
    """Returns the status with the number of workers that was decided before, because the new decision is not carried out."""
    if status.workers is None:
        return status
    kept = {name: getattr(before.workers, name, None) for name in ("wanted_replicas", "last_scaled")}
    return status.model_copy(update={"workers": status.workers.model_copy(update=kept)})


def _decisions(status: DelayedTopicStatus) -> tuple[int | None, RefusedProtocol | None]:
    """Returns the number of workers that autoscaling wants, and the protocol that Kafka refuses."""
    workers, rebalance = status.workers, status.rebalance
    return (
        workers.wanted_replicas if workers is not None else None,
        rebalance.refused if rebalance is not None else None,
    )


def conditions(o: Observation, reported: Conditions) -> tuple[StatusCondition, ...]:
    """Returns all conditions. Those that no check reported stay as they are, with the generation for which they were reported."""
    before = o.subject.status.conditions
    stays = {Condition(c.type): c for c in before if c.type in OWN_CONDITIONS and c.type != Condition.PLANNED}
    known = {
        kind: ConditionState(status=c.status, reason=REASONS[c.reason], message=c.message)
        for kind, c in stays.items()
        if c.reason in REASONS
    }
    all_reported: dict[Condition, ConditionState] = {**known, **reported}
    fresh = {Condition.READY: _ready(o, all_reported), **reported}
    made = {
        kind: condition(kind, s, known=before, now=o.now, generation=o.subject.generation) for kind, s in fresh.items()
    }
    return tuple(found for kind in OWN_CONDITIONS if (found := made.get(kind) or stays.get(kind)) is not None)


def in_units(seconds: int) -> str:
    """Formats seconds in the largest unit that is exact: 60 → 1m, 90 → 90s."""
    if seconds == 0:
        return "0s"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _ready(o: Observation, reported: Mapping[Condition, ConditionState]) -> ConditionState:
    for kind in (Condition.CLAIMED, Condition.TOPICS_READY, Condition.WORKERS_READY):
        found = reported.get(kind)
        if found is None:
            return ConditionState(
                status="False", reason=Reason.IN_PROGRESS, message=f"the condition {kind} is not known yet"
            )
        if found.status != "True":
            return ConditionState(status="False", reason=found.reason, message=found.message)
    alarm = reported.get(Condition.ALARM)
    if alarm is not None and alarm.status == "True" and alarm.reason not in HARMLESS:
        return ConditionState(status="False", reason=alarm.reason, message=alarm.message)
    workers = reported[Condition.WORKERS_READY]
    if workers.reason == Reason.ROLLOUT_WAITING:
        return replace(workers, status="False")
    shown = next((s for s in (reported[Condition.TOPICS_READY], workers) if s.reason == Reason.PLAN_ONLY), None)
    if shown is not None and o.subject.plan_only:
        return shown
    if o.wanted.spec.paused:
        return ConditionState(
            status="True",
            reason=Reason.PAUSED,
            message="spec.paused is set, so nothing is released and records stay where they are",
        )
    if o.beyond.workers is not None or o.refused_protocol is not None:
        return workers
    return ConditionState(
        status="True",
        reason=Reason.AS_DECLARED,
        message=f"produce to {o.wanted.names.front}, and consume from {o.wanted.names.ready}",
    )


def _layout(record: LayoutRecord) -> LayoutStatus:
    return LayoutStatus(
        generation=record.layout.generation,
        state=record.state,
        ranges=tuple(
            LayoutRange(delay_seconds=seconds, partitions=partitions, role=role)
            for seconds, role, partitions in record.layout.ranges()
        ),
        ladder=_ladder(record),
    )


def _ladder(record: LayoutRecord) -> LadderStatus | None:
    ladder = record.layout.ladder_seconds
    if not ladder:
        return None
    return LadderStatus(
        average_hops=round(most_hops(ladder, max_delay_seconds=ladder[-1] - 1) / 2),
        max_hops=most_hops(ladder, max_delay_seconds=record.max_delay_seconds),
    )


def _topics(o: Observation, kafka: KafkaView) -> tuple[TopicStatus, ...]:
    names = names_of(o)
    found = ((role, kafka.topics.get(names[role])) for role in _SHOWN_ROLES)
    return tuple(
        TopicStatus(
            role=role,
            name=info.name,
            id=info.id,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
        )
        for role, info in found
        if info is not None and is_ours(kafka, info.name)
    )


def _workers(o: Observation) -> WorkersStatus:
    before = o.subject.status.workers
    if o.kafka is None and before is not None and before.shared:
        return before  # while the connection can't be used, the state of its workers is unknown
    shared = o.connection.shared if isinstance(o.connection, Usable) and o.shares_workers else None
    if shared is not None:
        return WorkersStatus(
            replicas=shared.replicas, ready_replicas=shared.ready_replicas, selector=shared.selector, shared=True
        )
    live = o.children.get(("StatefulSet", workers_name(o)), {}).get("status") or {}
    return WorkersStatus(
        replicas=live.get("replicas", 0),
        ready_replicas=live.get("readyReplicas", 0),
        selector=worker_sets.selector(own_workers.labels(o.subject)),
        wanted_replicas=o.autoscaled,
        last_scaled=last_scaled(o),
    )
