"""DelayedTopics that share the workers of their connection."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_operator.amount import Amount
from delayed_topics_operator.eventlog import RaisedAlarm, WorkerNews
from delayed_topics_operator.plan import ConditionState, DeleteGroup
from delayed_topics_operator.reconcile import reconcile
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
