"""A DelayedTopic is applied: what is made, in which order, and whatever happens in between."""

from collections.abc import Iterator

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, LayoutRecord, TopicsRecord
from delayed_topics_crds import Grant
from delayed_topics_operator.explain import in_words
from delayed_topics_operator.plan import (
    AddFinalizer,
    ApplyChild,
    CommitOffsets,
    CreateTopics,
    GrowTopic,
    Notice,
    WriteRegistry,
)
from delayed_topics_operator.reconcile import reconcile
from delayed_topics_operator.translate import PLAN_ONLY
from delayed_topics_operator_testing.world import Kafka, Stopped, World, member, resource, usable


def served(world: World) -> None:
    world.settle()
    world.workers_come_up()
    world.settle()


def test_six_lines_become_four_topics_a_served_layout_and_a_worker() -> None:
    world = World(resource(partitions=5))
    served(world)
    assert {name: topic.partitions for name, topic in world.kafka.topics.items()} == {
        "orders": 3,
        "orders.ready": 3,
        "orders.delays": 5,
        "orders.dead": 3,
    }
    record = world.kafka.registry.layouts["orders"]
    assert record.state == "serving"
    assert record.layout.ranges() == [(0, "main", "0-2"), (10, "delay", "3"), (60, "delay", "4")]
    assert {kind for kind, _ in world.children} == {
        "ConfigMap",
        "Secret",
        "Service",
        "PodDisruptionBudget",
        "StatefulSet",
    }
    ready = world.condition(Condition.READY)
    assert (ready.status, ready.reason, ready.observed_generation) == ("True", Reason.AS_DECLARED, 1)


def test_the_claim_comes_before_any_topic_and_the_offsets_before_the_first_worker() -> None:
    world = World(resource())
    world.settle()
    kinds = [
        (type(a), type(a.record))
        if isinstance(a, WriteRegistry)
        else (a.kind if isinstance(a, ApplyChild) else type(a))
        for a in world.done
    ]
    order = [
        AddFinalizer,
        (WriteRegistry, Claim),
        (WriteRegistry, LayoutRecord),
        CreateTopics,
        (WriteRegistry, TopicsRecord),
        (WriteRegistry, TopicsRecord),
        CommitOffsets,
        (WriteRegistry, LayoutRecord),
        "StatefulSet",
    ]
    remaining: Iterator[object] = iter(kinds)
    assert all(step in remaining for step in order), kinds


def test_every_partition_that_workers_read_has_a_committed_offset_and_is_noted_as_begun() -> None:
    world = World(resource(partitions=4))
    world.settle()
    record = world.kafka.registry.topics["orders"]
    assert record.ids == {name: topic.id for name, topic in world.kafka.topics.items()}
    assert record.begun == {"orders": 2, "orders.delays": 4}
    assert set(world.kafka.committed["delayedtopics.orders"]) == {
        *(("orders", p) for p in range(2)),
        *(("orders.delays", p) for p in range(4)),
    }


def actions_of_a_whole_creation() -> int:
    world = World(resource())
    world.settle()
    return len(world.done)


@pytest.mark.parametrize("boundary", range(actions_of_a_whole_creation()))
def test_an_operator_killed_between_any_two_steps_ends_where_an_undisturbed_one_does(boundary: int) -> None:
    undisturbed = World(resource())
    served(undisturbed)
    world = World(resource())
    with pytest.raises(Stopped):
        world.settle(actions=boundary)
    served(world)
    assert world.kafka.registry.layouts == undisturbed.kafka.registry.layouts
    assert world.kafka.registry.topics == undisturbed.kafka.registry.topics
    assert world.kafka.topics == undisturbed.kafka.topics
    assert world.kafka.committed == undisturbed.kafka.committed
    assert world.children == undisturbed.children
    assert world.raw["status"] == undisturbed.raw["status"]


@pytest.mark.parametrize("boundary", [2, 3])
def test_a_front_topic_that_an_early_producer_had_made_after_the_claim_is_foreign_until_it_is_gone(
    boundary: int,
) -> None:
    world = World(resource(partitions=5))
    with pytest.raises(Stopped):
        world.settle(actions=boundary)
    config = {"message.timestamp.type": "CreateTime"}
    world.kafka.create("orders", 1, config=config)  # as brokers do by themselves
    world.settle()
    assert world.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN
    assert (set(world.kafka.topics), world.kafka.topics["orders"].config) == ({"orders"}, config)
    world.kafka.delete("orders")
    world.settle()
    assert world.kafka.topics["orders"].partitions == 3
    assert world.condition(Condition.TOPICS_READY).status == "True"


def test_a_front_topic_adopted_with_more_partitions_than_asked_for_makes_the_ready_topic_as_large() -> None:
    grant = Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""], "adopt": True})
    world = World(resource(partitions=5), connection=usable(grant))
    world.kafka.create("orders", 50)
    world.settle()
    assert world.kafka.topics["orders.ready"].partitions == 50
    assert world.kafka.registry.layouts["orders"].front_partitions == 50


def test_workers_that_were_faster_commit_themselves_and_are_noted_when_they_have() -> None:
    world = World(resource())
    with pytest.raises(Stopped):
        world.settle(actions=5)
    group = "delayedtopics.orders"
    world.kafka.members[group] = (member("orders-0", ("orders", 0)),)
    plan = world.settle()
    assert not any(isinstance(action, CommitOffsets) for action in world.done)
    assert plan.wake_seconds is not None
    world.kafka.committed[group] = {("orders", 0): 7, **{("orders.delays", p): 0 for p in range(3)}}
    world.settle()
    assert world.kafka.registry.topics["orders"].begun == {"orders": 1, "orders.delays": 3}
    assert world.kafka.committed[group]["orders", 0] == 7


def test_no_worker_starts_before_the_layout_is_served() -> None:
    world = World(resource())
    with pytest.raises(Stopped):
        world.settle(actions=4)
    plan = reconcile(world.observe())
    assert not any(isinstance(action, ApplyChild) for action in plan.actions)


def test_a_plan_only_resource_says_what_would_be_done_and_does_nothing() -> None:
    raw = resource()
    raw["metadata"]["annotations"][PLAN_ONLY] = "true"
    world = World(raw)
    world.settle()
    assert world.done == []
    assert world.kafka.topics == {}
    planned = world.condition(Condition.PLANNED)
    assert planned.status == "True"
    assert "claim orders, orders.delays, orders.ready, orders.dead" in planned.message
    del raw["metadata"]["annotations"][PLAN_ONLY]
    world.settle()
    assert Condition.PLANNED not in {c["type"] for c in raw["status"]["conditions"]}


def test_one_broker_means_one_replica_and_a_condition_says_so() -> None:
    world = World(resource(), connection=usable(brokers=1), kafka=Kafka(brokers=1))
    world.settle()
    assert world.kafka.topics["orders"].replication_factor == 1
    assert world.condition(Condition.DURABILITY_REDUCED).status == "True"
    assert world.kafka.topics["orders"].config["min.insync.replicas"] == "1"


def test_two_replicas_mean_that_one_broker_has_a_record_that_counts_and_a_condition_says_so() -> None:
    world = World(resource(replicationFactor=2))
    world.settle()
    said = world.condition(Condition.DURABILITY_REDUCED)
    assert (said.status, said.reason) == ("True", Reason.ONE_IN_SYNC_REPLICA)
    assert "orders, orders.dead, orders.delays, orders.ready" in said.message
    for topic in world.kafka.topics.values():
        topic.replication_factor = 3
    world.edit(replicationFactor=3)
    world.settle()
    world.settle()
    assert world.condition(Condition.DURABILITY_REDUCED).status == "False"


def test_a_setting_by_which_one_broker_is_enough_is_said_though_there_are_three_replicas() -> None:
    world = World(resource())
    world.settle()
    world.kafka.topics["orders.ready"].config["min.insync.replicas"] = "1"
    plan = reconcile(world.observe())
    assert plan.status is not None
    said = next(c for c in plan.status.conditions if c.type == Condition.DURABILITY_REDUCED)
    assert (said.status, "of orders.ready counts" in said.message) == ("True", True)


@pytest.mark.parametrize(("replicas", "reduced"), [(1, "True"), (2, "True"), (3, "False")])
def test_a_registry_of_which_one_broker_is_enough_reduces_every_topics_durability(replicas: int, reduced: str) -> None:
    world = World(resource(), connection=usable(registry_replicas=replicas))
    world.settle()
    said = world.condition(Condition.DURABILITY_REDUCED)
    assert (said.status, REGISTRY_TOPIC in said.message) == (reduced, reduced == "True")


def test_three_brokers_mean_three_replicas_of_which_two_have_to_have_a_record() -> None:
    world = World(resource())
    world.settle()
    assert world.kafka.topics["orders"].replication_factor == 3
    assert world.kafka.topics["orders"].config["min.insync.replicas"] == "2"
    assert world.condition(Condition.DURABILITY_REDUCED).status == "False"


def test_nothing_is_to_be_done_and_nothing_changes_once_it_is_as_declared() -> None:
    world = World(resource())
    served(world)
    status = dict(world.raw["status"])
    world.later(86_400)
    plan = reconcile(world.observe())
    assert plan.actions == ()
    assert plan.wake_seconds is None
    world.settle()
    assert world.raw["status"] == status


def test_every_action_can_be_told_in_words() -> None:
    world = World(resource())
    world.settle()
    words = [in_words(action) for action in world.done]
    assert all(words)
    assert any("create topics orders.dead (1 partitions, 3 replicas)" in text for text in words)


def test_a_topic_of_ready_or_dead_letters_that_was_deleted_is_made_again_and_said() -> None:
    world = World(resource())
    served(world)
    world.kafka.delete("orders.ready")
    notices = reconcile(world.observe()).notices
    assert [type(n) for n in notices] == [Notice]
    assert notices[0].type == "Warning"
    world.settle()
    assert world.kafka.registry.topics["orders"].made_again == ("orders.ready",)
    assert world.kafka.registry.topics["orders"].ids["orders.ready"] == world.kafka.topics["orders.ready"].id
    assert world.kafka.registry.layouts["orders"].state == "serving"
    assert not any(isinstance(action, GrowTopic) for action in world.done)
