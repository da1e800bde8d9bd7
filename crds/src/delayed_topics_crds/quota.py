"""What a namespace may have in total on a connection, and what it uses. The terms are those of Kubernetes' ResourceQuota."""

from typing import Annotated

from pydantic import Field

from delayed_topics_crds.base import Spec, Status, limits
from delayed_topics_crds.schedule import MAX_EXECUTORS

MAX_NAMESPACES = 50
"""The number of namespaces that a status lists. Further namespaces are only counted."""


class Quota(Spec):
    """Limits on the sum over all DelayedTopics and audits of a namespace on this connection. A number that is not set sets no limit."""

    delayed_topics: Annotated[int, limits(0, 10_000, "DelayedTopics")] | None = None
    """How many DelayedTopics the namespace may have. A deleted one counts while its topics are kept (`deletionPolicy: Retain`)."""
    partitions: Annotated[int, limits(0, 1_000_000, "partitions")] | None = None
    """How many partitions the topics of the namespace may have. The front, delays and ready topics count with their partitions. The
    dead-letter topic counts as many as the ready topic, and a control topic counts one."""
    workers: Annotated[int, limits(0, 10_000, "workers")] | None = None
    """How many workers the namespace may have. The operator starts no more than these."""
    executors: Annotated[int, limits(0, 100 * MAX_EXECUTORS, "executors")] | None = None
    """How many executors the running audits of the namespace may have. An audit that finds no room waits."""


class QuotaHard(Status):
    """What a namespace may have in total. If several entries of `allow` select it, the highest number counts."""

    delayed_topics: int | None = None
    """How many DelayedTopics it may have."""
    partitions: int | None = None
    """How many partitions its topics may have."""
    workers: int | None = None
    """How many workers it may have."""
    executors: int | None = None
    """How many executors its running audits may have."""


class QuotaUsed(Status):
    """What a namespace has now."""

    delayed_topics: int = 0
    """How many DelayedTopics own topics."""
    partitions: int = 0
    """How many partitions their topics have."""
    workers: int = 0
    """How many workers they have."""
    executors: int = 0
    """How many executors the running audits have."""

    def __add__(self, other: "QuotaUsed") -> "QuotaUsed":
        return QuotaUsed(**{name: number + getattr(other, name) for name, number in self})

    def at_least(self, other: "QuotaUsed") -> "QuotaUsed":
        """Returns the higher value of each number."""
        return QuotaUsed(**{name: max(number, getattr(other, name)) for name, number in self})


class NamespaceQuota(Status):
    """A namespace that uses the connection."""

    namespace: str
    """The name of the namespace."""
    hard: QuotaHard | None = None
    """What the namespace may have in total. A number that is absent has no limit."""
    used: QuotaUsed
    """What the namespace has now. This can be more than `hard` after the quota was lowered, because existing topics and workers stay."""


Namespaces = Annotated[tuple[NamespaceQuota, ...], Field(max_length=MAX_NAMESPACES)]
