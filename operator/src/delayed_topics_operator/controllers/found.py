"""What Kafka says by a connection: is it the cluster, and the registry, that was used before?"""

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

from delayed_topics_operator.errors import ConnectionUnusable
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.observation import Shared, Usable
from delayed_topics_operator.queue import Key
from delayed_topics_operator.reconcile.target import DEFAULT_SKEW_MS
from delayed_topics_operator.translate import ACCEPT_LOSS, accepted_losses

Resource = ClusterKafkaConnection | KafkaConnection


class Found(NamedTuple):
    """What Kafka said."""

    cluster: ClusterInfo
    brokers_seen: int
    registry_replicas: int
    registry_id: str


async def find(key: Key, before: KafkaConnectionStatus, link: KafkaLink) -> Found:
    """`before`: what was found the last time. Raises KafkaCallError, ConnectionUnusable."""
    cluster = same_cluster(key, before.cluster_id, await link.describe_cluster())
    replicas = await link.registry_replicas()
    assert link.registry_id is not None, "the link is open"
    return Found(cluster, brokers_seen(before, cluster), replicas, link.registry_id)


def same_cluster(key: Key, before: str | None, cluster: ClusterInfo) -> ClusterInfo:
    """Raises ConnectionUnusable: in another cluster all topics would be made anew, empty, and the old ones be left."""
    if before is None or cluster.cluster_id == before:
        return cluster
    raise ConnectionUnusable(
        f"the bootstrap servers of {key} lead to the Kafka cluster {cluster.cluster_id}, before to {before}: correct them; if all "
        "its topics shall be made anew in the other cluster, delete this connection and make it again",
        reason=Reason.CLUSTER_CHANGED,
    )


def known_registry(resource: Resource) -> str | None:
    """The id of the registry that was used before. None: there was none, or its loss was accepted."""
    known = resource.status.registry_topic_id
    return None if known in accepted_losses(resource.metadata.annotations) else known


def refusal(key: Key, error: KafkaCallError, registry_id: str | None) -> ConnectionUnusable:
    """What the connection's condition says of the error. `registry_id`: of the registry that was used before."""
    match error:
        case TokenMissing():
            return ConnectionUnusable(str(error), reason=Reason.TOKEN_MISSING)
        case KafkaUnreachable():
            return ConnectionUnusable(str(error), reason=Reason.KAFKA_UNREACHABLE)
        case ConnectionInvalid():
            return ConnectionUnusable(str(error), reason=Reason.SPEC_INVALID)
        case RegistryLost():
            return ConnectionUnusable(
                f"{error}. Nothing is made, changed or deleted in Kafka by {key}; workers that run go on with what they know. Bring "
                "the records back with `delayed-topics registry import`, then have what is there used by annotating the connection "
                f"with {ACCEPT_LOSS}={registry_id}. Without the records the topics that exist are foreign to their resources",
                reason=Reason.REGISTRY_LOST,
            )
        case RegistryTooLarge():
            return ConnectionUnusable(
                f"{error}. Nothing is made, changed or deleted in Kafka by {key}; workers that run go on. Have its topic cleared of what "
                "is not the operator's, or raise operator.registryMebibytes of the chart, and with it the operator's memory",
                reason=Reason.REGISTRY_TOO_LARGE,
            )
        case _:
            return ConnectionUnusable(str(error), reason=Reason.KAFKA_REFUSED)


def brokers_seen(before: KafkaConnectionStatus, cluster: ClusterInfo) -> int:
    """The most brokers that ever answered: one that restarts is one of them all the same."""
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
