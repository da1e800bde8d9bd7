"""Wires the parts together and runs them: watches wake queues, queues run controllers, and a periodic resync compares everything."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import suppress

from delayed_topics_core.reasons import Condition
from delayed_topics_crds import GROUP, KINDS

from delayed_topics_operator import metrics
from delayed_topics_operator.audits.controller import Audits
from delayed_topics_operator.connection.controller import KINDS as CONNECTION_KINDS
from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.delayed_topic import last_audits
from delayed_topics_operator.delayed_topic.controller import DelayedTopics
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.controller import Controller, Runner
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.installation import connection_of, connections, front_topic, serves
from delayed_topics_operator.engine.settings import Settings
from delayed_topics_operator.engine.store import Indexer, Store, namespaces
from delayed_topics_operator.engine.tenants import Tenants
from delayed_topics_operator.errors import KubeError, LeadershipLost
from delayed_topics_operator.gateways.kube import APIS, LARGE_PAGE_ITEMS, PAGE_ITEMS, Kube
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.orphans import Sweeper
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import (
    CONNECTION_KIND_LABEL,
    CONNECTION_LABEL,
    NAME_LABEL,
    NAMESPACE_LABEL,
    SELECTOR_LABELS,
    label_value,
)
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.observe import WATCHED

log = logging.getLogger(__name__)

CLUSTER_WIDE = ("Namespace", *KINDS)
"""Kinds that are watched in all namespaces."""
AUDIT_PASSES = 8
"""Passes over audits at the same time, for each connection."""
UNREAD_SECONDS = 3600.0
"""How long an object is kept that is read by its name alone, such as a Secret. What is used is read again with each resync, unless the API
server can't read it."""


class Runtime:
    """All parts of one operator process. `run` ends only when it is cancelled."""

    def __init__(self, *, settings: Settings, kube: Kube, cluster: str, leadership: Leadership) -> None:
        self.settings = settings
        self.kube = kube
        self.store = Store()
        self.tenants = Tenants(settings, self.store)
        recorder = Recorder(kube)
        context = ControllerContext(
            settings=settings,
            kube=kube,
            cluster=cluster,
            store=self.store,
            recorder=recorder,
            executor=Executor(kube, self.store, recorder, rolling_at_once=settings.rolling_at_once),
            tenants=self.tenants,
        )
        self._sweeper = Sweeper(context)
        self.synced = asyncio.Event()
        """Set when everything has been listed once."""
        self.follow: Callable[[Collection[str]], None] = lambda _: None
        """Called with all namespaces in which worker objects are to be watched, whenever these namespaces may have changed."""
        self._resync_requested = asyncio.Event()
        usage = Usage(context, changed=self.wake)
        self.connections = Connections(
            context,
            usage=usage,
            changed=self._connection_changed,
            doubted=self.wake,
            news=self._connection_news,
            leadership=leadership,
        )
        topics = DelayedTopics(context, connections=self.connections, usage=usage)
        audits = Audits(context, connections=self.connections, usage=usage, changed=self.wake)
        connections = self._runner(self.connections, lane_of=lambda key: key, lane_slots=1)
        self.runners: dict[str, Runner] = {
            **dict.fromkeys(CONNECTION_KINDS, connections),
            "DelayedTopic": self._runner(topics, lane_of=self._lane_of_topic, lane_slots=settings.passes_at_once),
            "DelayedTopicAudit": self._runner(audits, lane_of=self._lane_of_audit, lane_slots=AUDIT_PASSES),
        }
        """By kind, in the order in which a resync lists the kinds. The lanes of their queues are connections."""
        assert self.runners.keys() == KINDS.keys(), "each kind has its controller"

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._resync_forever())
                await self.synced.wait()
                for runner in set(self.runners.values()):
                    tasks.create_task(runner.run())
        finally:
            await self.connections.close()

    def seen(self, event: str | None, manifest: Manifest) -> None:
        """Handles an event of a watch: wakes every resource that the object may concern, and decides nothing."""
        if event == "DELETED":
            self.store.gone(manifest)
            if manifest["kind"] == "DelayedTopic":
                self.wake(connection_of(manifest))  # its deletion may be waiting for its last user
        elif not self.store.put(manifest) and event != "ADDED":
            return  # known already. An ADDED always goes on: the answer to the operator's own create call may have been stored before
        for key in self._concerned(manifest):
            self.wake(key)
        if manifest["kind"] == "Namespace" and self.tenants.requested() != self.tenants.entered:
            self._resync_requested.set()

    def wake(self, key: Key) -> None:
        runner = self.runners.get(key.kind)
        if runner is not None:
            runner.queue.wake(key)

    def _runner(self, controller: Controller, *, lane_of: Callable[[Key], Key], lane_slots: int) -> Runner:
        interval = self.settings.pass_interval_seconds
        return Runner(controller, lane_of=lane_of, lane_slots=lane_slots, interval_seconds=interval)

    def _lane_of_topic(self, topic: Key) -> Key:
        """Returns the connection of the topic, so that a Kafka that does not answer takes only the slots of its own resources."""
        manifest = self.store.get(*topic)
        return connection_of(manifest) if manifest is not None else topic

    def _lane_of_audit(self, audit: Key) -> Key:
        manifest = self.store.get(*audit)
        if manifest is None:
            return audit
        return self._lane_of_topic(Key("DelayedTopic", audit.namespace, manifest["spec"]["delayedTopicRef"]["name"]))

    def _concerned(self, manifest: Manifest) -> Iterable[Key]:
        kind, meta = manifest["kind"], manifest["metadata"]
        if APIS[kind].group_version.startswith(GROUP):
            yield Key(kind, meta.get("namespace", ""), meta["name"])
        elif kind == "Namespace":
            yield from self._resources_in(meta["name"])
        else:
            yield from self._owner(meta["namespace"], meta.get("labels") or {})

    def _owner(self, home: str, labels: dict[str, str]) -> Iterable[Key]:
        """Yields the resources to which a child may belong by its labels, in which long names are shortened."""
        kind = labels.get(CONNECTION_KIND_LABEL)
        if kind in CONNECTION_KINDS:
            namespace = home if kind == "KafkaConnection" else ""
            yield from self._keys(kind, _label, (namespace, labels.get(CONNECTION_LABEL)))
        yield from self._keys("DelayedTopic", _label, (labels.get(NAMESPACE_LABEL), labels.get(NAME_LABEL)))

    def _keys(self, kind: str, indexer: Indexer, value: Hashable) -> Iterable[Key]:
        for manifest in self.store.by_index(kind, indexer, value):
            yield Key(kind, manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"])

    def _resources_in(self, namespace: str) -> Iterable[Key]:
        for kind in self.runners:
            if KINDS[kind].namespaced:
                yield from self._keys(kind, namespaces, namespace)

    def _connection_changed(self, connection: Key) -> None:
        for key in self._keys("DelayedTopic", connections, connection):
            self.wake(key)

    def _connection_news(self, connection: Key, topics: set[str]) -> None:
        for topic in topics:
            for key in self._keys("DelayedTopic", _front_topics, (connection, topic)):
                self.wake(key)

    async def _resync_forever(self) -> None:
        while True:
            complete = False
            try:
                complete = await self.resync()
                if complete:
                    self.synced.set()
                    await self._sweeper.sweep()
            except LeadershipLost:
                raise  # ends this process
            except Exception:  # a bug that one object triggers must not stop the resync of all others
                log.exception("the resync ended with an unexpected error. The operator tries again")
            seconds = self.settings.resync_seconds if complete else min(5.0, self.settings.resync_seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._resync_requested.wait(), seconds)

    async def resync(self) -> bool:
        """Lists everything again and wakes the resources that have changed, because watches can go silent and miss deletions.

        Returns whether everything was listed that the operator itself needs. A failure in a tenant's namespace does not count, because the
        namespace may be gone, or no longer admit the operator.
        """
        self._resync_requested.clear()
        complete = all([await self._listed(kind, None, "") for kind in ("Namespace", *self.runners)])
        tenants = self.tenants.requested()
        for kind in WATCHED:
            complete &= await self._listed(kind, self.settings.namespace, SELECTOR_LABELS)
            for namespace in tenants - {self.settings.namespace}:
                await self._listed(kind, namespace, SELECTOR_LABELS)
        self._enter(tenants)
        self.store.forget_unread(seconds=UNREAD_SECONDS, listed=self._is_listed)
        self.connections.forget_unnamed()
        return complete

    def _is_listed(self, kind: str, namespace: str) -> bool:
        return kind in CLUSTER_WIDE or (kind in WATCHED and self.tenants.may_use(namespace))

    def _enter(self, tenants: frozenset[str]) -> None:
        """Admits these tenants, whose objects have been listed, and forgets the objects in namespaces of former tenants."""
        for namespace in self.tenants.enter(tenants):
            if not self.tenants.may_use(namespace):
                for kind in (*WATCHED, "Secret"):
                    self.store.replace(kind, (), namespace=namespace, begun_at=time.monotonic())
            log.info(
                "namespace %s %s",
                namespace,
                "belongs to a tenant" if namespace in tenants else "no longer belongs to a tenant",
            )
            for key in self._resources_in(namespace):
                self.wake(key)
        self.follow(self.tenants.worker_namespaces)

    async def _listed(self, kind: str, namespace: str | None, labels: str) -> bool:
        try:
            await self._list(kind, namespace, labels)
        except KubeError as e:
            log.warning("the resync failed: %s", e)
            return False
        return True

    async def _list(self, kind: str, namespace: str | None, labels: str) -> None:
        begun_at = time.monotonic()
        page_items = LARGE_PAGE_ITEMS if namespace == self.settings.namespace else PAGE_ITEMS
        listed = await self.kube.list_all(kind, namespace, labels=labels, page_items=page_items)
        for manifest in self.store.replace(kind, listed, namespace=namespace, begun_at=begun_at):
            for key in self._concerned(manifest):
                self.wake(key)

    def count(self) -> None:
        """Sets the metrics about resources and registries."""
        for gauge in (metrics.CONDITIONS, metrics.NOT_READY, metrics.DELIVERY_VIOLATED):
            gauge.clear()
        for kind in self.runners:
            for manifest in filter(self._is_served, self.store.all(kind)):
                for c in (manifest.get("status") or {}).get("conditions", ()):
                    metrics.CONDITIONS.labels(kind, c["type"], c["status"], c["reason"]).inc()
                    if kind == "DelayedTopic":
                        _expose(manifest, c)
        self.connections.count()
        last_audits.expose(self.store, filter(self._is_served, self.store.all("DelayedTopic")))

    def _is_served(self, manifest: Manifest) -> bool:
        """Whether this installation serves the resource. Other installations count theirs."""
        kind, meta = manifest["kind"], manifest["metadata"]
        key = Key(kind, meta.get("namespace", ""), meta["name"])
        connection = self.runners[kind].queue.lane_of(key)
        return serves(self.store, connection, namespace=self.settings.namespace)


def _expose(topic: Manifest, c: Manifest) -> None:
    """Sets the gauges for conditions of a DelayedTopic that have an alert."""
    labels = (topic["metadata"]["namespace"], topic["metadata"]["name"])
    if c["type"] == Condition.READY and c["status"] != "True":
        metrics.NOT_READY.labels(*labels, c["reason"], str(_was_served(topic["status"])).lower()).set(1)
    if c["type"] == Condition.DELIVERY_VERIFIED and c["status"] == "False":
        metrics.DELIVERY_VIOLATED.labels(*labels).set(1)


def _was_served(status: Manifest) -> bool:
    """Whether the DelayedTopic has or had topics, into which records may have been produced. The layout is `planned` until all topics
    exist, and again while Kafka refuses further partitions."""
    layout = status.get("layout")
    return bool(status.get("topics")) or (layout is not None and layout["state"] != "planned")


def _front_topics(topic: Manifest) -> tuple[tuple[Key, str]]:
    """For Store.by_index: the connection and the front topic of a DelayedTopic."""
    return ((connection_of(topic), front_topic(topic)),)


def _label(resource: Manifest) -> tuple[tuple[str, str]]:
    """For Store.by_index: namespace and name, as the labels of its children have them."""
    meta = resource["metadata"]
    return ((meta.get("namespace", ""), label_value(meta["name"])),)
