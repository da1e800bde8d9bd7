"""The state of a connection as its users see it, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from delayed_topics_core.reasons import Reason
from delayed_topics_crds import Grant

from delayed_topics_operator.values.plan import ConditionState

DEFAULT_SKEW_MS = 5


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The workers that DelayedTopics of a connection share. `name`: of their StatefulSet. `selector`: of their pods. `said`: the condition
    that says whether they are ready. `leaving`: the spec no longer has them, and they only serve topics that have no other workers yet."""

    group: str
    name: str
    selector: str
    replicas: int
    ready_replicas: int
    said: ConditionState
    leaving: bool = False


@dataclass(frozen=True, kw_only=True)
class Usable:
    """A connection through which Kafka answered. `files`: the contents of the Secret that workers mount. `grants`: None for a
    KafkaConnection, whose own namespace may do everything.

    `brokers`: the most brokers that ever answered. `registry_replicas`: the replicas of the registry. `shared`: None if there are no shared
    workers.
    """

    brokers: int
    registry_replicas: int
    broker_skew_ms: int
    files: Mapping[str, str] = field(repr=False)
    grants: tuple[Grant, ...] | None
    shared: Shared | None = None


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """A connection that can't be used, since when, and why."""

    reason: Reason
    message: str
    since: datetime
