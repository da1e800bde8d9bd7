"""The annotations by which people instruct the operator, and its finalizer."""

from collections.abc import Mapping

FINALIZER = "delayedtopics.io/finalizer"
PLAN_ONLY = "delayedtopics.io/plan-only"
ACKNOWLEDGED_AUDIT = "delayedtopics.io/acknowledged-audit"
ACCEPT_LOSS = "delayedtopics.io/accept-loss-of-topic-id"
"""Annotation of a DelayedTopic: ids, separated by commas, of front or delays topics that are gone and are to begin anew. Of a connection:
the id of its lost registry, so that the operator uses the registry that exists now, or creates a new one."""
TAKE_OVER = "delayedtopics.io/take-over-from"
"""Annotation: the owner whose topics are to be taken over, in the form that the condition Claimed gives."""


def accepted_losses(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Returns the ids of the topics whose loss the annotation accepts."""
    listed = (annotations or {}).get(ACCEPT_LOSS, "")
    return frozenset(part.strip() for part in listed.split(",") if part.strip())
