"""Many sets of workers, the operator that looks after them, and the StatefulSet controller. Time passes in steps."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from delayed_topics_core.registry import RegistryRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.shared_workers import SharedWorkersOf
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.delayed_topic.controller import DelayedTopics
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.reconcile.worker_sets import shared_name

from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import OPERATOR_NAMESPACE, Simulation, resource, usable

STEP_SECONDS = 30.0


class Cluster:
    """The API server and the StatefulSet controller. `runs`: whether a pod of this template becomes ready in the set of this name."""

    def __init__(self) -> None:
        self.store = Store()
        self.runs: Callable[[str, Manifest], bool] = lambda *_: True
        self._versions = itertools.count(1)
        self._pods: dict[str, list[tuple[Manifest, bool]]] = {}
        self.store.put({"kind": "Namespace", "metadata": {"name": "shop"}})

    def stateful_set(self, name: str) -> Manifest:
        found = self.store.get("StatefulSet", OPERATOR_NAMESPACE, name)
        assert found is not None, name
        return found

    def ready(self, name: str) -> int:
        return sum(ready for _, ready in self._pods.get(name, ()))

    def next_version(self) -> str:
        return str(next(self._versions))

    def put(self, live: Manifest) -> Manifest:
        meta = live["metadata"]
        before = self.store.get(live["kind"], meta["namespace"], meta["name"]) or {"metadata": {"generation": 0}}
        edited = before.get("spec") != live.get("spec")
        known = {"uid": f"uid-{meta['name']}", "resourceVersion": self.next_version()}
        made = {
            **live,
            "metadata": {**meta, **known, "generation": before["metadata"]["generation"] + edited},
            "status": live.get("status") or before.get("status") or {},
        }
        self.store.put(made)
        return made

    def go_on(self) -> None:
        for live in self.store.all("StatefulSet"):
            name, spec, before = live["metadata"]["name"], live["spec"], live["status"]
            pods = [
                (template, self.runs(name, template)) for template, _ in self._pods.get(name, [])[: spec["replicas"]]
            ]
            for number in reversed(range(len(pods))):
                template, ready = pods[number]
                if template != spec["template"]:
                    pods[number] = (spec["template"], False)
                    break
                if not ready:
                    break
            pods += [(spec["template"], False)] * (spec["replicas"] - len(pods))
            self._pods[name] = pods
            revision = json.dumps(spec["template"], sort_keys=True)
            updated = sum(template == spec["template"] for template, _ in pods)
            done = updated == self.ready(name) == len(pods)
            status = {
                "observedGeneration": live["metadata"]["generation"],
                "replicas": len(pods),
                "updatedReplicas": updated,
                "readyReplicas": self.ready(name),
                "updateRevision": revision,
                "currentRevision": revision if done else before.get("currentRevision", revision),
            }
            if status != before:
                self.put({**live, "status": status})

    async def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.store.get(kind, namespace, name)

    async def list_all(self, *_: object, **__: object) -> list[Manifest]:
        return []

    async def apply(self, body: Manifest, **_: object) -> Manifest:
        return self.put(body)

    async def merge(self, kind: str, namespace: str, name: str, patch: Manifest) -> Manifest:
        live = self.store.get(kind, namespace, name)
        assert live is not None
        meta = live["metadata"]
        annotations = {**meta.get("annotations", {}), **patch["metadata"].get("annotations", {})}
        return self.put(
            {**live, "metadata": {**meta, "annotations": annotations}, "spec": {**live["spec"], **patch["spec"]}}
        )

    async def create(self, body: Manifest) -> Manifest:
        """Accepts Events."""
        return body


class Topics(DelayedTopics):
    """DelayedTopics whose Kafka is simulated."""

    simulation: Simulation

    async def _kafka(self, *_: Any, **__: Any) -> tuple[Any, KafkaView | None, KafkaLink | None]:
        simulation = self.simulation

        async def registry() -> RegistryState:
            return simulation.kafka.registry

        async def write(records: list[RegistryRecord]) -> None:
            for record in records:
                simulation.kafka.write(record.key, encode(record))

        link = SimpleNamespace(registry=registry, write=write)
        return simulation.connection, simulation.observe().kafka, cast(KafkaLink, link)


class Workers:
    """One set of workers."""

    replicas = 1
    password = "first"
    node_selector: Mapping[str, str] = MappingProxyType({})

    def __init__(self, number: int, *, name: str) -> None:
        self.number = number
        self.name = name

    async def reconcile(self, given: ControllerContext) -> str:
        """Makes a pass and returns the message about the workers."""
        raise NotImplementedError

    @property
    def template(self) -> Manifest:
        return {"nodeSelector": dict(self.node_selector)}

    @property
    def files(self) -> dict[str, str]:
        return {"bootstrap-servers": "k:9092", "sasl.password": self.password}


class OwnWorkers(Workers):
    """Those of one DelayedTopic."""

    def __init__(self, number: int) -> None:
        self._simulation = Simulation(resource(f"t{number}"))
        self._simulation.serve()
        super().__init__(number, name=self._simulation.name)

    async def reconcile(self, given: ControllerContext) -> str:
        self._simulation.connection = replace(usable(), files=self.files)
        self._simulation.raw["spec"]["workers"] = {"replicas": self.replicas, "template": self.template}
        raw = self._simulation.raw
        edited = {**raw["metadata"], "resourceVersion": cast(Cluster, given.kube).next_version()}
        given.store.put({**raw, "metadata": edited, "status": self._status(given)})
        connections = SimpleNamespace(hold=_nothing, leaving=lambda _: False, doubt=lambda *_: None)
        usage = Usage(given, changed=lambda _: None)
        topics = Topics(given, connections=cast(Connections, connections), usage=usage)
        topics.simulation = self._simulation
        await topics.reconcile(Key("DelayedTopic", "shop", f"t{self.number}"))
        conditions = self._status(given).get("conditions", ())
        return next((c["message"] for c in conditions if c["type"] == "WorkersReady"), "")

    def _status(self, given: ControllerContext) -> Manifest:
        found = given.store.get("DelayedTopic", "shop", f"t{self.number}")
        return dict((found or {}).get("status") or {})


class ConnectionsWorkers(Workers):
    """Those that the DelayedTopics of one connection share."""

    def __init__(self, number: int) -> None:
        self._key = Key("ClusterKafkaConnection", "", f"c{number}")
        super().__init__(number, name=shared_name(self._key))

    async def reconcile(self, given: ControllerContext) -> str:
        async def registry() -> RegistryState:
            return RegistryState()

        connection = SimpleNamespace(to_files=lambda: self.files)
        link = SimpleNamespace(connection=cast(Connection, connection), registry=registry, registry_id="here")
        raw = {"metadata": {"uid": f"u{self.number}"}, "status": {}}
        asked = SharedWorkers.model_validate({"replicas": self.replicas, "template": self.template})
        shared = await SharedWorkersOf(given).reconcile(self._key, raw, asked, cast(KafkaLink, link), before=None)
        return shared.said.message if shared is not None else ""


class Fleet:
    """`workers`: the sets by number. `said`: the last message about each."""

    def __init__(self, kind: type[OwnWorkers | ConnectionsWorkers], *, sets: int, at_once: int = 5) -> None:
        self.cluster = Cluster()
        self.workers = [kind(number) for number in range(sets)]
        self.said: dict[int, str] = {}
        self.lowest: dict[int, int] = {}
        self.now = 0.0
        self._at_once = at_once
        self._settings: dict[str, Any] = {"worker_image": "worker:1"}
        self.upgrade()

    def upgrade(self, **settings: Any) -> None:
        """Changes chart values, which starts another operator. Without any, the operator only restarts."""
        self._settings.update(settings)
        given = context(
            self.cluster,
            self.cluster.store,
            namespace=OPERATOR_NAMESPACE,
            rolling_at_once=self._at_once,
            **self._settings,
        )
        executor = Executor(
            given.kube, given.store, given.recorder, rolling_at_once=self._at_once, clock=lambda: self.now
        )
        self._context = replace(given, executor=executor)

    def go_on(self, seconds: float = STEP_SECONDS) -> None:
        async def passes() -> None:
            for workers in self.workers:
                with contextlib.suppress(NotYet):
                    self.said[workers.number] = await workers.reconcile(self._context)

        self.lowest = {}
        for _ in range(round(seconds / STEP_SECONDS)):
            asyncio.run(passes())
            self.cluster.go_on()
            self.now += STEP_SECONDS
            for workers in self.workers:
                now = self.cluster.ready(workers.name)
                self.lowest[workers.number] = min(now, self.lowest.get(workers.number, now))

    def down(self) -> set[int]:
        """Returns the numbers of the sets that have fewer ready workers than declared."""
        return {w.number for w in self.workers if self.cluster.ready(w.name) < w.replicas}

    def images(self) -> list[str]:
        """Returns the image that the next pods of each set will have."""
        return [
            str(self.cluster.stateful_set(w.name)["spec"]["template"]["spec"]["containers"][0]["image"])
            for w in self.workers
        ]


async def _nothing(*_: object) -> None: ...
