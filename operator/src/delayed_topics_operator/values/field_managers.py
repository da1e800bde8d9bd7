"""The operator's field managers. Kubernetes records them in `managedFields`; each owns the fields that it applied."""

FIELD_MANAGER = "delayed-topics-operator"
AUDITS_FIELD_MANAGER = "delayed-topics-operator-audits"
"""Owns what the status of a DelayedTopic says about its audits."""
ELSEWHERE_FIELD_MANAGER = "delayed-topics-elsewhere"
"""Owns the condition that an operator writes to resources that another installation serves."""
