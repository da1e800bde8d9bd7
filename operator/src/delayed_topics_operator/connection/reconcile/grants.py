"""What the owner of a connection grants to a namespace."""

from collections.abc import Iterable, Mapping
from typing import Final

from delayed_topics_crds import Grant, QuotaHard

from delayed_topics_operator.values.selectors import selects

LET_IN: Final = "list it in the chart value tenantNamespaces, or label it as tenantNamespaceSelector requires"
"""What a cluster administrator can do about a namespace that the operator does not work in."""


def covers(grant: Grant, topic: str, namespace_labels: Mapping[str, str]) -> bool:
    return selects(grant.namespace_selector, namespace_labels) and topic.startswith(tuple(grant.topic_prefixes))


def hard(grants: Iterable[Grant], namespace_labels: Mapping[str, str]) -> QuotaHard:
    """Returns what a namespace may have in total. Each number is the highest of all entries that select the namespace."""
    quotas = [
        dict(grant.quota) for grant in grants if grant.quota and selects(grant.namespace_selector, namespace_labels)
    ]
    highest = {
        name: max((q[name] for q in quotas if q[name] is not None), default=None) for name in QuotaHard.model_fields
    }
    return QuotaHard(**highest)
