"""Whose workers are replaced next, and when: few at a time, and none by workers that fail elsewhere."""

import asyncio
import itertools
from dataclasses import replace
from typing import Any, cast

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_operator.connection.reconcile.shared_workers import SharedObservation, plan
from delayed_topics_operator.engine.execute import Executor
from delayed_topics_operator.engine.rollouts import STUCK_SECONDS, Rollouts
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import NotYet
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ApplyChild, ScaleWorkers
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.values.stateful_sets import INSTALLATION, READY_BEFORE
from delayed_topics_operator.workers.reconcile.manifests import children
from delayed_topics_operator.workers.reconcile.worker_sets import PodSettings, shared_worker_set
from delayed_topics_operator_testing.simulation import BEGIN, Simulation


class Kubernetes:
    """Accepts whatever is applied. `store`: what the operator sees of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._versions = itertools.count(2)

    def put(self, live: Manifest) -> Manifest:
        made = {**live, "metadata": {**live["metadata"], "resourceVersion": str(next(self._versions))}}
        self._store.put(made)
        return made

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> Manifest:
        known = self._store.get(kind, namespace, name)
        assert known is not None
        annotations = {**known["metadata"]["annotations"], **patch["metadata"].get("annotations", {})}
        meta = {**known["metadata"], "annotations": annotations}
        return self.put({**known, "metadata": meta, "spec": {**known["spec"], **patch["spec"]}})

    async def apply(self, body: Manifest, **_: Any) -> Manifest:
        return self.put(body)


def replaced(name: str, *, replicas: int = 1, ready: int = 0, given: str = "new") -> dict[str, Any]:
    """Returns a StatefulSet whose pods have all been replaced, and of which `ready` are ready, as its controller reports it.
    `given`: the digest of the chart values."""
    counts = {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready}
    revisions = {"currentRevision": "b" if ready == replicas else "a", "updateRevision": "b"}
    annotations = {INSTALLATION: given, READY_BEFORE: str(replicas)}
    identity = {"namespace": "system", "name": name, "uid": name}
    meta = {**identity, "annotations": annotations, "generation": 2, "resourceVersion": "1"}
    spec = {"replicas": replicas, "template": {"metadata": {}, "spec": {}}}
    return {
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": spec,
        "status": {"observedGeneration": 2, **counts, **revisions},
    }


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_next_workers_are_replaced_when_the_last_replaced_ones_are_ready_and_not_when_they_exist(
    replicas: int,
) -> None:
    store, now = Store(), 0.0
    rollouts = Rollouts(store, at_once=1, clock=lambda: now)
    store.put(replaced("a", replicas=replicas, ready=replicas - 1))
    assert not rollouts.look("new", "system", "c").may_begin
    now += STUCK_SECONDS
    assert rollouts.look("new", "system", "c").may_begin, "workers that never become ready hold up nobody permanently"
    store.put(replaced("b", replicas=replicas, ready=replicas))
    assert rollouts.look("new", "system", "c").may_begin, "workers that are ready hold up nobody"


def test_an_image_with_which_no_worker_becomes_ready_is_not_given_to_further_workers() -> None:
    """In the past, it took down the workers of five more topics every three minutes."""
    store, now = Store(), 0.0
    rollouts = Rollouts(store, at_once=2, clock=lambda: now)
    for name in ("a", "b"):
        store.put(replaced(name, given="new"))
    for name in ("c", "d"):
        store.put(replaced(name, ready=1, given="old"))
    assert rollouts.look("new", "system", "c") == Rollout(may_begin=False), "they may still become ready"
    now += STUCK_SECONDS
    assert rollouts.look("new", "system", "c") == Rollout(stuck=2), "other changes go on"
    assert rollouts.look("newer", "system", "c") == Rollout(), "another image may be better"
    assert rollouts.look("old", "system", "c") == Rollout(), "it keeps its image"
    store.put(replaced("a", ready=1, given="new"))
    assert rollouts.look("new", "system", "c") == Rollout(), "the image is not what keeps the others from running"


def test_workers_that_were_stuck_have_as_much_time_as_others_to_start_with_the_next_image() -> None:
    store, now = Store(), 0.0
    rollouts = Rollouts(store, at_once=1, clock=lambda: now)
    store.put(replaced("a", given="old"))
    store.put(replaced("c", ready=1, given="older"))
    rollouts.look("new", "system", "c")
    now += STUCK_SECONDS
    store.put(replaced("a", given="new"))
    assert rollouts.look("new", "system", "c") == Rollout(may_begin=False)
    now += STUCK_SECONDS
    assert rollouts.look("new", "system", "c") == Rollout(stuck=1)


def test_workers_that_get_no_image_which_fails_elsewhere_say_so_and_go_on() -> None:
    simulation = Simulation.serving(workers={"replicas": 3})
    simulation.edit(rebalance={"protocol": "Consumer"})
    simulation.stuck = 5
    settled = simulation.settle()
    ready, workers = simulation.condition(Condition.READY), simulation.condition(Condition.WORKERS_READY)
    assert (ready.status, ready.reason, workers.status) == ("False", Reason.ROLLOUT_WAITING, "True")
    for words in ("image worker:1 and", "is ready. 5 other resources", "images.worker", "3 of 3 workers are ready"):
        assert words in ready.message
    assert settled.wake_seconds is None, "it may take days until someone corrects this"


@pytest.mark.parametrize("stuck", [0, 5])
def test_shared_workers_whose_replacement_waits_say_so_and_go_on(stuck: int) -> None:
    pods = PodSettings(image="worker:2", image_pull_policy="Always", home="system", allowed=True)
    wanted = shared_worker_set(
        connection=Key("ClusterKafkaConnection", "", "kafka"),
        uid="u",
        group="g",
        asked=SharedWorkers(replicas=1),
        pods=pods,
        files={"bootstrap-servers": "k:9092"},
    )
    live = {
        (made["kind"], made["metadata"]["name"]): made
        for made in children(replace(wanted, pods=replace(pods, image="worker:1")), {})
    }
    live["StatefulSet", wanted.name]["status"] = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    o = SharedObservation(
        now=BEGIN,
        wanted=wanted,
        group="g",
        live=live,
        worker_pods=(),
        warnings=(),
        unready_since=None,
        rollout=Rollout(may_begin=stuck > 0, stuck=stuck),
    )
    actions, shared = plan(o)
    assert (actions, shared.said.status) == ((), "True")
    expected = "until a worker with the image worker:2 and" if stuck else "until fewer other resources"
    assert shared.said.message.startswith(
        f"1 of 1 shared workers are ready. The shared workers are not as declared yet. Their replacement waits {expected}"
    )
    assert plan(replace(o, rollout=Rollout()))[0] != ()


def test_workers_that_stop_for_another_assignor_have_their_turn_until_the_next_ones_are_ready() -> None:
    """In the past, all resources whose assignor changed were without workers at once."""
    store = Store()
    kube = Kubernetes(store)
    executor = Executor(cast(Kube, kube), store, None, rolling_at_once=1)  # type: ignore[arg-type]
    for name in ("a", "b"):
        kube.put(replaced(name, ready=1))

    def carry_out(action: Action) -> list[type[Exception]]:
        outcome = asyncio.run(executor.execute(Key("DelayedTopic", "shop", "orders"), (action,), None))
        return [type(failure.error) for failure in outcome.failures]

    assert carry_out(stop("a")) == []
    a = store.get("StatefulSet", "system", "a")
    assert a is not None
    kube.put({**a, "status": replaced("a", replicas=0)["status"]})
    assert not executor.rollouts.look("new", "system", "c").may_begin, "their sessions have not ended yet"
    assert carry_out(stop("b")) == [NotYet]
    another_operator = Rollouts(store, at_once=1)
    assert not another_operator.look("new", "system", "c").may_begin
    assert carry_out(ApplyChild(manifest=replaced("a"), change="changed")) == []
    assert not executor.rollouts.look("new", "system", "c").may_begin, "they are not ready yet"
    kube.put(replaced("a", ready=1))
    assert executor.rollouts.look("new", "system", "c").may_begin


def stop(name: str) -> ScaleWorkers:
    return ScaleWorkers(namespace="system", name=name, uid=name, present=1, replicas=0, rolls=True)
