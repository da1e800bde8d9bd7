"""What a namespace may have in sum by a connection, and what it has: in the words of Kubernetes' ResourceQuota."""

from typing import Annotated

from pydantic import Field

from delayed_topics_crds.base import Limits, Spec, Status
from delayed_topics_crds.schedule import MAX_EXECUTORS

MAX_NAMESPACES = 50
"""That a status lists; the rest is counted."""


class Quota(Spec):
    """What a namespace may have in sum of all its DelayedTopics and audits on this connection. What is not set has no limit."""

    delayed_topics: Annotated[int, Limits(0, 10_000, "DelayedTopics")] | None = None
    """DelayedTopics. A deleted one counts for as long as its topics are kept (`deletionPolicy: Retain`)."""
    partitions: Annotated[int, Limits(0, 1_000_000, "partitions")] | None = None
    """Partitions of all topics: front, delays and ready, the dead-letter topic with as many as the ready topic, and one of a control
    topic."""
    workers: Annotated[int, Limits(0, 10_000, "workers")] | None = None
    """Workers. More that are asked for are not started."""
    executors: Annotated[int, Limits(0, 100 * MAX_EXECUTORS, "executors")] | None = None
    """Executors of audits that run at the same time. An audit that finds no room waits."""


class QuotaHard(Status):
    """What a namespace may have in sum: of several entries of `allow` the highest number."""

    delayed_topics: int | None = None
    """DelayedTopics."""
    partitions: int | None = None
    """Partitions of all topics."""
    workers: int | None = None
    """Workers."""
    executors: int | None = None
    """Executors of running audits."""


class QuotaUsed(Status):
    """What a namespace has."""

    delayed_topics: int = 0
    """DelayedTopics that own topics."""
    partitions: int = 0
    """Partitions of all topics."""
    workers: int = 0
    """Workers."""
    executors: int = 0
    """Executors of running audits."""


class NamespaceQuota(Status):
    """A namespace that uses the connection."""

    namespace: str
    """Its name."""
    hard: QuotaHard | None = None
    """What it may have in sum. What is not there has no limit."""
    used: QuotaUsed
    """What it has. This can be more than `hard`, if the quota was lowered: what is there stays."""


Namespaces = Annotated[tuple[NamespaceQuota, ...], Field(max_length=MAX_NAMESPACES)]
