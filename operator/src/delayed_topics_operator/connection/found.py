"""What Kafka answers through a connection, and whether cluster and registry are the ones that were used before."""

from typing import NamedTuple

from delayed_topics_core.reasons import Reason
from delayed_topics_crds import ClusterKafkaConnection, KafkaConnection, KafkaConnectionStatus
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import (
    ConnectionInvalid,
    KafkaCallError,
    KafkaUnreachable,
    RegistryLost,
    RegistryTooLarge,
    TokenMissing,
)
from delayed_topics_kafka.model import ClusterInfo

from delayed_topics_operator.connection.reconcile.usable import DEFAULT_SKEW_MS, Shared, Usable
from delayed_topics_operator.errors import ConnectionUnusable
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.annotations import ACCEPT_LOSS, accepted_losses
from delayed_topics_operator.values.key import Key

Resource = ClusterKafkaConnection | KafkaConnection


class Found(NamedTuple):
    """What Kafka answered. `brokers_seen`: the most brokers that ever answered."""

    cluster: ClusterInfo
    brokers_seen: int
    registry_replicas: int
    registry_id: str


async def find(key: Key, resource: Resource, link: KafkaLink) -> Found:
    """Asks Kafka, and opens the link if it is new. Raises KafkaCallError, ConnectionUnusable."""
    before = resource.status
    cluster = same_cluster(key, before.cluster_id, await link.describe_cluster())
    brokers = brokers_seen(before, cluster)
    if link.registry_id is None:
        await link.open(brokers=brokers, registry_id=known_registry(resource))
    else:
        await link.repair_system_topics(brokers=brokers)
    assert link.registry_id is not None, "the link is open"
    return Found(cluster, brokers, link.registry_replicas, link.registry_id)


def same_cluster(key: Key, before: str | None, cluster: ClusterInfo) -> ClusterInfo:
    """Raises ConnectionUnusable for another cluster, because the operator would create all topics there, empty, and leave the old ones."""
    if before is None or cluster.cluster_id == before:
        return cluster
    raise ConnectionUnusable(
        f"the bootstrap servers of {key} lead to the Kafka cluster {cluster.cluster_id}, but they led to {before} before. Correct "
        "spec.bootstrapServers. If all its topics shall be created anew in the other cluster, delete this connection and create it again",
        reason=Reason.CLUSTER_CHANGED,
    )


def known_registry(resource: Resource) -> str | None:
    """Returns the id of the registry that was used before. None: there was none, or its loss was accepted."""
    known = resource.status.registry_topic_id
    return None if known in accepted_losses(resource.metadata.annotations) else known


def refusal(key: Key, error: KafkaCallError, registry_id: str | None) -> ConnectionUnusable:
    """Returns what the connection's condition says about the error. `registry_id`: the id of the registry that was used before."""
    match error:
        case TokenMissing():
            return ConnectionUnusable(str(error), reason=Reason.TOKEN_MISSING)
        case KafkaUnreachable():
            return ConnectionUnusable(str(error), reason=Reason.KAFKA_UNREACHABLE)
        case ConnectionInvalid():
            return ConnectionUnusable(str(error), reason=Reason.SPEC_INVALID)
        case RegistryLost():
            return ConnectionUnusable(
                f"{error}. The operator creates, changes and deletes nothing in Kafka through {key}. Running workers go on with what they "
                "know. Without the records of the registry, existing topics are foreign to their resources. Restore the records with "
                f"`delayed-topics registry import`. Then annotate the connection with {ACCEPT_LOSS}={registry_id}, so that the operator "
                "uses the registry that is there now",
                reason=Reason.REGISTRY_LOST,
            )
        case RegistryTooLarge():
            return ConnectionUnusable(
                f"{error}. The operator creates, changes and deletes nothing in Kafka through {key}. Running workers go on. Either remove "
                "what the operator has not written from the registry topic, or raise operator.registryMebibytes of the chart together "
                "with the operator's memory",
                reason=Reason.REGISTRY_TOO_LARGE,
            )
        case _:
            return ConnectionUnusable(str(error), reason=Reason.KAFKA_REFUSED)


def brokers_seen(before: KafkaConnectionStatus, cluster: ClusterInfo) -> int:
    """Returns the most brokers that ever answered, because a broker that restarts still belongs to the cluster."""
    return max(len(cluster.brokers), before.brokers_seen or 0, before.brokers or 0)


def as_usable(resource: Resource, connection: Connection, found: Found, shared: Shared | None) -> Usable:
    skew_ms = resource.spec.broker_skew_ms
    return Usable(
        brokers=found.brokers_seen,
        registry_replicas=found.registry_replicas,
        broker_skew_ms=skew_ms if skew_ms is not None else 0 if found.brokers_seen == 1 else DEFAULT_SKEW_MS,
        files=connection.to_files(),
        grants=resource.spec.allow if isinstance(resource, ClusterKafkaConnection) else None,
        shared=shared,
    )
