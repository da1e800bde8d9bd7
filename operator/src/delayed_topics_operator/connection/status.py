"""The status of a ClusterKafkaConnection or KafkaConnection."""

from collections.abc import Sequence
from datetime import UTC, datetime

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.words import shortened
from delayed_topics_crds import MAX_NAMESPACES, ClusterKafkaConnectionStatus, KafkaConnectionStatus, NamespaceQuota

from delayed_topics_operator.connection.found import Found
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.values.conditions import condition, status_of
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import ConditionState


def connection_status(
    raw: Manifest,
    state: Usable | Unusable,
    *,
    found: Found | None,
    users: Sequence[str],
    namespaces: tuple[NamespaceQuota, ...] | None,
) -> KafkaConnectionStatus:
    """`state`: the connection as its users see it. `found`: what Kafka answered; None: Kafka did not answer. `users`: the DelayedTopics
    that use the connection, as namespace/name. `namespaces`: all that use it; None: those in the present status."""
    if raw["metadata"].get("deletionTimestamp"):
        message = (
            "the deletion waits until no DelayedTopic uses the connection. Either delete those that use it, or, to have them served from "
            f"another Kafka cluster, change the connection's bootstrap servers (see docs/move-kafka.md). They are {shortened(users)}"
        )
        ready_state = ConditionState(status="False", reason=Reason.DELETING, message=message)
    elif found is not None and isinstance(state, Usable):
        message = f"Kafka cluster {found.cluster.cluster_id} with {len(found.cluster.brokers)} brokers answers"
        ready_state = ConditionState(status="True", reason=Reason.AS_DECLARED, message=message)
    else:
        assert isinstance(state, Unusable), "nothing was found"
        ready_state = ConditionState(status="False", reason=state.reason, message=state.message)
    generation = raw["metadata"].get("generation")
    live = raw.get("status") or {}
    known = status_of(ClusterKafkaConnectionStatus, raw)
    ready = condition(
        Condition.READY, ready_state, known=known.conditions, now=datetime.now(UTC), generation=generation
    )
    shared = state.shared if isinstance(state, Usable) else None
    workers = shared and condition(
        Condition.WORKERS_READY, shared.said, known=known.conditions, now=datetime.now(UTC), generation=generation
    )
    status = KafkaConnectionStatus(
        observed_generation=generation,
        conditions=(ready, *((workers,) if workers else ())),
        cluster_id=found.cluster.cluster_id if found else live.get("clusterId"),
        brokers=len(found.cluster.brokers) if found else live.get("brokers"),
        brokers_seen=found.brokers_seen if found else live.get("brokersSeen"),
        registry_topic_id=found.registry_id if found else live.get("registryTopicId"),
    )
    if raw["kind"] == "KafkaConnection":
        return status
    return ClusterKafkaConnectionStatus(
        **dict(status),
        namespaces=known.namespaces if namespaces is None else namespaces[:MAX_NAMESPACES],
        namespace_count=known.namespace_count if namespaces is None else len(namespaces),
    )
