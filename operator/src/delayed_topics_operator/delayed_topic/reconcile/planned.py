"""Computes what the conditions of a resource say while its plan is only shown and not executed. Pure."""

from dataclasses import replace

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.settings import NEEDED

from delayed_topics_operator.delayed_topic.reconcile import workers
from delayed_topics_operator.delayed_topic.reconcile.failures import condition_of
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.target import names_of
from delayed_topics_operator.values.annotations import PLAN_ONLY
from delayed_topics_operator.values.explain import explanation
from delayed_topics_operator.values.plan import (
    Action,
    AlterSettings,
    Conditions,
    ConditionState,
    CreateTopics,
    Finding,
    GrowTopic,
)


def conditions(o: Observation, found: Finding) -> Conditions:
    """Returns the conditions for the present state instead of the planned one: what is served stays as it is, and what does not exist yet
    is not reported as in progress."""
    planned = ConditionState(
        status="True", reason=Reason.PLAN_ONLY, message=explanation(found.actions) or "nothing has to be done"
    )
    reported = {**found.conditions, Condition.PLANNED: planned}
    if not found.actions:
        return reported
    if _makes_partitions(found.actions):
        reported.pop(Condition.LAYOUT_CLAMPED, None)  # the condition is about the partitions that are planned
    for kind, of_kind in (
        (Condition.CLAIMED, _claimed),
        (Condition.TOPICS_READY, _topics),
        (Condition.WORKERS_READY, _workers),
    ):
        if kind in reported:
            actions = tuple(action for action in found.actions if condition_of(action) == kind)
            reported[kind] = of_kind(o, reported[kind], actions)
    return reported


def _claimed(o: Observation, state: ConditionState, actions: tuple[Action, ...]) -> ConditionState:
    if state.reason != Reason.IN_PROGRESS:
        return state
    return replace(state, reason=Reason.PLAN_ONLY, message=_not_done(actions))


def _topics(o: Observation, state: ConditionState, actions: tuple[Action, ...]) -> ConditionState:
    creating = state.reason == Reason.TOPICS_CREATING and _makes_partitions(actions)
    if not actions or not (creating or state.status == "True"):
        return state
    lacking = any(isinstance(action, AlterSettings) and NEEDED.keys() & action.settings.keys() for action in actions)
    if lacking or not _has_what_is_served(o):
        message = f"not all topics are as they have to be. {_not_done(actions)}"
        return ConditionState(status="False", reason=Reason.PLAN_ONLY, message=message)
    message = f"the topics are served as they are. {_not_done(actions)}"
    return ConditionState(status="True", reason=Reason.PLAN_ONLY, message=message)


def _workers(o: Observation, state: ConditionState, actions: tuple[Action, ...]) -> ConditionState:
    layout = o.kafka.registered.layout if o.kafka is not None else None
    if layout is None or (layout.state == "planned" and layout.served is None):
        message = f"there are no workers. {_not_done(actions)}"
        return ConditionState(status="False", reason=Reason.PLAN_ONLY, message=message)
    if not actions:
        return state
    running = workers.running_state(o) if layout.state != "retired" else None
    present = running or state
    reason = Reason.PLAN_ONLY if present.status == "True" else present.reason
    return replace(present, reason=reason, message=f"{present.message}. {_not_done(actions)}")


def _makes_partitions(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(action, (CreateTopics, GrowTopic)) for action in actions)


def _has_what_is_served(o: Observation) -> bool:
    """Whether Kafka has the topics and partitions of the layout that workers serve."""
    layout = o.kafka.registered.layout if o.kafka is not None else None
    served = layout.served if layout is not None else None
    if served is None or o.kafka is None:
        return False
    names = names_of(o)
    needed = {
        names["front"]: served.front_partitions,
        names["delays"]: served.layout.partition_count,
        names["ready"]: served.ready_partitions,
        names["dead-letter"]: 1,
        **({names["control"]: 1} if served.control else {}),
    }
    kafka = o.kafka
    return all(
        (info := kafka.topics.get(name)) is not None and info.leaders_known and info.partitions >= partitions
        for name, partitions in needed.items()
    )


def _not_done(actions: tuple[Action, ...]) -> str:
    todo = f". It would do this next: {explanation(actions)}" if actions else ""
    return f"The operator does nothing, because the annotation {PLAN_ONLY} is set{todo}"
