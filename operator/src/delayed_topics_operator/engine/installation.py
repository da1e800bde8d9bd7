"""Which installation serves a connection, and all resources that refer to it, if a cluster has several installations.

An annotation of the connection names the namespace of its operator. A connection without the annotation belongs to the operator of the
connection `default`. If that has none either, the connection belongs to the first operator that annotates it with its own namespace.
"""

from collections.abc import Iterator

from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import Conflict, NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest

INSTALLATION = "delayedtopics.io/installation"
TRANSACTIONAL_ID_PREFIX = "delayedtopics-operator/"
"""No topic name can contain this prefix. Therefore no one who may use the transactional ids of a topic's workers may use the operator's."""
DEFAULT_CONNECTION = Key("ClusterKafkaConnection", "", "default")


def installation_of(resource: Manifest) -> str | None:
    """Returns the namespace of the operator that the resource names, if any. Connections name one, and audits that have begun."""
    named = (resource["metadata"].get("annotations") or {}).get(INSTALLATION)
    return str(named) if named else None


def transactional_id(cluster: str, installation: str, connection: Key) -> str:
    """Returns the transactional id with which the operator writes to the registry of this connection. `cluster`: the UID of the kube-system
    namespace.

    Each connection has an id of its own, since two may lead to the same Kafka.
    """
    return (
        f"{TRANSACTIONAL_ID_PREFIX}{cluster}/{installation}/{connection.kind}/{connection.namespace}/{connection.name}"
    )


def connection_of(topic: Manifest) -> Key:
    """Returns the connection that a DelayedTopic names, even if the rest of its spec is invalid."""
    ref = topic["spec"].get("connectionRef") or {}
    kind = ref.get("kind", DEFAULT_CONNECTION.kind)
    namespace = topic["metadata"]["namespace"] if kind == "KafkaConnection" else ""
    return Key(kind, namespace, ref.get("name", DEFAULT_CONNECTION.name))


def connections(topic: Manifest) -> tuple[Key]:
    """For `Store.by_index`, of DelayedTopics."""
    return (connection_of(topic),)


def front_topic(topic: Manifest) -> str:
    """Returns the front topic that a DelayedTopic names."""
    return str(topic["spec"].get("topic") or topic["metadata"]["name"])


def serves(store: Store, connection: Key, *, namespace: str) -> bool:
    """Whether the operator in `namespace` is the one for this connection, which need not exist."""
    return (server_of(store, connection) or namespace) == namespace


def server_of(store: Store, connection: Key) -> str | None:
    """Returns the namespace of the operator that serves this connection. None: no operator is named yet."""
    return next(_named(store, connection), None)


async def record(kube: Kube, store: Store, connection: Manifest, *, namespace: str) -> Manifest:
    """Records the operator in `namespace` as the one that serves the connection. Raises KubeError. Raises NotYet if someone changed the
    connection in the meantime, perhaps another operator that serves it now."""
    meta = connection["metadata"]
    patch = {"resourceVersion": meta["resourceVersion"], "annotations": {INSTALLATION: namespace}}
    try:
        recorded = await kube.merge(connection["kind"], meta.get("namespace"), meta["name"], {"metadata": patch})
    except Conflict as e:
        raise NotYet(f"{connection['kind']} {meta['name']} was changed meanwhile") from e
    store.put(recorded)
    return recorded


def _named(store: Store, connection: Key) -> Iterator[str]:
    for key in (connection, DEFAULT_CONNECTION):
        found = store.get(*key)
        named = installation_of(found) if found is not None else None
        if named is not None:
            yield named
