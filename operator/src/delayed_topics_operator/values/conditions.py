"""Conditions as they are written, with the time of the last transition, and statuses as they were written before."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from delayed_topics_core.reasons import Condition
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds.common import StatusBase
from pydantic import ValidationError

from delayed_topics_operator.values.plan import ConditionState


def condition(
    kind: Condition, said: ConditionState, *, known: Iterable[StatusCondition], now: datetime, generation: int | None
) -> StatusCondition:
    """Returns the condition to write. `known`: the conditions that the resource has. As everywhere in Kubernetes, `lastTransitionTime`
    changes with the status alone, and not with the reason or the message."""
    before = next((c for c in known if c.type == kind), None)
    return StatusCondition(
        type=kind,
        status=said.status,
        reason=said.reason,
        message=said.message,
        last_transition_time=before.last_transition_time if before and before.status == said.status else now,
        observed_generation=generation,
    )


S = TypeVar("S", bound=StatusBase)


def status_of(model: type[S], raw: Mapping[str, Any]) -> S:
    """Returns the status as it was last written. If a version of the operator wrote it that this one can't read, the status is empty."""
    try:
        return model.model_validate(raw.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError:
        return model()
