"""A DelayedTopic is applied: what the operator creates, in which order, and what may happen in between."""

from collections.abc import Iterator

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, LayoutRecord, TopicsRecord
from delayed_topics_crds import Grant
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.values.annotations import PLAN_ONLY
from delayed_topics_operator.values.explain import in_words
from delayed_topics_operator.values.plan import (
    AddFinalizer,
    ApplyChild,
    CommitOffsets,
    CreateTopics,
    GrowTopic,
    Notice,
    WriteRegistry,
)
from delayed_topics_operator_testing.simulation import Kafka, Simulation, Stopped, member, resource, usable


def test_six_lines_become_four_topics_a_served_layout_and_a_worker() -> None:
    simulation = Simulation.serving(partitions=5)
    assert {name: topic.partitions for name, topic in simulation.kafka.topics.items()} == {
        "orders": 3,
        "orders.ready": 3,
        "orders.delays": 5,
        "orders.dead": 3,
    }
    record = simulation.kafka.registry.layouts["orders"]
    assert record.state == "serving"
    assert record.layout.ranges() == [(0, "main", "0"), (10, "delay", "1-2"), (60, "delay", "3-4")]
    assert {kind for kind, _ in simulation.children} == {
        "ConfigMap",
        "Secret",
        "Service",
        "PodDisruptionBudget",
        "StatefulSet",
    }
    ready = simulation.condition(Condition.READY)
    assert (ready.status, ready.reason, ready.observed_generation) == ("True", Reason.AS_DECLARED, 1)


def test_one_lane_for_each_delay_leaves_all_other_partitions_to_the_first_delay() -> None:
    simulation = Simulation.serving(partitions=5, lanesPerDelay=1)
    assert simulation.kafka.topics["orders"].partitions == 3
    layout = simulation.kafka.registry.layouts["orders"].layout
    assert layout.ranges() == [(0, "main", "0-2"), (10, "delay", "3"), (60, "delay", "4")]


def test_the_claim_comes_before_any_topic_and_the_offsets_before_the_first_worker() -> None:
    simulation = Simulation(resource())
    simulation.settle()
    kinds = [
        (type(a), type(a.record))
        if isinstance(a, WriteRegistry)
        else (a.kind if isinstance(a, ApplyChild) else type(a))
        for a in simulation.done
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
    simulation = Simulation(resource(partitions=4))
    simulation.settle()
    record = simulation.kafka.registry.topics["orders"]
    assert record.ids == {name: topic.id for name, topic in simulation.kafka.topics.items()}
    assert record.begun == {"orders": 2, "orders.delays": 4}
    assert set(simulation.kafka.committed["delayedtopics.orders"]) == {
        *(("orders", p) for p in range(2)),
        *(("orders.delays", p) for p in range(4)),
    }


def actions_of_a_whole_creation() -> int:
    simulation = Simulation(resource())
    simulation.settle()
    return len(simulation.done)


@pytest.mark.parametrize("boundary", range(actions_of_a_whole_creation()))
def test_an_operator_killed_between_any_two_steps_ends_where_an_undisturbed_one_does(boundary: int) -> None:
    undisturbed = Simulation.serving()
    simulation = Simulation(resource())
    with pytest.raises(Stopped):
        simulation.settle(actions=boundary)
    simulation.serve()
    assert simulation.kafka.registry.layouts == undisturbed.kafka.registry.layouts
    assert simulation.kafka.registry.topics == undisturbed.kafka.registry.topics
    assert simulation.kafka.topics == undisturbed.kafka.topics
    assert simulation.kafka.committed == undisturbed.kafka.committed
    assert simulation.children == undisturbed.children
    assert simulation.raw["status"] == undisturbed.raw["status"]


@pytest.mark.parametrize("boundary", [2, 3])
def test_a_front_topic_that_an_early_producer_had_made_after_the_claim_is_foreign_until_it_is_gone(
    boundary: int,
) -> None:
    simulation = Simulation(resource(partitions=5))
    with pytest.raises(Stopped):
        simulation.settle(actions=boundary)
    config = {"message.timestamp.type": "CreateTime"}
    simulation.kafka.create("orders", 1, config=config)  # as brokers do with auto.create.topics.enable
    simulation.settle()
    assert simulation.condition(Condition.TOPICS_READY).reason == Reason.TOPIC_FOREIGN
    assert (set(simulation.kafka.topics), simulation.kafka.topics["orders"].config) == ({"orders"}, config)
    simulation.kafka.delete("orders")
    simulation.settle()
    assert simulation.kafka.topics["orders"].partitions == 3
    assert simulation.condition(Condition.TOPICS_READY).status == "True"


def test_a_front_topic_adopted_with_more_partitions_than_asked_for_makes_the_ready_topic_as_large() -> None:
    grant = Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""], "adopt": True})
    simulation = Simulation(resource(partitions=5), connection=usable(grant))
    simulation.kafka.create("orders", 50)
    simulation.settle()
    assert simulation.kafka.topics["orders.ready"].partitions == 50
    assert simulation.kafka.registry.layouts["orders"].front_partitions == 50


def test_workers_that_were_faster_commit_themselves_and_are_noted_when_they_have() -> None:
    simulation = Simulation(resource())
    with pytest.raises(Stopped):
        simulation.settle(actions=5)
    group = "delayedtopics.orders"
    simulation.kafka.members[group] = (member("orders-0", ("orders", 0)),)
    plan = simulation.settle()
    assert not any(isinstance(action, CommitOffsets) for action in simulation.done)
    assert plan.wake_seconds is not None
    simulation.kafka.committed[group] = {("orders", 0): 7, **{("orders.delays", p): 0 for p in range(3)}}
    simulation.settle()
    assert simulation.kafka.registry.topics["orders"].begun == {"orders": 1, "orders.delays": 3}
    assert simulation.kafka.committed[group]["orders", 0] == 7


def test_no_worker_starts_before_the_layout_is_served() -> None:
    simulation = Simulation(resource())
    with pytest.raises(Stopped):
        simulation.settle(actions=4)
    plan = reconcile(simulation.observe())
    assert not any(isinstance(action, ApplyChild) for action in plan.actions)


def test_a_plan_only_resource_says_what_would_be_done_and_does_nothing() -> None:
    raw = resource()
    raw["metadata"]["annotations"][PLAN_ONLY] = "true"
    simulation = Simulation(raw)
    simulation.settle()
    assert simulation.done == []
    assert simulation.kafka.topics == {}
    planned = simulation.condition(Condition.PLANNED)
    assert planned.status == "True"
    assert "claim orders, orders.delays, orders.ready, orders.dead" in planned.message
    del raw["metadata"]["annotations"][PLAN_ONLY]
    simulation.settle()
    assert Condition.PLANNED not in {c["type"] for c in raw["status"]["conditions"]}


def test_one_broker_means_one_replica_and_a_condition_says_so() -> None:
    simulation = Simulation(resource(), connection=usable(brokers=1), kafka=Kafka(brokers=1))
    simulation.settle()
    assert simulation.kafka.topics["orders"].replication_factor == 1
    assert simulation.condition(Condition.DURABILITY_REDUCED).status == "True"
    assert simulation.kafka.topics["orders"].config["min.insync.replicas"] == "1"


def test_two_replicas_mean_that_one_broker_has_a_record_that_counts_and_a_condition_says_so() -> None:
    simulation = Simulation(resource(replicationFactor=2))
    simulation.settle()
    condition = simulation.condition(Condition.DURABILITY_REDUCED)
    assert (condition.status, condition.reason) == ("True", Reason.ONE_IN_SYNC_REPLICA)
    assert "orders, orders.dead, orders.delays, orders.ready" in condition.message
    for topic in simulation.kafka.topics.values():
        topic.replication_factor = 3
    simulation.edit(replicationFactor=3)
    simulation.settle()
    simulation.settle()
    assert simulation.condition(Condition.DURABILITY_REDUCED).status == "False"


def test_a_setting_by_which_one_broker_is_enough_is_said_though_there_are_three_replicas() -> None:
    simulation = Simulation(resource())
    simulation.settle()
    simulation.kafka.topics["orders.ready"].config["min.insync.replicas"] = "1"
    plan = reconcile(simulation.observe())
    assert plan.status is not None
    condition = next(c for c in plan.status.conditions if c.type == Condition.DURABILITY_REDUCED)
    assert (condition.status, "of orders.ready counts" in condition.message) == ("True", True)


@pytest.mark.parametrize(("replicas", "reduced"), [(1, "True"), (2, "True"), (3, "False")])
def test_a_registry_of_which_one_broker_is_enough_reduces_every_topics_durability(replicas: int, reduced: str) -> None:
    simulation = Simulation(resource(), connection=usable(registry_replicas=replicas))
    simulation.settle()
    condition = simulation.condition(Condition.DURABILITY_REDUCED)
    assert (condition.status, REGISTRY_TOPIC in condition.message) == (reduced, reduced == "True")


def test_three_brokers_mean_three_replicas_of_which_two_have_to_have_a_record() -> None:
    simulation = Simulation(resource())
    simulation.settle()
    assert simulation.kafka.topics["orders"].replication_factor == 3
    assert simulation.kafka.topics["orders"].config["min.insync.replicas"] == "2"
    assert simulation.condition(Condition.DURABILITY_REDUCED).status == "False"


def test_nothing_is_to_be_done_and_nothing_changes_once_it_is_as_declared() -> None:
    simulation = Simulation.serving()
    status = dict(simulation.raw["status"])
    simulation.later(86_400)
    plan = reconcile(simulation.observe())
    assert plan.actions == ()
    assert plan.wake_seconds is None
    simulation.settle()
    assert simulation.raw["status"] == status


def test_every_action_can_be_told_in_words() -> None:
    simulation = Simulation(resource())
    simulation.settle()
    words = [in_words(action) for action in simulation.done]
    assert all(words)
    assert any("create topics orders.dead (1 partition, 3 replicas)" in text for text in words)


def test_a_topic_of_ready_or_dead_letters_that_was_deleted_is_made_again_and_said() -> None:
    simulation = Simulation.serving()
    simulation.kafka.delete("orders.ready")
    notices = reconcile(simulation.observe()).notices
    assert [type(n) for n in notices] == [Notice]
    assert notices[0].type == "Warning"
    simulation.settle()
    assert simulation.kafka.registry.topics["orders"].made_again == ("orders.ready",)
    assert simulation.kafka.registry.topics["orders"].ids["orders.ready"] == simulation.kafka.topics["orders.ready"].id
    assert simulation.kafka.registry.layouts["orders"].state == "serving"
    assert not any(isinstance(action, GrowTopic) for action in simulation.done)
