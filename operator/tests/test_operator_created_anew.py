"""A resource is deleted, and perhaps created anew, while a list is under way that has the state of its first page."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.engine import store as engine_store
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Store, refresh
from delayed_topics_operator.errors import Conflict
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.runtime import Runtime
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.fleet import Topics
from delayed_topics_operator_testing.simulation import CLUSTER, OPERATOR_NAMESPACE, Simulation

ORDERS = Key("DelayedTopic", "shop", "orders")
SHOP = {"kind": "Namespace", "metadata": {"name": "shop", "uid": "shop", "resourceVersion": "1"}}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Kubernetes:
    """An API server with at most one DelayedTopic. The second page of a list of all DelayedTopics waits until `next_page` is set."""

    def __init__(self, live: Manifest) -> None:
        self.live: Manifest | None = live
        self.begun, self.next_page = asyncio.Event(), asyncio.Event()

    async def list_all(self, kind: str, *_: object, **__: object) -> list[Manifest]:
        if kind == "Namespace":
            return [SHOP]
        found = [self.live] if kind == "DelayedTopic" and self.live is not None else []
        if kind == "DelayedTopic":
            self.begun.set()
            await self.next_page.wait()
        return found

    async def list_one(self, *_: object) -> Manifest | None:
        return self.live

    async def find(self, *_: object) -> None:
        """Finds no objects of workers."""

    async def apply(self, body: Manifest, **_: object) -> Manifest:
        live = self.live if self.live is not None and body["kind"] == "DelayedTopic" else {"metadata": {}}
        version = int(live["metadata"].get("resourceVersion", "100")) + 1
        meta = {**live["metadata"], **body["metadata"], "uid": live["metadata"].get("uid", "made")}
        meta |= {"resourceVersion": str(version), "generation": 1}
        made = {**live, **body, "metadata": meta}
        if body["kind"] == "DelayedTopic":
            self.live = made
        return made

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        """Removes or adds a finalizer. A resource that is being deleted and has none is gone."""
        live = self.live
        if live is None or patch["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]:
            raise Conflict(name, status=409)
        made = {**live, "metadata": {**live["metadata"], **patch["metadata"], "resourceVersion": "20"}}
        self.live = made if patch["metadata"]["finalizers"] else None
        return made

    async def create(self, body: Manifest) -> Manifest:
        """Accepts Events."""
        return body


class Operator:
    """A resource that is served and has deletionPolicy Delete, its operator, and Kafka. `removed`: what the operator removed from Kafka."""

    def __init__(self) -> None:
        self.simulation = Simulation.serving(deletionPolicy="Delete")
        self.simulation.raw["metadata"] |= {"finalizers": [FINALIZER], "resourceVersion": "5"}
        self.removed: list[object] = []
        self.kube = Kubernetes(self.simulation.raw)
        settings = Settings(namespace=OPERATOR_NAMESPACE, audit_namespace="a", worker_image="w", audit_image="a")
        self.runtime = Runtime(
            settings=settings, kube=cast(Kube, self.kube), cluster=CLUSTER, leadership=Leadership.without_end()
        )
        self.store = self.runtime.store
        self.store.put(SHOP)
        given = context(self.kube, self.store, namespace=OPERATOR_NAMESPACE)
        connections = SimpleNamespace(hold=_nothing, leaving=lambda _: False, doubt=lambda *_: None)
        usage = Usage(given, changed=lambda _: None)
        self.topics = Observed(given, connections=cast(Connections, connections), usage=usage)
        self.topics.simulation, self.topics.removed = self.simulation, self.removed

    def version(self, version: int, uid: str, **meta: Any) -> Manifest:
        raw = self.simulation.raw
        known = {**raw["metadata"], "uid": uid, "resourceVersion": str(version), **meta}
        return {**raw, "metadata": known}

    async def passes(self) -> None:
        for _ in range(5):
            if await self.topics.reconcile(ORDERS) is None:
                break


class Observed(Topics):
    removed: list[object]

    async def _kafka(self, *_: Any, **__: Any) -> Any:
        async def remove(what: object) -> None:
            self.removed.append(what)

        state, view, link = await super()._kafka()
        deletes = dict.fromkeys(("delete_group", "delete_topics", "remove"), remove)
        return state, view, cast(KafkaLink, SimpleNamespace(**vars(link), **deletes))


async def _nothing(*_: object) -> None: ...


DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_a_resource_that_is_created_anew_while_a_list_is_under_way_keeps_its_topics() -> None:
    async def story() -> None:
        operator = Operator()
        former = operator.version(6, "former", **DELETING)
        operator.kube.live = former
        operator.runtime.seen("MODIFIED", former)
        listing = asyncio.create_task(operator.runtime.resync())
        await operator.kube.begun.wait()
        operator.runtime.seen("DELETED", operator.version(9, "former", **DELETING))
        operator.kube.live = operator.version(11, "successor")
        operator.runtime.seen("ADDED", operator.kube.live)
        operator.kube.next_page.set()
        await listing
        await operator.passes()
        assert operator.removed == []
        assert (operator.store.get(*ORDERS) or {})["metadata"]["uid"] == "successor"

    asyncio.run(story())


def test_a_successor_of_which_no_watch_told_keeps_its_topics() -> None:
    async def story() -> None:
        operator = Operator()
        operator.runtime.seen("MODIFIED", operator.version(6, "former", **DELETING))
        operator.kube.live = operator.version(11, "successor")
        await operator.passes()
        assert operator.removed == []
        assert (operator.store.get(*ORDERS) or {})["metadata"]["uid"] == "successor"

    asyncio.run(story())


def test_a_resource_that_is_being_deleted_and_has_no_successor_loses_its_topics() -> None:
    async def story() -> None:
        operator = Operator()
        operator.kube.live = operator.version(6, "former", **DELETING)
        operator.runtime.seen("MODIFIED", operator.kube.live)
        await operator.passes()
        assert set(operator.simulation.kafka.topics) in [
            set(what) for what in operator.removed if isinstance(what, tuple)
        ]
        assert operator.kube.live is None

    asyncio.run(story())


def test_nothing_is_made_for_a_resource_that_was_deleted_while_a_list_was_under_way() -> None:
    async def story() -> None:
        operator = Operator()
        operator.runtime.seen("ADDED", operator.version(5, "former"))
        operator.kube.live = operator.version(5, "former")
        listing = asyncio.create_task(operator.runtime.resync())
        await operator.kube.begun.wait()
        operator.kube.live = None
        operator.runtime.seen("DELETED", operator.version(9, "former", **DELETING))
        operator.kube.next_page.set()
        await listing
        assert operator.store.get(*ORDERS) is None
        assert await operator.topics.reconcile(ORDERS) is None

    asyncio.run(story())


def thing(version: int, uid: str = "u") -> Manifest:
    meta = {"namespace": "n", "name": "a", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "metadata": meta}


def known(store: Store) -> tuple[str, str] | None:
    found = store.get("ConfigMap", "n", "a")
    return (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) if found is not None else None


def listed(store: Store, clock: Clock, *found: Manifest, begun_at: float) -> None:
    clock.now += 1
    store.replace("ConfigMap", found, namespace="n", begun_at=begun_at)


def test_a_list_brings_back_nothing_that_was_deleted_since_it_began() -> None:
    clock = Clock()
    store = Store(clock=clock)
    begun_at = clock.now
    clock.now += 1
    store.gone(thing(9))
    listed(store, clock, thing(5), begun_at=begun_at)
    assert known(store) is None
    store.put(thing(7))
    assert known(store) is None, "nor does a watch or an answer"
    store.put(thing(10, "successor"))
    assert known(store) == ("successor", "10")


def test_a_list_that_began_after_the_deletion_of_one_object_knows_what_there_is() -> None:
    """An object that no longer has our labels counts as deleted for a watch. Somebody may give it back its labels."""
    clock = Clock()
    store = Store(clock=clock)
    store.gone(thing(9))
    clock.now += 1
    listed(store, clock, thing(9), begun_at=clock.now)
    assert known(store) == ("u", "9")


def test_an_answer_that_an_object_is_not_there_outlasts_a_list_that_began_before() -> None:
    clock = Clock()
    store = Store(clock=clock)
    store.put(thing(5))
    begun_at = clock.now
    clock.now += 1
    store.absent("ConfigMap", "n", "a")
    listed(store, clock, thing(5), begun_at=begun_at)
    assert known(store) is None


def test_what_a_list_no_longer_has_is_not_brought_back_by_a_watch_that_began_with_an_older_list() -> None:
    clock = Clock()
    store = Store(clock=clock)
    store.put(thing(5))
    clock.now += 1
    listed(store, clock, begun_at=clock.now)
    store.put(thing(5))
    assert known(store) is None


def test_a_deletion_that_a_watch_tells_removes_a_predecessor_as_well() -> None:
    store = Store(clock=Clock())
    store.put(thing(5, "first"))
    store.gone(thing(9, "second"))
    assert known(store) is None


def test_a_cluster_that_was_restored_from_a_backup_has_lower_versions_and_is_followed() -> None:
    clock = Clock()
    store = Store(clock=clock)
    store.put(thing(500))
    clock.now += 1
    listed(store, clock, thing(300), begun_at=clock.now)
    assert known(store) == ("u", "300")
    clock.now += 1

    class Restored:
        async def find(self, *_: object) -> Manifest:
            return thing(250)

    asyncio.run(refresh(cast(Kube, Restored()), store, "ConfigMap", "n", "a"))
    assert known(store) == ("u", "250")


def test_deletions_are_not_remembered_for_ever() -> None:
    clock = Clock()
    store = Store(clock=clock)
    for number in range(100):
        made = thing(1)
        made["metadata"]["name"] = str(number)
        store.gone(made)
        clock.now += engine_store.TOMBSTONE_SECONDS / 10
    assert len(store._tombstones) <= 10
