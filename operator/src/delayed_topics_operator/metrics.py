"""All metrics of the operator."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter(
    "delayedtopics_operator_reconciles_total", "Passes over a resource, by how they ended", ["kind", "outcome"]
)
RECONCILE_SECONDS = Histogram(
    "delayedtopics_operator_reconcile_seconds",
    "Duration of a pass over a resource, by how it ended",
    ["kind", "outcome"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 2, 5, 10, 30),
)
KUBE_CALLS = Counter("delayedtopics_operator_kube_calls_total", "Calls to the API server", ["verb", "kind", "status"])
KAFKA_CALLS = Counter("delayedtopics_operator_kafka_calls_total", "Calls to Kafka, each for many items", ["call"])
KAFKA_ITEMS = Counter("delayedtopics_operator_kafka_items_total", "Items in calls to Kafka", ["call"])
ACTIONS = Counter("delayedtopics_operator_actions_total", "Actions executed", ["action", "outcome"])
CONDITIONS = Gauge(
    "delayedtopics_operator_condition",
    "Resources with this condition, by status and reason",
    ["kind", "type", "status", "reason"],
)
_RESOURCE = ["resource_namespace", "resource_name"]
"""Not `namespace`, which Prometheus gives the namespace of the operator's pod."""
NOT_READY = Gauge(
    "delayedtopics_operator_not_ready",
    "1 for each DelayedTopic whose condition Ready is not True, by the reason of the condition, and whether it ever had topics",
    [*_RESOURCE, "reason", "served"],
)
DELIVERY_VIOLATED = Gauge(
    "delayedtopics_operator_delivery_violated",
    "1 for each DelayedTopic of which an audit found a broken promise that nobody has acknowledged",
    _RESOURCE,
)
AUDIT_VERDICT = Gauge(
    "delayedtopics_operator_audit_verdict",
    "1 for the verdict of the last audit of all records of a DelayedTopic, 0 for the others",
    [*_RESOURCE, "verdict"],
)
AUDIT_RECORDS = Gauge(
    "delayedtopics_operator_audit_records",
    "Records that the last audit of a DelayedTopic found to be lost, early, doubled, overdue or late, while that audit is kept",
    [*_RESOURCE, "found"],
)
AUDIT_TIME = Gauge(
    "delayedtopics_operator_audit_timestamp_seconds",
    "When the last audit of a DelayedTopic had its verdict",
    _RESOURCE,
)
AUDIT_EXPECTED = Gauge(
    "delayedtopics_operator_audit_expected_timestamp_seconds",
    "By when the schedule of a DelayedTopic's audits should have brought a later verdict",
    _RESOURCE,
)
DUE_LAG = Gauge(
    "delayedtopics_operator_due_lag_records",
    "Records of a DelayedTopic with autoscale or measureDueLag that are due and not released",
    _RESOURCE,
)
REGISTRY_FULLNESS = Gauge(
    "delayedtopics_operator_registry_fullness_ratio",
    "How much of what the operator may hold of a connection's registry it holds, from 0 to 1",
    ["kind", *_RESOURCE],
)
OVERDUE_SECONDS = Gauge(
    "delayedtopics_operator_overdue_seconds",
    "How late the pass is that has been due longest and has not begun",
    ["kind"],
)
HELPERS = Gauge(
    "delayedtopics_operator_helper_processes",
    "Processes that ask about consumer groups, at most one for each connection",
)
ORPHANS = Counter(
    "delayedtopics_operator_orphans_removed_total", "Objects that were removed since their resource was gone", ["kind"]
)
HOLDS_LEASE = Gauge(
    "delayedtopics_operator_holds_lease", "1 if this process is the operator of its installation, 0 if it waits to be"
)
KOPF_RESTARTS = Counter(
    "delayedtopics_operator_watch_restarts_total", "Watches that ended and were begun again", ["scope"]
)
