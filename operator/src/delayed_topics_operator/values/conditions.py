"""A condition as it is written: when a condition last changed follows from what the resource says already. And that status, read."""

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
    """`known`: the conditions that the resource has. As everywhere in Kubernetes, `lastTransitionTime` follows the status alone:
    another reason or message does not change it."""
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
    """As it was last written; an empty one if a version wrote it that this one can't read."""
    try:
        return model.model_validate(raw.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError:
        return model()
