"""A plan in words, for plan-only, Events and logs."""

from typing import assert_never

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.registry import Claim, LayoutRecord
from delayed_topics_core.words import counted

from delayed_topics_operator.values.plan import (
    Action,
    AddFinalizer,
    AlterSettings,
    ApplyChild,
    CommitOffsets,
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

MAX_EXPLANATION = 4000


def in_words(action: Action) -> str:  # noqa: C901  one case per action
    """A phrase in the infinitive, as `create topic orders with 9 partitions`."""
    match action:
        case AddFinalizer():
            return "add the finalizer"
        case RemoveFinalizer():
            return "remove the finalizer"
        case WriteRegistry():
            return action.why
        case RemoveFromRegistry():
            return action.why
        case CreateTopics():
            made = ", ".join(
                f"{s.name} ({counted(s.partitions, 'partition')}, {counted(s.replication_factor, 'replica')})"
                for s in action.specs
            )
            return f"create {'topics' if len(action.specs) > 1 else 'topic'} {made}"
        case GrowTopic():
            return f"grow topic {action.topic} from {action.present} to {counted(action.total, 'partition')}"
        case AlterSettings():
            changes = ", ".join(f"{k} from {action.present.get(k)} to {v}" for k, v in sorted(action.settings.items()))
            return f"change settings of topic {action.topic} ({changes})"
        case CommitOffsets():
            topics = sorted({topic for topic, _ in action.offsets})
            parts = (f"{t} [{format_ranges(sorted(p for u, p in action.offsets if u == t))}]" for t in topics)
            return f"commit the start offsets of group {action.group} for {', '.join(parts)}"
        case DeleteGroup():
            return f"delete group {action.group} and its offsets"
        case FenceWorkers():
            return f"end the transactions of workers that are gone ({', '.join(action.transactional_ids)})"
        case DeleteTopics():
            return f"delete topics {', '.join(action.topics)} with all records"
        case ApplyChild():
            verb = {"created": "create", "repaired": "repair", "changed": "change"}[action.change]
            return f"{verb} {action.kind} {action.name}" + (", which replaces its pods" if action.rolls else "")
        case ScaleWorkers():
            return f"scale StatefulSet {action.name} from {action.present} to {counted(action.replicas, 'worker')}"
        case DeleteChild():
            return f"delete {action.kind} {action.name}" + (" and keep its pods" if action.orphan else "")
        case _:
            assert_never(action)


def notice(action: Action) -> Notice | None:
    """Returns the Event about an executed action, or None if an Event about it would only be noise."""
    reason = _event_reason(action)
    if reason is None:
        return None
    return Notice(type="Normal", reason=reason, message=f"Done: {in_words(action)}")


def _event_reason(action: Action) -> str | None:  # noqa: C901  one line per case
    match action:
        case CreateTopics():
            return "TopicsCreated"
        case GrowTopic():
            return "TopicGrown"
        case AlterSettings():
            return "SettingsRepaired"
        case DeleteTopics():
            return "TopicsDeleted"
        case DeleteGroup():
            return "GroupDeleted"
        case WriteRegistry(record=Claim(taken_from=former)):
            return "TakenOver" if former else "Claimed"
        case WriteRegistry(record=LayoutRecord(state="serving")):
            return "LayoutServing"
        case ApplyChild() if action.rolls:
            return "RollingWorkers"
        case ApplyChild() if action.kind == "StatefulSet":
            return {"created": "WorkersCreated", "repaired": "WorkersRepaired", "changed": "WorkersChanged"}[
                action.change
            ]
        case ApplyChild() if action.change == "repaired":
            return "Repaired"
        case ScaleWorkers():
            return "WorkersScaled"
        case DeleteChild() if action.kind == "StatefulSet":
            return "WorkersDeleted"
        case WriteRegistry() | RemoveFromRegistry() | CommitOffsets() | FenceWorkers():
            return None
        case AddFinalizer() | RemoveFinalizer() | ApplyChild() | DeleteChild():
            return None
        case _:
            assert_never(action)


def explanation(actions: tuple[Action, ...]) -> str:
    """Returns all actions in words, numbered."""
    text = "; ".join(f"{number}. {in_words(action)}" for number, action in enumerate(actions, 1))
    return text if len(text) <= MAX_EXPLANATION else text[: MAX_EXPLANATION - 1] + "…"
