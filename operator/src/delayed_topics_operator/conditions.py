"""A condition as it is written: when a condition last changed follows from what the resource says already."""

from collections.abc import Iterable
from datetime import datetime

from delayed_topics_core.reasons import Condition
from delayed_topics_crds import Condition as StatusCondition

from delayed_topics_operator.plan import ConditionState


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
