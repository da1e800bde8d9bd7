"""What the status of a ClusterKafkaConnection or KafkaConnection says."""

from collections.abc import Sequence
from datetime import UTC, datetime

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import MAX_NAMESPACES, ClusterKafkaConnectionStatus, KafkaConnectionStatus, NamespaceQuota
from delayed_topics_crds import Condition as StatusCondition

from delayed_topics_operator.controllers.found import Found
from delayed_topics_operator.observation import Unusable, Usable
from delayed_topics_operator.store import Manifest
from delayed_topics_operator.translate import status_of

SHOWN_USERS = 5


def connection_status(
    raw: Manifest,
    state: Usable | Unusable,
    *,
    found: Found | None,
    users: Sequence[str],
    namespaces: tuple[NamespaceQuota, ...] | None,
) -> KafkaConnectionStatus:
    """`state`: what its DelayedTopics are told of it. `found`: what Kafka said, None if it said nothing. `users`: the DelayedTopics
    that use it, as namespace/name. `namespaces`: all that use it, None: as they were said before."""
    if raw["metadata"].get("deletionTimestamp"):
        ready, reason = "False", Reason.DELETING
        shown = ", ".join(users[:SHOWN_USERS]) + (
            f" and {len(users) - SHOWN_USERS} more" if users[SHOWN_USERS:] else ""
        )
        message = f"being deleted: it goes when the DelayedTopics that use it are gone, {shown}; delete them"
    elif found is not None and isinstance(state, Usable):
        ready, reason = "True", Reason.AS_DECLARED
        message = f"Kafka cluster {found.cluster.cluster_id} with {len(found.cluster.brokers)} brokers answers"
    else:
        assert isinstance(state, Unusable), "nothing was found"
        ready, reason, message = "False", state.reason, state.message
    generation = raw["metadata"].get("generation")
    before = next((c for c in (raw.get("status") or {}).get("conditions", ()) if c["type"] == Condition.READY), None)
    since = before["lastTransitionTime"] if before and before["status"] == ready else datetime.now(UTC)
    condition = StatusCondition.model_validate(
        {
            "type": Condition.READY,
            "status": ready,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }
    )
    live = raw.get("status") or {}
    status = KafkaConnectionStatus(
        observed_generation=generation,
        conditions=(condition,),
        cluster_id=found.cluster.cluster_id if found else live.get("clusterId"),
        brokers=len(found.cluster.brokers) if found else live.get("brokers"),
        brokers_seen=found.brokers_seen if found else live.get("brokersSeen"),
        registry_topic_id=found.registry_id if found else live.get("registryTopicId"),
    )
    if raw["kind"] == "KafkaConnection":
        return status
    known = status_of(ClusterKafkaConnectionStatus, raw)
    return ClusterKafkaConnectionStatus(
        **dict(status),
        namespaces=known.namespaces if namespaces is None else namespaces[:MAX_NAMESPACES],
        namespace_count=known.namespace_count if namespaces is None else len(namespaces),
    )
