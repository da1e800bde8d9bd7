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
from delayed_topics_operator_testing.world import World, member, resource


def layout(world: World) -> LayoutRecord:
    return world.kafka.registry.layouts["orders"]


def served(**spec: Any) -> World:
    """A resource without workers of its own, on a connection that has some."""
    world = World(resource(**spec), connection=sharing())
    world.settle()
    return world


def gone(world: World) -> bool:
    return world.gone


def assigned(world: World) -> None:
    """The shared workers have its partitions, and others'."""
    group = layout(world).group
    world.kafka.members[group] = (
        member("default-cluster-shared-0", ("orders", 0), ("payments", 0)),
        member("default-cluster-shared-1", ("payments", 1)),
    )


def test_a_resource_without_workers_has_none_of_its_own_where_its_connection_has_some_to_share() -> None:
    world = served()
    assert {kind for kind, _ in world.children} == {"ConfigMap"}, "a copy of its layout"
    assert (layout(world).group, layout(world).state, layout(world).workers) == (SHARED.group, "serving", None)
    assert world.raw["status"]["group"] == SHARED.group
    assert world.raw["status"]["workers"] == {"replicas": 2, "readyReplicas": 2, "selector": "a=b", "shared": True}
    assert world.condition(Condition.WORKERS_READY).message == READY.message
    assert world.condition(Condition.READY).status == "True"
    assert reconcile(world.observe()).takes == Amount(delayed_topics=1, partitions=6)


@pytest.mark.parametrize("spec", [{"workers": {"replicas": 1}}, {"workers": {}}, {"guarantee": "ExactlyOnce"}])
def test_one_that_asks_for_workers_or_for_what_only_own_ones_can_do_has_its_own(spec: Any) -> None:
    world = served(**spec)
    assert ("StatefulSet", world.name) in world.children
    assert layout(world).group == "delayedtopics.orders"
    assert not world.raw["status"]["workers"]["shared"]


def test_what_shared_workers_lack_is_said_of_all_who_share_them() -> None:
    failing = ConditionState(status="False", reason=Reason.WORKERS_FAILING, message="1 of 2 workers are ready")
    world = served()
    world.connection = sharing(said=failing, ready_replicas=1)
    world.settle()
    assert (world.condition(Condition.READY).reason, world.raw["status"]["workers"]["readyReplicas"]) == (
        Reason.WORKERS_FAILING,
        1,
    )


def test_alarms_of_the_shared_workers_are_those_of_this_topic_and_so_are_partitions() -> None:
    world = served()
    assigned(world)
    raised = {
        name: RaisedAlarm(member=name, reason="NotReleasing", message="nothing comes")
        for name in ("default-cluster-shared-1", "default-cluster-shared-2")
    }
    world.news = WorkerNews(alarms=tuple(raised.values()))
    world.settle()
    assert world.condition(Condition.ALARM).message == "default-cluster-shared-1: nothing comes"
    assert world.raw["status"]["rebalance"]["members"] == [
        {"name": "default-cluster-shared-0", "partitions": "orders:0"}
    ]


def test_a_resource_is_deleted_when_the_shared_workers_have_given_its_partitions_up() -> None:
    world = served(deletionPolicy="Delete")
    assigned(world)
    world.delete()
    plan = world.settle()
    assert not gone(world)
    assert layout(world).state == "retired"
    assert plan.status is not None
    assert "the shared workers give its partitions up" in str(plan.status.conditions)

    world.kafka.members[SHARED.group] = (member("default-cluster-shared-1", ("payments", 1)),)
    world.settle()
    assert gone(world)
    assert (world.kafka.topics, world.kafka.registry.layouts, world.kafka.registry.claims) == ({}, {}, {})
    assert not [action for action in world.done if isinstance(action, DeleteGroup)]


def test_one_whose_topics_are_retained_is_not_served_until_it_is_made_again() -> None:
    world = served()
    assigned(world)
    world.delete()
    world.settle()
    assert not gone(world)
    world.kafka.members = {}
    world.settle()
    assert gone(world)
    assert layout(world).state == "retired"

    again = World(resource(), kafka=world.kafka, connection=sharing())
    again.settle()
    assert (layout(again).state, layout(again).group) == ("serving", SHARED.group)
