"""All metrics of the operator."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter(
    "delayed_topics_operator_reconciles_total", "Passes over a resource, by how they ended", ["kind", "outcome"]
)
RECONCILE_SECONDS = Histogram(
    "delayed_topics_operator_reconcile_seconds",
    "Duration of a pass over a resource, by how it ended",
    ["kind", "outcome"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 2, 5, 10, 30),
)
KUBE_CALLS = Counter("delayed_topics_operator_kube_calls_total", "Calls to the API server", ["verb", "kind", "status"])
KAFKA_CALLS = Counter("delayed_topics_operator_kafka_calls_total", "Calls to Kafka, each for many items", ["call"])
KAFKA_ITEMS = Counter("delayed_topics_operator_kafka_items_total", "Items in calls to Kafka", ["call"])
ACTIONS = Counter("delayed_topics_operator_actions_total", "Actions executed", ["action", "outcome"])
CONDITIONS = Gauge(
    "delayed_topics_operator_condition",
    "Resources with this condition, by status and reason",
    ["kind", "type", "status", "reason"],
)
OVERDUE_SECONDS = Gauge(
    "delayed_topics_operator_overdue_seconds",
    "How late the pass is that has been due longest and has not begun",
    ["kind"],
)
HELPERS = Gauge(
    "delayed_topics_operator_helper_processes",
    "Processes that ask about consumer groups, at most one for each connection",
)
ORPHANS = Counter(
    "delayed_topics_operator_orphans_removed_total", "Objects that were removed since their resource was gone", ["kind"]
)
HOLDS_LEASE = Gauge(
    "delayed_topics_operator_holds_lease", "1 if this process is the operator of its installation, 0 if it waits to be"
)
KOPF_RESTARTS = Counter(
    "delayed_topics_operator_watch_restarts_total", "Watches that ended and were begun again", ["scope"]
)
