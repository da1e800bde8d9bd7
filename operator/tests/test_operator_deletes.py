"""A DelayedTopic is deleted: what the operator removes, in which order, and what stays."""

from datetime import timedelta

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_kafka.errors import KafkaRefused
from delayed_topics_operator.connection.reconcile.usable import Unusable
from delayed_topics_operator.delayed_topic.reconcile import reconcile
from delayed_topics_operator.delayed_topic.reconcile.failures import with_failures
from delayed_topics_operator.values.annotations import PLAN_ONLY
from delayed_topics_operator.values.plan import (
    DeleteChild,
    DeleteGroup,
    DeleteTopics,
    RemoveFinalizer,
    RemoveFromRegistry,
)
from delayed_topics_operator.values.transitions import notices
from delayed_topics_operator_testing.simulation import (
    BEGIN,
    OPERATOR_NAMESPACE,
    Simulation,
    Stopped,
    member,
    resource,
)


def test_delete_removes_workers_then_group_then_topics_then_claim() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.delete()
    simulation.settle()
    assert [type(action) for action in simulation.done] == [
        *[DeleteChild] * 5,
        DeleteGroup,
        DeleteTopics,
        RemoveFromRegistry,
        RemoveFromRegistry,
        RemoveFinalizer,
    ]
    assert isinstance(simulation.done[0], DeleteChild)
    assert simulation.done[0].kind == "StatefulSet"
    assert simulation.gone
    assert (simulation.kafka.topics, simulation.kafka.committed, simulation.children) == ({}, {}, {})
    assert (simulation.kafka.registry.claims, simulation.kafka.registry.layouts, simulation.kafka.registry.topics) == (
        {},
        {},
        {},
    )


@pytest.mark.parametrize("boundary", range(10))
def test_an_operator_killed_while_deleting_goes_on_where_it_was(boundary: int) -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.delete()
    with pytest.raises(Stopped):
        simulation.settle(actions=boundary)
    simulation.settle()
    assert simulation.gone
    assert (simulation.kafka.topics, simulation.kafka.committed, simulation.kafka.registry.claims) == ({}, {}, {})


def test_retain_keeps_topics_offsets_and_claim_so_that_the_same_resource_goes_on() -> None:
    simulation = Simulation.serving()
    simulation.delete()
    plan = reconcile(simulation.observe())
    simulation.settle()
    assert simulation.gone
    assert len(simulation.kafka.topics) == 4
    assert not plan.notices
    again = Simulation(resource(uid="another"), kafka=simulation.kafka)
    again.kafka.committed["delayedtopics.orders"]["orders", 0] = 99
    again.settle()
    assert again.kafka.committed["delayedtopics.orders"]["orders", 0] == 99
    assert again.condition(Condition.CLAIMED).status == "True"
    assert again.condition(Condition.TOPICS_READY).status == "True"


def test_what_was_retained_is_not_for_another_name() -> None:
    simulation = Simulation.serving()
    simulation.delete()
    simulation.settle()
    other = Simulation(resource(namespace="other"), kafka=simulation.kafka)
    other.settle()
    assert other.condition(Condition.CLAIMED).reason == Reason.CLAIMED_BY_OTHER


def test_topics_stay_as_long_as_the_group_has_members() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.kafka.members["delayedtopics.orders"] = (member("orders-0"),)
    simulation.delete()
    plan = simulation.settle()
    assert plan.wake_seconds is not None
    assert len(simulation.kafka.topics) == 4
    assert "members" in simulation.condition(Condition.READY).message
    simulation.kafka.members.clear()
    simulation.settle()
    assert simulation.gone
    assert simulation.kafka.topics == {}


def test_a_topic_that_somebody_made_again_under_our_name_is_not_deleted() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.kafka.delete("orders")
    simulation.kafka.create("orders", 1)
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert set(simulation.kafka.topics) == {"orders"}


def test_who_never_owned_the_topic_deletes_nothing() -> None:
    simulation = Simulation(resource(deletionPolicy="Delete"))
    claim = Claim(topic="orders", owner=Owner("0000-cluster", "billing", "theirs"))
    simulation.kafka.write(claim.key, encode(claim))
    simulation.kafka.create("orders", 3)
    simulation.raw["metadata"]["finalizers"] = ["delayedtopics.io/finalizer"]
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert set(simulation.kafka.topics) == {"orders"}
    assert list(simulation.kafka.registry.claims) == [claim.key]


def with_a_lost_node(policy: str) -> Simulation:
    """Returns a resource that is being deleted, and whose worker is on a node that no longer answers."""
    simulation = Simulation.serving(deletionPolicy=policy)
    simulation.delete()
    simulation.children["StatefulSet", simulation.name]["metadata"]["deletionTimestamp"] = BEGIN.isoformat()
    simulation.settle()
    return simulation


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_worker_on_a_lost_node_holds_a_deletion_up_for_five_minutes_and_the_policy_is_kept(policy: str) -> None:
    simulation = with_a_lost_node(policy)
    assert "until the workers stop, for at most 300 s" in simulation.condition(Condition.READY).message
    simulation.later(299)
    assert reconcile(simulation.observe()).actions == ()
    simulation.later(1)
    notices_of = {notice.reason: notice for notice in reconcile(simulation.observe()).notices}
    assert notices_of["WorkersLeft"].type == "Warning"
    for word in (f"StatefulSet {OPERATOR_NAMESPACE}/{simulation.name}", "node.kubernetes.io/out-of-service"):
        assert word in notices_of["WorkersLeft"].message
    simulation.settle()
    assert simulation.gone
    assert len(simulation.kafka.topics) == (4 if policy == "Retain" else 0)
    assert bool(simulation.kafka.registry.claims) == (policy == "Retain")


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_worker_on_a_lost_node_that_is_still_in_its_group_holds_the_deletion_up(policy: str) -> None:
    """Its node has lost Kubernetes, but not Kafka, so the worker goes on to release records."""
    simulation = with_a_lost_node(policy)
    simulation.kafka.members["delayedtopics.orders"] = (member("orders-0"),)
    simulation.later(600)
    simulation.settle()
    assert not simulation.gone
    assert "members" in simulation.condition(Condition.READY).message
    assert len(simulation.kafka.topics) == 4
    simulation.kafka.members.clear()
    simulation.settle()
    assert simulation.gone


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_a_worker_on_a_lost_node_holds_no_deletion_up_where_kafka_is_away_too(policy: str) -> None:
    simulation = with_a_lost_node(policy)
    kafka_goes_away(simulation)
    simulation.later(300)
    simulation.settle()
    assert simulation.gone
    assert len(simulation.kafka.topics) == 4


def kafka_goes_away(simulation: Simulation) -> None:
    simulation.connection = Unusable(
        reason=Reason.KAFKA_UNREACHABLE, message="Kafka does not answer", since=simulation.now
    )


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_with_kafka_away_a_deletion_waits_five_minutes_and_then_leaves_everything_with_a_warning(policy: str) -> None:
    simulation = Simulation.serving(deletionPolicy=policy)
    kafka_goes_away(simulation)
    simulation.delete()
    simulation.settle()
    assert simulation.children == {}
    simulation.later(299)
    assert not any(isinstance(a, RemoveFinalizer) for a in reconcile(simulation.observe()).actions)
    simulation.later(2)
    plan = reconcile(simulation.observe())
    assert [notice.type for notice in plan.notices] == ["Warning"]
    assert "orders.delays" in plan.notices[0].message
    simulation.settle()
    assert simulation.gone
    assert len(simulation.kafka.topics) == 4


def test_kafka_that_comes_back_in_time_is_cleaned_up() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    usable = simulation.connection
    kafka_goes_away(simulation)
    simulation.delete()
    simulation.settle()
    simulation.now += timedelta(seconds=200)
    simulation.connection = usable
    simulation.settle()
    assert simulation.kafka.topics == {}


def test_a_terminating_namespace_whose_credentials_went_first_is_not_held_up() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.terminating = True
    kafka_goes_away(simulation)
    simulation.delete()
    simulation.settle()
    assert simulation.gone


def test_a_terminating_namespace_whose_kafka_answers_is_cleaned_up_as_the_policy_says() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.terminating = True
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert simulation.kafka.topics == {}


def test_a_deletion_that_kafka_refuses_is_said_and_how_to_let_go() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.delete()
    simulation.children.clear()
    plan = reconcile(simulation.observe())
    action = next(a for a in plan.actions if isinstance(a, DeleteTopics))
    assert plan.status is not None
    error = KafkaRefused(
        "deleting topic orders failed because Kafka at k:9092 refused it", code="TOPIC_DELETION_DISABLED"
    )
    after = with_failures(plan.status, [(action, error)], known=(), now=simulation.now)
    ready = next(c for c in after.conditions if c.type == Condition.READY)
    assert ready.reason == Reason.KAFKA_REFUSED
    assert "could not delete topics orders" in ready.message
    assert "set spec.deletionPolicy to Retain" in ready.message
    assert [(n.type, n.reason) for n in notices(plan.status, after)] == [("Warning", Reason.KAFKA_REFUSED)]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_plan_only_that_never_did_anything_is_gone_at_once_and_deletes_nothing(policy: str) -> None:
    simulation = Simulation(resource(deletionPolicy=policy))
    simulation.raw["metadata"]["annotations"][PLAN_ONLY] = "true"
    simulation.kafka.create("orders", 3)
    simulation.settle()
    simulation.delete()
    plan = reconcile(simulation.observe())
    assert plan.actions == ()
    assert "orders" in simulation.kafka.topics


def test_plan_only_does_not_hold_up_the_deletion_of_what_was_live_before() -> None:
    simulation = Simulation.serving(deletionPolicy="Delete")
    simulation.raw["metadata"]["annotations"][PLAN_ONLY] = (
        "true"  # it holds for what the spec asks for, not for a deletion
    )
    simulation.delete()
    simulation.settle()
    assert simulation.gone
    assert simulation.kafka.topics == {}
