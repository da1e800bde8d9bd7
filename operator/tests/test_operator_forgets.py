"""What is gone takes no memory of the operator for ever."""

import asyncio
import time
from typing import Any, cast

from delayed_topics_operator.engine.served_elsewhere import ServedElsewhere
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import UNREAD_SECONDS, Runtime
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import resource

UNKNOWN = float("inf")


class Nothing:
    """A Kubernetes that has no objects."""

    async def list_all(self, *_: Any, **__: Any) -> list[Manifest]:
        return []


def runtime() -> Runtime:
    settings = Settings(namespace="system", audit_namespace="audits", worker_image="w", audit_image="a")
    kube = cast(Kube, Nothing())
    return Runtime(settings=settings, kube=kube, cluster="cluster", leadership=Leadership.without_end())


def secret(namespace: str) -> Manifest:
    return {"kind": "Secret", "metadata": {"namespace": namespace, "name": "orders", "uid": "u"}}


def test_secrets_that_nobody_reads_any_more_are_forgotten_and_those_that_are_read_stay() -> None:
    async def story() -> None:
        made = runtime()
        made.store.clock = lambda: time.monotonic() - UNREAD_SECONDS - 1
        made.store.put(secret("former"))
        made.store.absent("Secret", "system", "gone")
        made.store.absent("ConfigMap", "audits", "window")
        made.store.clock = time.monotonic
        made.store.put(secret("system"))
        assert await made.resync()
        assert made.store.age_seconds("Secret", "former", "orders") == UNKNOWN
        assert made.store.age_seconds("Secret", "system", "gone") == UNKNOWN
        assert made.store.age_seconds("ConfigMap", "audits", "window") == UNKNOWN
        assert made.store.all("Secret") == [secret("system")]

    asyncio.run(story())


def test_secrets_of_a_namespace_that_is_no_tenants_any_more_are_forgotten_at_once() -> None:
    async def story() -> None:
        made = runtime()
        made.tenants.entered = frozenset({"shop"})
        made.store.put(secret("shop"))
        assert await made.resync()
        assert made.store.all("Secret") == []

    asyncio.run(story())


def test_connections_that_do_not_exist_are_forgotten_with_the_last_delayed_topic_that_names_them() -> None:
    async def story() -> None:
        made = runtime()
        topic = resource(connectionRef={"kind": "KafkaConnection", "name": "typo"})
        connection = Key("KafkaConnection", "shop", "typo")
        made.store.put(topic)
        since = made.connections.look(connection)[0]
        made.connections.forget_unnamed()
        assert made.connections.look(connection)[0] is since
        made.store.gone(topic)
        made.connections.forget_unnamed()
        assert made.connections._entries == {}

    asyncio.run(story())


def test_edits_of_a_resource_that_another_installation_serves_do_not_pile_up() -> None:
    async def story() -> None:
        served_elsewhere = ServedElsewhere(context(None, Store()), clock=lambda: 0.0)
        for generation in range(2, 10):
            await served_elsewhere.say_if_unserved(resource(generation=generation))
        assert len(served_elsewhere._unobserved_since) == 1
        served_elsewhere.forget(Key("DelayedTopic", "shop", "orders"))
        assert len(served_elsewhere._unobserved_since) == 0

    asyncio.run(story())
