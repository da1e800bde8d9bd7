"""A resource that the API server took and that can't be followed: made by a newer CRD, or by an older one that checked less. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopicStatus
from pydantic import ValidationError

from delayed_topics_operator.errors import SpecInvalid
from delayed_topics_operator.plan import Notice, Plan, RemoveFinalizer
from delayed_topics_operator.translate import FINALIZER

SHOWN = 5
_FOR_DELETION = ("topic", "connectionRef", "deletionPolicy")


def reconcile_invalid(raw: Mapping[str, Any], error: ValidationError | SpecInvalid, now: datetime) -> Plan:
    """Says what is wrong; what was made for an earlier spec is left as it is. One that is being deleted is let go."""
    message = in_words(error)
    meta = raw["metadata"]
    if meta.get("deletionTimestamp"):
        if FINALIZER not in meta.get("finalizers", ()):
            return Plan()
        notice = Notice(
            type="Warning", reason=Reason.SPEC_INVALID, message=f"{message}. Whatever is in Kafka stays there"
        )
        return Plan(actions=(RemoveFinalizer(),), notices=(notice,))
    try:
        status = DelayedTopicStatus.model_validate(raw.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError:
        status = DelayedTopicStatus()
    before = next((c for c in status.conditions if c.type == Condition.READY), None)
    ready = StatusCondition(
        type=Condition.READY,
        status="False",
        reason=Reason.SPEC_INVALID,
        message=message,
        last_transition_time=before.last_transition_time if before and before.status == "False" else now,
        observed_generation=meta.get("generation"),
    )
    others = tuple(c for c in status.conditions if c.type != Condition.READY)
    return Plan(
        status=status.model_copy(update={"observed_generation": meta.get("generation"), "conditions": (ready, *others)})
    )


def in_words(error: ValidationError | SpecInvalid) -> str:
    if isinstance(error, SpecInvalid):
        return str(error)
    problems = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors(include_url=False)]
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return f"this resource can't be followed: {'; '.join(problems[:SHOWN])}{more}"


def enough_to_delete(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The resource with only those fields of its spec that say what is to be deleted, and how."""
    spec = {key: value for key, value in (raw.get("spec") or {}).items() if key in _FOR_DELETION}
    return {**raw, "spec": {**spec, "delaySeconds": [0]}, "status": {}}
