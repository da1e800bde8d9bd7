"""The annotations of resources by which people tell the operator something, and its finalizer."""

from collections.abc import Mapping

FINALIZER = "delayedtopics.io/finalizer"
PLAN_ONLY = "delayedtopics.io/plan-only"
ACKNOWLEDGED_AUDIT = "delayedtopics.io/acknowledged-audit"
ACCEPT_LOSS = "delayedtopics.io/accept-loss-of-topic-id"
"""Annotation: ids, separated by commas, of front or delays topics that are gone and shall be begun anew; of a connection: of its
registry, in whose place the one that is there is to be used, or a new one made."""
TAKE_OVER = "delayedtopics.io/take-over-from"
"""Annotation: whose topics are to be taken over, as the condition Claimed says it."""


def accepted_losses(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Ids of topics that were given up by annotation."""
    listed = (annotations or {}).get(ACCEPT_LOSS, "")
    return frozenset(part.strip() for part in listed.split(",") if part.strip())
