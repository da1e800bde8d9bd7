"""Computes what the conditions say when an action failed, or when somebody else undid it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, assert_never

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopicStatus

from delayed_topics_operator.errors import KubeRefused, reason_of
from delayed_topics_operator.values.conditions import condition, status_of
from delayed_topics_operator.values.explain import explanation, in_words
from delayed_topics_operator.values.plan import (
    Action,
    AddFinalizer,
    AlterSettings,
    ApplyChild,
    CommitOffsets,
    ConditionState,
    CreateTopics,
    DeleteChild,
    DeleteGroup,
    DeleteTopics,
    FenceWorkers,
    GrowTopic,
    Notice,
    RemoveFinalizer,
    RemoveFromRegistry,
    ScaleWorkers,
    WriteRegistry,
)

Failed = tuple[Action, DelayedTopicsError]
"""An action that failed, and why."""


def with_failures(
    status: DelayedTopicStatus, failed: Iterable[Failed], *, known: Iterable[StatusCondition], now: datetime
) -> DelayedTopicStatus:
    """Sets Ready, and the conditions that the actions are about, to False, with the errors as the message, and the reason of the first one.
    `known`: the conditions that the resource has."""
    about = defaultdict[Condition, list[Failed]](list)
    for action, error in failed:
        for kind in _concerned(action):
            about[kind].append((action, error))
    changed: dict[Condition, StatusCondition] = {}
    for kind, of_kind in about.items():
        message = ". ".join(_could_not(action, error) for action, error in of_kind)
        state = ConditionState(status="False", reason=reason_of(of_kind[0][1]), message=message)
        changed[kind] = condition(kind, state, known=known, now=now, generation=status.observed_generation)
    kept = tuple(changed.pop(Condition(c.type), c) if c.type in changed else c for c in status.conditions)
    return status.model_copy(update={"conditions": (*kept, *changed.values())})


def refused_audits(failed: Iterable[Failed]) -> tuple[Notice, ...]:
    """Returns Events about audits of the schedule that the API server refuses. The resource is served as it should be, so no condition says
    this."""
    return tuple(
        Notice(
            type="Warning", reason=reason_of(error), message=f"{_could_not(action, error)}. The operator tries again"
        )
        for action, error in failed
        if not _concerned(action) and isinstance(error, KubeRefused)
    )


def _could_not(action: Action, error: DelayedTopicsError) -> str:
    message = f"could not {in_words(action)}: {error}"
    if isinstance(action, (DeleteGroup, DeleteTopics)):
        message += ". To delete this resource without its group and topics, set spec.deletionPolicy to Retain"
    return message


def with_undone(
    status: DelayedTopicStatus, actions: tuple[Action, ...], *, known: Iterable[StatusCondition], now: datetime
) -> DelayedTopicStatus:
    """Sets Ready, and the conditions that the actions are about, to False, because somebody else undid these actions at once. A condition
    that is False already keeps its reason. `known`: the conditions that the resource has."""
    changed = {Condition(c.type): c for c in status.conditions}
    for kind in dict.fromkeys(kind for action in actions for kind in _concerned(action)):
        message = _undone(tuple(action for action in actions if kind in _concerned(action)))
        before = changed.get(kind)
        if before is not None and before.status == "False":
            changed[kind] = before.model_copy(update={"message": f"{before.message}. {message}"})
        else:
            state = ConditionState(
                status="False", reason=Reason.IN_PROGRESS, message=f"not all is as declared. {message}"
            )
            changed[kind] = condition(kind, state, known=known, now=now, generation=status.observed_generation)
    return status.model_copy(update={"conditions": tuple(changed.values())})


def _undone(actions: tuple[Action, ...]) -> str:
    return (
        f"Somebody else undoes at once what the operator does: {explanation(actions)}. The operator tries again every few seconds. Find "
        "out what else changes this, and stop it. For an object in Kubernetes, metadata.managedFields says who has changed it"
    )


def not_ready(raw: Mapping[str, Any], reason: Reason, message: str, now: datetime) -> DelayedTopicStatus:
    """Returns the status of a resource that could not be parsed or observed: Ready is False and says why, and everything else stays as it
    was."""
    status = status_of(DelayedTopicStatus, raw).model_copy(
        update={"observed_generation": raw["metadata"].get("generation")}
    )
    state = ConditionState(status="False", reason=reason, message=message)
    ready = condition(Condition.READY, state, known=status.conditions, now=now, generation=status.observed_generation)
    others = (c for c in status.conditions if c.type != Condition.READY)
    return status.model_copy(update={"conditions": (ready, *others)})


def _concerned(action: Action) -> tuple[Condition, ...]:
    """Returns the conditions that are False if the action fails, or somebody undoes it."""
    kind = condition_of(action)
    return () if kind is None else (kind, Condition.READY)


def condition_of(action: Action) -> Condition | None:
    """Returns the condition that the action is about. None: it is about an audit of the schedule, which has conditions of its own."""
    match action:
        case ApplyChild(kind="DelayedTopicAudit") | DeleteChild(kind="DelayedTopicAudit"):
            return None
        case AddFinalizer() | RemoveFinalizer() | WriteRegistry(record=Claim()) | RemoveFromRegistry():
            return Condition.CLAIMED
        case (
            WriteRegistry()
            | CreateTopics()
            | GrowTopic()
            | AlterSettings()
            | CommitOffsets()
            | DeleteTopics()
            | DeleteGroup()
        ):
            return Condition.TOPICS_READY
        case ApplyChild() | ScaleWorkers() | DeleteChild() | FenceWorkers():
            return Condition.WORKERS_READY
        case _:
            assert_never(action)
