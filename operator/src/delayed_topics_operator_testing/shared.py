"""A connection whose DelayedTopics share workers."""

from dataclasses import replace
from typing import Any

from delayed_topics_core.reasons import Reason
from delayed_topics_operator.connection.reconcile.usable import Shared, Usable
from delayed_topics_operator.values.plan import ConditionState

from delayed_topics_operator_testing.simulation import usable

READY = ConditionState(status="True", reason=Reason.AS_DECLARED, message="2 of 2 workers are ready")
SHARED = Shared(
    group="delayedtopics.shared/x",
    name="default-cluster-shared",
    selector="a=b",
    replicas=2,
    ready_replicas=2,
    said=READY,
)


def sharing(**fields: Any) -> Usable:
    """Returns a connection with shared workers."""
    return replace(usable(), shared=replace(SHARED, **fields))
