"""DelayedTopics that share the workers of their connection."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_core.names import shared_group
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import QuotaUsed
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.connection.reconcile.usable import Shared, Unusable
from delayed_topics_operator.connection.shared_workers import SharedWorkersOf
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.values.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.plan import ConditionState, DeleteGroup
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.shared import READY, SHARED, sharing
from delayed_topics_operator_testing.simulation import CLUSTER, Simulation, member, resource
from delayed_topics_operator_testing.simulation import Kafka as Registry


def layout(simulation: Simulation) -> LayoutRecord:
    return simulation.kafka.registry.layouts["orders"]


def served(**spec: Any) -> Simulation:
    """Returns a resource without workers of its own, on a connection that has shared workers."""
    simulation = Simulation(resource(**spec), connection=sharing())
    simulation.settle()
    return simulation


def gone(simulation: Simulation) -> bool:
    return simulation.gone


def assigned(simulation: Simulation) -> None:
    """Assigns the partitions of the resource, and those of others, to the shared workers."""
    group = layout(simulation).group
    simulation.kafka.members[group] = (
        member("default-cluster-shared-0", ("orders", 0), ("payments", 0)),
        member("default-cluster-shared-1", ("payments", 1)),
    )


def test_a_resource_without_workers_has_none_of_its_own_where_its_connection_has_some_to_share() -> None:
    simulation = served()
    assert {kind for kind, _ in simulation.children} == {"ConfigMap"}, "the ConfigMap is a copy of the layout"
    assert (layout(simulation).group, layout(simulation).state, layout(simulation).workers) == (
        SHARED.group,
        "serving",
        None,
    )
    assert simulation.raw["status"]["group"] == SHARED.group
    assert simulation.raw["status"]["workers"] == {"replicas": 2, "readyReplicas": 2, "selector": "a=b", "shared": True}
    assert simulation.condition(Condition.WORKERS_READY).message == READY.message
    assert simulation.condition(Condition.READY).status == "True"
    assert reconcile(simulation.observe()).takes == QuotaUsed(delayed_topics=1, partitions=6)


@pytest.mark.parametrize("spec", [{"workers": {"replicas": 1}}, {"workers": {}}, {"guarantee": "ExactlyOnce"}])
def test_a_topic_that_asks_for_workers_or_for_what_only_own_ones_can_do_has_its_own(spec: Any) -> None:
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


def test_while_the_connection_can_not_be_used_the_group_and_the_workers_are_those_that_were_known_last() -> None:
    """In the past, the status then named the group of the topic's own workers, which did not exist."""
    simulation = served()
    before = dict(simulation.raw["status"])
    simulation.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="no answer", since=simulation.now)
    simulation.settle()
    assert simulation.condition(Condition.READY).reason == Reason.KAFKA_UNREACHABLE
    for field in ("group", "workers"):
        assert simulation.raw["status"][field] == before[field]


def test_while_the_connection_can_not_be_used_own_workers_are_shown_as_they_are() -> None:
    simulation = Simulation.serving(workers={"replicas": 2})
    simulation.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="no answer", since=simulation.now)
    simulation.children["StatefulSet", simulation.name]["status"]["readyReplicas"] = 1
    simulation.settle()
    workers = simulation.raw["status"]["workers"]
    assert (workers["replicas"], workers["readyReplicas"], simulation.raw["status"]["group"]) == (
        2,
        1,
        "delayedtopics.orders",
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
    message = simulation.condition(Condition.ALARM).message
    assert message == ". ".join(f"{pod}: nothing comes" for pod in pods)


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
    """Accepts any object. `uncached`: a DelayedTopic that the API server has and that no watch has reported yet."""

    def __init__(self, store: Store, *, uncached: dict[str, Any] | None = None) -> None:
        self.store = store
        self.kube = cast(Kube, self)
        self._version = 0
        self._uncached = uncached

    async def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.store.get(kind, namespace, name)

    async def list_all(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    async def list_one(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        found = self._uncached
        asked = found is not None and (found["kind"], found["metadata"]["namespace"], found["metadata"]["name"])
        return found if asked == (kind, namespace, name) else None

    async def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._version += 1
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": str(self._version)}}

    async def delete(self, kind: str, namespace: str, name: str, **_: Any) -> None:
        self.store.absent(kind, namespace, name)

    def stateful_set(self) -> dict[str, Any]:
        found = self.store.get("StatefulSet", "system", NAME)
        assert found is not None
        return found


GROUP = shared_group(CLUSTER, "system", *MAIN)


def registered(*, group: str = GROUP, cluster: str = CLUSTER) -> Registry:
    """Returns a Kafka in which `group` serves DelayedTopic `shop/orders`. By default, this is the group of the shared workers."""
    simulation = Simulation(resource(), connection=sharing(group=group), cluster=cluster)
    simulation.settle()
    return simulation.kafka


def reconcile_shared(
    kubernetes: Kubernetes,
    asked: SharedWorkers | None,
    *,
    bootstrap: str = "k:9092",
    kafka: Registry | None = None,
) -> Shared | None:
    """Makes one pass over the shared workers. They serve a topic, unless `kafka` says otherwise."""
    served_topics = kafka
    if served_topics is None:
        served_topics = registered()
        kubernetes.store.put(resource(connectionRef={"name": MAIN.name}))

    async def registry() -> RegistryState:
        return served_topics.registry.copy()

    async def write(records: list[LayoutRecord]) -> None:
        for record in records:
            served_topics.write(record.key, encode(record))

    connection = Connection(bootstrap_servers=bootstrap)
    link = SimpleNamespace(connection=connection, registry=registry, write=write, registry_id="here")
    workers = SharedWorkersOf(context(kubernetes.kube, kubernetes.store))
    raw = {"metadata": {"uid": "main"}, "status": {}}
    return asyncio.run(workers.reconcile(MAIN, raw, asked, cast(KafkaLink, link), before=None))


def existing_shared(kubernetes: Kubernetes, asked: SharedWorkers | None, **given: Any) -> Shared:
    shared = reconcile_shared(kubernetes, asked, **given)
    assert shared is not None
    return shared


def state_after(kafka: Registry, kubernetes: Kubernetes | None = None) -> str:
    """Returns the state of the layout of `orders` after a pass over the shared workers."""
    reconcile_shared(kubernetes or Kubernetes(Store()), SharedWorkers(), kafka=kafka)
    return kafka.registry.layouts["orders"].state


def test_a_topic_that_was_deleted_while_kafka_was_away_is_served_no_more_and_its_workers_can_be_turned_off() -> None:
    simulation = Simulation(resource(), connection=sharing(group=GROUP))
    simulation.settle()
    simulation.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="no answer", since=simulation.now)
    simulation.terminating = True
    simulation.delete()
    simulation.settle()
    assert gone(simulation)
    assert layout(simulation).state == "serving"

    kubernetes = Kubernetes(Store())
    shared = reconcile_shared(kubernetes, SharedWorkers(), kafka=simulation.kafka)
    assert shared is not None
    assert not shared.leaving
    assert layout(simulation).state == "retired"
    assert reconcile_shared(kubernetes, None, kafka=simulation.kafka) is None


def test_a_topic_whose_name_another_resource_has_no_more_is_served_no_more() -> None:
    """In the registry, resources of the same name are the same owner."""
    store = Store()
    store.put(resource(topic="payments", connectionRef={"name": MAIN.name}))
    assert state_after(registered(), Kubernetes(store)) == "retired"


@pytest.mark.parametrize(("registry_id", "state"), [("elsewhere", "retired"), ("here", "serving"), (None, "serving")])
def test_a_resource_that_was_made_again_by_another_connection_may_go_on_here_only_if_that_leads_here(
    registry_id: str | None, state: str
) -> None:
    store = Store()
    store.put(resource(connectionRef={"name": "second"}))
    status = {"registryTopicId": registry_id} if registry_id else {}
    store.put({"kind": MAIN.kind, "metadata": {"name": "second", "resourceVersion": "1"}, "status": status})
    assert state_after(registered(), Kubernetes(store)) == state


def test_a_topic_is_served_on_though_no_watch_has_told_of_its_resource_yet() -> None:
    uncached = resource(connectionRef={"name": MAIN.name})
    assert state_after(registered(), Kubernetes(Store(), uncached=uncached)) == "serving"


def test_topics_of_other_installations_and_other_clusters_are_left_to_them() -> None:
    others = (shared_group(CLUSTER, "elsewhere", *MAIN), shared_group(CLUSTER, "system", *MAIN[:2], "second"))
    for group in (*others, shared_group("other", "system", *MAIN)):
        assert state_after(registered(group=group)) == "serving"
    assert state_after(registered(cluster="other")) == "serving", (
        "a topic that was taken over has these workers until it has its own"
    )


def test_workers_that_are_asked_for_no_more_are_as_many_and_as_they_were_with_the_connection_as_it_is_now() -> None:
    kubernetes = Kubernetes(Store())
    template = {
        "resources": {"limits": {"memory": "1Gi"}},
        "labels": {"team": "orders"},
        "nodeSelector": {"disk": "ssd"},
    }
    asked = SharedWorkers.model_validate({"replicas": 3, "template": template})
    assert not existing_shared(kubernetes, asked).leaving
    declared = kubernetes.stateful_set()
    assert (declared["spec"]["replicas"], declared["spec"]["template"]["spec"]["nodeSelector"]) == (3, {"disk": "ssd"})

    kept = existing_shared(kubernetes, None)
    assert (kept.leaving, kept.replicas) == (True, 3)
    assert kubernetes.stateful_set() is declared, "nothing has to be changed"

    by_hand = {**declared, "spec": {**declared["spec"], "replicas": 2_000}}
    kubernetes.store.put(by_hand)
    assert existing_shared(kubernetes, None, bootstrap="other:9092").replicas == 2_000
    now = kubernetes.stateful_set()
    assert now is not by_hand, "the StatefulSet has the hash of the new connection"
    assert now["spec"]["replicas"] == 2_000
    for field in ("nodeSelector", "containers"):
        assert now["spec"]["template"]["spec"][field] == declared["spec"]["template"]["spec"][field]
    assert now["spec"]["template"]["metadata"]["labels"] == declared["spec"]["template"]["metadata"]["labels"]


def test_workers_of_which_no_one_knows_how_many_there_were_are_as_many_as_by_default() -> None:
    kubernetes = Kubernetes(Store())
    existing_shared(kubernetes, SharedWorkers(replicas=3))
    kubernetes.store.absent("StatefulSet", "system", NAME)
    kept = existing_shared(kubernetes, None)
    assert (kept.leaving, kept.replicas) == (True, SharedWorkers().replicas)
    assert kubernetes.stateful_set()["spec"]["replicas"] == SharedWorkers().replicas
