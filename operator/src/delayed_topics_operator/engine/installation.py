"""Which installation serves a connection, and with it all that refers to it, where one cluster has several of them.

An annotation of the connection names the namespace of its operator. A connection without one belongs to the operator of the
connection `default`, and where that has none either, to the operator that is the first to write its own namespace there.
"""

from collections.abc import Iterator

from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import Conflict, NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest

INSTALLATION = "delayedtopics.io/installation"
TRANSACTIONAL_ID_PREFIX = "delayedtopics-operator/"
"""No topic's name can contain it, so nobody who may use the ids of a topic's workers may use these."""
DEFAULT_CONNECTION = Key("ClusterKafkaConnection", "", "default")


def installation_of(resource: Manifest) -> str | None:
    """The namespace of its operator, if it names one. Connections do, and audits that have begun."""
    named = (resource["metadata"].get("annotations") or {}).get(INSTALLATION)
    return str(named) if named else None


def transactional_id(cluster: str, installation: str, connection: Key) -> str:
    """Of the writer of the registry that this connection leads to. `cluster`: the UID of the kube-system namespace.

    Another for each connection, since two may lead to the same Kafka.
    """
    return (
        f"{TRANSACTIONAL_ID_PREFIX}{cluster}/{installation}/{connection.kind}/{connection.namespace}/{connection.name}"
    )


def connection_of(topic: Manifest) -> Key:
    """The connection that a DelayedTopic names, whatever else is in it."""
    ref = topic["spec"].get("connectionRef") or {}
    kind = ref.get("kind", DEFAULT_CONNECTION.kind)
    namespace = topic["metadata"]["namespace"] if kind == "KafkaConnection" else ""
    return Key(kind, namespace, ref.get("name", DEFAULT_CONNECTION.name))


def connections(topic: Manifest) -> tuple[Key]:
    """For `Store.by_index`, of DelayedTopics."""
    return (connection_of(topic),)


def front_topic(topic: Manifest) -> str:
    """The front topic that a DelayedTopic names."""
    return str(topic["spec"].get("topic") or topic["metadata"]["name"])


def serves(store: Store, connection: Key, *, namespace: str) -> bool:
    """Whether the operator in `namespace` is the one for this connection, which need not exist."""
    return (server_of(store, connection) or namespace) == namespace


def server_of(store: Store, connection: Key) -> str | None:
    """The namespace of the operator that serves this connection. None: none is named yet."""
    return next(_named(store, connection), None)


async def record(kube: Kube, store: Store, connection: Manifest, *, namespace: str) -> Manifest:
    """Names the operator in `namespace` as the one that serves the connection. Raises KubeRefused; NotYet if somebody changed it
    meanwhile, who may be another operator that serves it now."""
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
