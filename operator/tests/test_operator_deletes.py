"""A DelayedTopic is deleted: what goes, in which order, and what stays."""

from datetime import timedelta
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_kafka.errors import KafkaRefused
from delayed_topics_operator.observation import Unusable
from delayed_topics_operator.plan import (
    DeleteChild,
    DeleteGroup,
    DeleteTopics,
    RemoveFinalizer,
    RemoveFromRegistry,
)
from delayed_topics_operator.reconcile import reconcile
from delayed_topics_operator.reconcile.failures import with_failure
from delayed_topics_operator.reconcile.transitions import notices
from delayed_topics_operator.translate import PLAN_ONLY
from delayed_topics_operator_testing.world import Stopped, World, member, resource


def made(**spec: Any) -> World:
    world = World(resource(**spec))
    world.settle()
    world.workers_come_up()
    world.settle()
    world.done.clear()
    return world


def test_delete_removes_workers_then_group_then_topics_then_claim() -> None:
    world = made(deletionPolicy="Delete")
    world.delete()
    world.settle()
    assert [type(action) for action in world.done] == [
        *[DeleteChild] * 6,
        DeleteGroup,
        DeleteTopics,
        RemoveFromRegistry,
        RemoveFromRegistry,
        RemoveFinalizer,
    ]
    assert isinstance(world.done[0], DeleteChild)
    assert world.done[0].kind == "StatefulSet"
    assert world.gone
    assert (world.kafka.topics, world.kafka.committed, world.children) == ({}, {}, {})
    assert (world.kafka.registry.claims, world.kafka.registry.layouts, world.kafka.registry.topics) == ({}, {}, {})


@pytest.mark.parametrize("boundary", range(11))
def test_an_operator_killed_while_deleting_goes_on_where_it_was(boundary: int) -> None:
    world = made(deletionPolicy="Delete")
    world.delete()
    with pytest.raises(Stopped):
        world.settle(actions=boundary)
    world.settle()
    assert world.gone
    assert (world.kafka.topics, world.kafka.committed, world.kafka.registry.claims) == ({}, {}, {})


def test_retain_keeps_topics_offsets_and_claim_so_that_the_same_resource_goes_on() -> None:
    world = made()
    world.delete()
    plan = reconcile(world.observe())
    world.settle()
    assert world.gone
    assert len(world.kafka.topics) == 4
    assert not plan.notices
    again = World(resource(uid="another"), kafka=world.kafka)
    again.kafka.committed["delayedtopics.orders"]["orders", 0] = 99
    again.settle()
    assert again.kafka.committed["delayedtopics.orders"]["orders", 0] == 99
    assert again.condition(Condition.CLAIMED).status == "True"
    assert again.condition(Condition.TOPICS_READY).status == "True"


def test_what_was_retained_is_not_for_another_name() -> None:
    world = made()
    world.delete()
    world.settle()
    other = World(resource(namespace="other"), kafka=world.kafka)
    other.settle()
    assert other.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER


def test_topics_stay_as_long_as_the_group_has_members() -> None:
    world = made(deletionPolicy="Delete")
    world.kafka.members["delayedtopics.orders"] = (member("orders-0"),)
    world.delete()
    plan = world.settle()
    assert plan.wake_seconds is not None
    assert len(world.kafka.topics) == 4
    assert "members" in world.condition(Condition.READY).message
    world.kafka.members.clear()
    world.settle()
    assert world.gone
    assert world.kafka.topics == {}


def test_a_topic_that_somebody_made_again_under_our_name_is_not_deleted() -> None:
    world = made(deletionPolicy="Delete")
    world.kafka.delete("orders")
    world.kafka.create("orders", 1)
    world.delete()
    world.settle()
    assert world.gone
    assert set(world.kafka.topics) == {"orders"}


def test_who_never_owned_the_topic_deletes_nothing() -> None:
    world = World(resource(deletionPolicy="Delete"))
    claim = Claim(topic="orders", owner=Owner("0000-cluster", "billing", "theirs"))
    world.kafka.write(claim.key, encode(claim))
    world.kafka.create("orders", 3)
    world.raw["metadata"]["finalizers"] = ["delayedtopics.io/finalizer"]
    world.delete()
    world.settle()
    assert world.gone
    assert set(world.kafka.topics) == {"orders"}
    assert list(world.kafka.registry.claims) == [claim.key]


def gone(world: World) -> None:
    world.connection = Unusable(reason=Reason.KAFKA_UNREACHABLE, message="Kafka does not answer", since=world.now)


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_with_kafka_away_a_deletion_waits_five_minutes_and_then_leaves_everything_with_a_warning(policy: str) -> None:
    world = made(deletionPolicy=policy)
    gone(world)
    world.delete()
    world.settle()
    assert world.children == {}
    world.later(299)
    assert not any(isinstance(a, RemoveFinalizer) for a in reconcile(world.observe()).actions)
    world.later(2)
    plan = reconcile(world.observe())
    assert [notice.type for notice in plan.notices] == ["Warning"]
    assert "orders.delays" in plan.notices[0].message
    world.settle()
    assert world.gone
    assert len(world.kafka.topics) == 4


def test_kafka_that_comes_back_in_time_is_cleaned_up() -> None:
    world = made(deletionPolicy="Delete")
    usable = world.connection
    gone(world)
    world.delete()
    world.settle()
    world.now += timedelta(seconds=200)
    world.connection = usable
    world.settle()
    assert world.kafka.topics == {}


def test_a_terminating_namespace_whose_credentials_went_first_is_not_held_up() -> None:
    world = made(deletionPolicy="Delete")
    world.terminating = True
    gone(world)
    world.delete()
    world.settle()
    assert world.gone


def test_a_terminating_namespace_whose_kafka_answers_is_cleaned_up_as_the_policy_says() -> None:
    world = made(deletionPolicy="Delete")
    world.terminating = True
    world.delete()
    world.settle()
    assert world.gone
    assert world.kafka.topics == {}


def test_a_deletion_that_kafka_refuses_is_said_and_how_to_let_go() -> None:
    world = made(deletionPolicy="Delete")
    world.delete()
    world.children.clear()
    plan = reconcile(world.observe())
    action = next(a for a in plan.actions if isinstance(a, DeleteTopics))
    assert plan.status is not None
    error = KafkaRefused("deleting topic orders, Kafka at k:9092 refused", code="TOPIC_DELETION_DISABLED")
    after = with_failure(plan.status, action, error, world.now)
    ready = next(c for c in after.conditions if c.type == Condition.READY)
    assert ready.reason == Reason.KAFKA_REFUSED
    assert "could not delete topics orders" in ready.message
    assert "set spec.deletionPolicy to Retain" in ready.message
    assert [(n.type, n.reason) for n in notices(plan.status, after)] == [("Warning", Reason.KAFKA_REFUSED)]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_plan_only_that_never_did_anything_is_gone_at_once_and_deletes_nothing(policy: str) -> None:
    world = World(resource(deletionPolicy=policy))
    world.raw["metadata"]["annotations"][PLAN_ONLY] = "true"
    world.kafka.create("orders", 3)
    world.settle()
    world.delete()
    plan = reconcile(world.observe())
    assert plan.actions == ()
    assert "orders" in world.kafka.topics


def test_plan_only_does_not_hold_up_the_deletion_of_what_was_live_before() -> None:
    world = made(deletionPolicy="Delete")
    world.raw["metadata"]["annotations"][PLAN_ONLY] = "true"  # it plans what a spec makes; a deletion is no spec
    world.delete()
    world.settle()
    assert world.gone
    assert world.kafka.topics == {}
