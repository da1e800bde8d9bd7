"""The names by which the operator applies fields. Kubernetes notes them in `managedFields`; each owns the fields that it applied."""

FIELD_MANAGER = "delayed-topics-operator"
AUDITS_FIELD_MANAGER = "delayed-topics-operator-audits"
"""Of what the status of a DelayedTopic says of its audits."""
ELSEWHERE_FIELD_MANAGER = "delayed-topics-elsewhere"
"""Of what an operator says of resources that another installation serves."""
