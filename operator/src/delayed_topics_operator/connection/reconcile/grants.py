"""What the owner of a connection lets a namespace have."""

from collections.abc import Iterable, Mapping
from typing import Final

from delayed_topics_crds import Grant, QuotaHard

from delayed_topics_operator.values.selectors import selects

LET_IN: Final = "list it in the chart value tenantNamespaces, or label it as tenantNamespaceSelector requires"
"""What a cluster administrator can do about a namespace that the operator does not work in."""


def covers(grant: Grant, topic: str, namespace_labels: Mapping[str, str]) -> bool:
    return selects(grant.namespace_selector, namespace_labels) and topic.startswith(tuple(grant.topic_prefixes))


def hard(grants: Iterable[Grant], namespace_labels: Mapping[str, str]) -> QuotaHard:
    """What a namespace may have in sum: number by number the highest that an entry for it says."""
    said = [
        dict(grant.quota) for grant in grants if grant.quota and selects(grant.namespace_selector, namespace_labels)
    ]
    highest = {
        name: max((q[name] for q in said if q[name] is not None), default=None) for name in QuotaHard.model_fields
    }
    return QuotaHard(**highest)
