"""Which installation serves a connection, and with it all that refers to it, where one cluster has several of them.

An annotation of the connection names the namespace of its operator. A connection without one belongs to the operator of the
connection `default`, and where that has none either, to whichever operator there is.
"""

from collections.abc import Iterator

from delayed_topics_operator.queue import Key
from delayed_topics_operator.store import Manifest, Store

INSTALLATION = "delayedtopics.io/installation"
DEFAULT_CONNECTION = Key("ClusterKafkaConnection", "", "default")


def installation_of(connection: Manifest) -> str | None:
    """The namespace of its operator, if it names one."""
    named = (connection["metadata"].get("annotations") or {}).get(INSTALLATION)
    return str(named) if named else None


def connection_of(topic: Manifest) -> Key:
    """The connection that a DelayedTopic names, whatever else is in it."""
    ref = topic["spec"].get("connectionRef") or {}
    kind = ref.get("kind", DEFAULT_CONNECTION.kind)
    namespace = topic["metadata"]["namespace"] if kind == "KafkaConnection" else ""
    return Key(kind, namespace, ref.get("name", DEFAULT_CONNECTION.name))


def connections(topic: Manifest) -> tuple[Key]:
    """For `Store.by_index`, of DelayedTopics."""
    return (connection_of(topic),)


def serves(store: Store, connection: Key, *, namespace: str) -> bool:
    """Whether the operator in `namespace` is the one for this connection, which need not exist."""
    return next(_named(store, connection), namespace) == namespace


def _named(store: Store, connection: Key) -> Iterator[str]:
    for key in (connection, DEFAULT_CONNECTION):
        found = store.get(*key)
        named = installation_of(found) if found is not None else None
        if named is not None:
            yield named
