"""DelayedTopics that share the workers of their connection."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_core.names import shared_group
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.amount import Amount
from delayed_topics_operator.controllers.shared_workers import SharedWorkersOf
from delayed_topics_operator.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator.execute import Executor
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.observation import Shared
from delayed_topics_operator.plan import ConditionState, DeleteGroup
from delayed_topics_operator.queue import Key
from delayed_topics_operator.reconcile import reconcile
from delayed_topics_operator.settings import Settings
from delayed_topics_operator.store import Store
from delayed_topics_operator_testing.shared import READY, SHARED, sharing
from delayed_topics_operator_testing.simulation import Simulation, member, resource


def layout(simulation: Simulation) -> LayoutRecord:
    return simulation.kafka.registry.layouts["orders"]


def served(**spec: Any) -> Simulation:
    """A resource without workers of its own, on a connection that has some."""
    simulation = Simulation(resource(**spec), connection=sharing())
    simulation.settle()
    return simulation


def gone(simulation: Simulation) -> bool:
    return simulation.gone


def assigned(simulation: Simulation) -> None:
    """The shared workers have its partitions, and others'."""
    group = layout(simulation).group
    simulation.kafka.members[group] = (
        member("default-cluster-shared-0", ("orders", 0), ("payments", 0)),
        member("default-cluster-shared-1", ("payments", 1)),
    )


def test_a_resource_without_workers_has_none_of_its_own_where_its_connection_has_some_to_share() -> None:
    simulation = served()
    assert {kind for kind, _ in simulation.children} == {"ConfigMap"}, "a copy of its layout"
    assert (layout(simulation).group, layout(simulation).state, layout(simulation).workers) == (
        SHARED.group,
        "serving",
        None,
    )
    assert simulation.raw["status"]["group"] == SHARED.group
    assert simulation.raw["status"]["workers"] == {"replicas": 2, "readyReplicas": 2, "selector": "a=b", "shared": True}
    assert simulation.condition(Condition.WORKERS_READY).message == READY.message
    assert simulation.condition(Condition.READY).status == "True"
    assert reconcile(simulation.observe()).takes == Amount(delayed_topics=1, partitions=6)


@pytest.mark.parametrize("spec", [{"workers": {"replicas": 1}}, {"workers": {}}, {"guarantee": "ExactlyOnce"}])
def test_one_that_asks_for_workers_or_for_what_only_own_ones_can_do_has_its_own(spec: Any) -> None:
    simulation = served(**spec)
    assert ("StatefulSet", simulation.name) in simulation.children
    assert layout(simulation).group == "delayedtopics.orders"
    assert not simulation.raw["status"]["workers"]["shared"]


def test_what_shared_workers_lack_is_said_of_all_who_share_them() -> None:
    failing = ConditionState(status="False", reason=Reason.WORKERS_FAILING, message="1 of 2 workers are ready")
    simulation = served()
    simulation.connection = sharing(said=failing, ready_replicas=1)
    simulation.settle()
    assert (simulation.condition(Condition.READY).reason, simulation.raw["status"]["workers"]["readyReplicas"]) == (
        Reason.WORKERS_FAILING,
        1,
    )


def test_alarms_of_the_shared_workers_are_those_of_this_topic_and_so_are_partitions() -> None:
    simulation = served()
    assigned(simulation)
    raised = {
        name: RaisedAlarm(member=name, reason="NotReleasing", message="nothing comes")
        for name in ("default-cluster-shared-1", "default-cluster-shared-2")
    }
    simulation.news = WorkerNews(alarms=tuple(raised.values()))
    simulation.settle()
    assert simulation.condition(Condition.ALARM).message == "default-cluster-shared-1: nothing comes"
    assert simulation.raw["status"]["rebalance"]["members"] == [
        {"name": "default-cluster-shared-0", "partitions": "orders:0"}
    ]


def test_workers_that_were_turned_off_serve_until_the_topics_own_are_ready_and_alarms_of_both_are_shown() -> None:
    simulation = served()
    simulation.connection = sharing(leaving=True)
    pods = ("default-cluster-shared-1", f"{simulation.name}-0")
    alarms = (RaisedAlarm(member=pod, reason="NotReleasing", message="nothing comes") for pod in pods)
    simulation.news = WorkerNews(alarms=tuple(alarms))
    simulation.settle()
    assert (layout(simulation).state, layout(simulation).group) == ("serving", SHARED.group)
    assert simulation.raw["status"]["workers"]["shared"]
    said = simulation.condition(Condition.ALARM).message
    assert said == ". ".join(f"{pod}: nothing comes" for pod in pods)


def test_a_resource_is_deleted_when_the_shared_workers_have_given_its_partitions_up() -> None:
    simulation = served(deletionPolicy="Delete")
    assigned(simulation)
    simulation.delete()
    plan = simulation.settle()
    assert not gone(simulation)
    assert layout(simulation).state == "retired"
    assert plan.status is not None
    assert "the shared workers give up its partitions" in str(plan.status.conditions)

    simulation.kafka.members[SHARED.group] = (member("default-cluster-shared-1", ("payments", 1)),)
    simulation.settle()
    assert gone(simulation)
    assert (simulation.kafka.topics, simulation.kafka.registry.layouts, simulation.kafka.registry.claims) == (
        {},
        {},
        {},
    )
    assert not [action for action in simulation.done if isinstance(action, DeleteGroup)]


def test_one_whose_topics_are_retained_is_not_served_until_it_is_made_again() -> None:
    simulation = served()
    assigned(simulation)
    simulation.delete()
    simulation.settle()
    assert not gone(simulation)
    simulation.kafka.members = {}
    simulation.settle()
    assert gone(simulation)
    assert layout(simulation).state == "retired"

    again = Simulation(resource(), kafka=simulation.kafka, connection=sharing())
    again.settle()
    assert (layout(again).state, layout(again).group) == ("serving", SHARED.group)


MAIN = Key("ClusterKafkaConnection", "", "main")
NAME = "main-cluster-shared"


class Kubernetes:
    """Takes any object."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.kube = cast(Kube, self)
        self._version = 0

    async def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.store.get(kind, namespace, name)

    async def list_all(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._version += 1
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": str(self._version)}}

    def stateful_set(self) -> dict[str, Any]:
        found = self.store.get("StatefulSet", "system", NAME)
        assert found is not None
        return found


def looked_after(kubernetes: Kubernetes, asked: SharedWorkers | None, *, bootstrap: str = "k:9092") -> Shared:
    """A topic is served by them."""
    settings = Settings(namespace="system", audit_namespace="audits", worker_image="w", audit_image="a")
    group = shared_group("c", "system", *MAIN)
    layouts = {"orders": SimpleNamespace(topic="orders", group=group, state="serving")}

    async def registry() -> SimpleNamespace:
        return SimpleNamespace(layouts=layouts)

    link = SimpleNamespace(connection=Connection(bootstrap_servers=bootstrap), registry=registry)
    kube, store = kubernetes.kube, kubernetes.store
    executor = Executor(kube, store, cast(Recorder, None), rolling_at_once=5)
    workers = SharedWorkersOf(settings=settings, kube=kube, store=store, executor=executor, cluster="c")
    raw = {"metadata": {"uid": "main"}, "status": {}}
    shared = asyncio.run(workers.reconcile(MAIN, raw, asked, cast(KafkaLink, link), before=None))
    assert shared is not None
    return shared


def test_workers_that_are_asked_for_no_more_are_as_many_and_as_they_were_with_the_connection_as_it_is_now() -> None:
    kubernetes = Kubernetes(Store())
    template = {
        "resources": {"limits": {"memory": "1Gi"}},
        "labels": {"team": "orders"},
        "nodeSelector": {"disk": "ssd"},
    }
    asked = SharedWorkers.model_validate({"replicas": 3, "template": template})
    assert not looked_after(kubernetes, asked).leaving
    declared = kubernetes.stateful_set()
    assert (declared["spec"]["replicas"], declared["spec"]["template"]["spec"]["nodeSelector"]) == (3, {"disk": "ssd"})

    kept = looked_after(kubernetes, None)
    assert (kept.leaving, kept.replicas) == (True, 3)
    assert kubernetes.stateful_set() is declared, "there is nothing to be changed"

    by_hand = {**declared, "spec": {**declared["spec"], "replicas": 2_000}}
    kubernetes.store.put(by_hand)
    assert looked_after(kubernetes, None, bootstrap="other:9092").replicas == 2_000
    now = kubernetes.stateful_set()
    assert now is not by_hand, "it has the hash of the connection"
    assert now["spec"]["replicas"] == 2_000
    for field in ("nodeSelector", "containers"):
        assert now["spec"]["template"]["spec"][field] == declared["spec"]["template"]["spec"][field]
    assert now["spec"]["template"]["metadata"]["labels"] == declared["spec"]["template"]["metadata"]["labels"]


def test_workers_of_which_no_one_knows_how_many_there_were_are_as_many_as_by_default() -> None:
    kubernetes = Kubernetes(Store())
    looked_after(kubernetes, SharedWorkers(replicas=3))
    kubernetes.store.absent("StatefulSet", "system", NAME)
    kept = looked_after(kubernetes, None)
    assert (kept.leaving, kept.replicas) == (True, SharedWorkers().replicas)
    assert kubernetes.stateful_set()["spec"]["replicas"] == SharedWorkers().replicas
