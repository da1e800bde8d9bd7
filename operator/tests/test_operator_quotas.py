"""What the connection's owner grants, in sum of a namespace or to one resource, is never passed, and nobody loses what is there."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant, parse
from delayed_topics_operator.amount import Amount
from delayed_topics_operator.reconcile.quota import hard
from delayed_topics_operator_testing.team import Team, grant, live_workers, partitions, with_quota, workers
from delayed_topics_operator_testing.world import World, resource, usable


def test_of_two_that_are_made_at_once_for_a_quota_of_one_exactly_one_is() -> None:
    team = Team(with_quota(delayedTopics=1))
    team.add("first")
    team.add("second")
    plans = {name: team.plan(name) for name in ("second", "first")}  # neither has done anything yet
    for name, plan in plans.items():
        team.do(name, plan)
    team.settle()
    assert team.reason("second", Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
    assert team.reason("first", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    assert "allows namespace shop 1 in sum (spec.allow[].quota.delayedTopics), and has 1" in (
        team.worlds["first"].condition(Condition.CLAIMED).message
    )
    assert set(team.kafka.topics) == {"second", "second.delays", "second.ready", "second.dead"}


def test_what_is_let_through_survives_a_restart_of_the_operator() -> None:
    team = Team(with_quota(partitions=11))
    team.add("first", partitions=3)
    team.add("second", partitions=3)
    team.settle("first")
    team.restart()
    team.settle("second")
    assert team.reason("second", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    assert partitions(team.kafka, "first") == team.used().partitions == 6


def test_topics_that_are_kept_count_until_they_are_deleted() -> None:
    team = Team(with_quota(delayedTopics=1))
    team.add("orders")
    team.settle()
    team.worlds["orders"].delete()
    team.settle()
    assert team.used().delayed_topics == 1
    team.add("orders", uid="another", topic="elsewhere")
    team.settle()
    assert team.reason("orders", Condition.CLAIMED) == ("False", Reason.GRANT_EXCEEDED)
    del team.worlds["orders"]
    team.add("orders", uid="again", deletionPolicy="Delete")
    team.settle()
    assert team.reason("orders", Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
    team.worlds["orders"].delete()
    team.settle()
    assert team.used() == Amount()


def test_scaling_beyond_a_grant_serves_with_what_is_granted_and_repairs_on() -> None:
    world = World(resource(**workers(2)), connection=usable(grant(maxWorkers=3)))
    world.settle()
    world.edit(**workers(9))
    world.settle()
    world.workers_come_up()
    world.settle()
    assert live_workers(world) == 3
    said = world.condition(Condition.WORKERS_READY)
    assert (said.status, said.reason) == ("True", Reason.GRANT_EXCEEDED)
    assert "3 of 3 workers are ready; spec.workers.replicas is 9, and there are 3" in said.message
    assert "at most 3 workers for a DelayedTopic (spec.allow[].maxWorkers)" in said.message
    ready = world.condition(Condition.READY)
    assert (ready.status, ready.reason) == ("True", Reason.GRANT_EXCEEDED)
    assert parse("DelayedTopic", world.raw).status.workers.replicas == 3  # type: ignore[union-attr]

    world.kafka.topics["orders"].config["cleanup.policy"] = "compact"
    world.kafka.delete("orders.ready")
    world.settle()
    assert world.kafka.topics["orders"].config["cleanup.policy"] == "delete"
    assert "orders.ready" in world.kafka.topics


def test_workers_of_a_namespace_share_its_quota() -> None:
    team = Team(with_quota(workers=5))
    team.add("first", **workers(4))
    team.add("second", **workers(4))
    team.settle()
    assert (live_workers(team.worlds["first"]), live_workers(team.worlds["second"])) == (4, 1)
    team.worlds["first"].edit(**workers(2))
    team.see()
    team.settle("first", "second")
    assert (live_workers(team.worlds["first"]), live_workers(team.worlds["second"])) == (2, 3)


def test_no_worker_at_all_is_not_ready() -> None:
    team = Team(with_quota(workers=1))
    team.add("first", **workers(1))
    team.add("second", **workers(1))
    team.settle()
    assert live_workers(team.worlds["second"]) == 0
    assert team.reason("second", Condition.WORKERS_READY) == ("False", Reason.GRANT_EXCEEDED)


def test_a_quota_that_is_lowered_takes_nothing_away() -> None:
    team = Team(with_quota(delayedTopics=2, partitions=100, workers=8))
    team.add("first", partitions=3, **workers(4))
    team.add("second", partitions=3, **workers(4))
    team.settle()
    before = team.used()
    team.connection = with_quota(delayedTopics=1, partitions=1, workers=1)
    team.restart()
    team.settle()
    assert team.used() == before
    for name in ("first", "second"):
        assert team.reason(name, Condition.CLAIMED) == ("True", Reason.CLAIM_HELD)
        assert team.reason(name, Condition.TOPICS_READY) == ("True", Reason.AS_DECLARED)
    team.worlds["first"].edit(partitions=4, **workers(3))
    team.settle()
    assert live_workers(team.worlds["first"]) == 3
    assert team.reason("first", Condition.TOPICS_READY) == ("False", Reason.GRANT_EXCEEDED)
    team.worlds["first"].edit(**workers(4))
    team.settle()
    assert live_workers(team.worlds["first"]) == 3


@pytest.mark.parametrize("limit", [{"maxPartitions": 3}, {"quota": {"partitions": 6}}])
def test_topics_that_may_not_grow_are_served_and_repaired_as_they_are(limit: dict[str, Any]) -> None:
    world = World(resource(delaySeconds=[0, 10, 60], partitions=3), connection=usable(grant(**limit)))
    world.settle()
    layout = world.kafka.registry.layouts["orders"].layout
    world.edit(delaySeconds=[0, 10, 60, 600], partitions=8, retryCap=9)
    world.kafka.topics["orders"].config["cleanup.policy"] = "compact"
    world.kafka.delete("orders.dead")
    world.children.pop(("Service", world.name))
    world.settle()
    record = world.kafka.registry.layouts["orders"]
    assert (record.layout, record.state, record.retry_cap) == (layout, "serving", 9)
    assert partitions(world.kafka) == 6
    assert world.kafka.topics["orders"].config["cleanup.policy"] == "delete"
    assert ("Service", world.name) in world.children
    for condition, status in ((Condition.TOPICS_READY, "False"), (Condition.LAYOUT_CLAMPED, "True")):
        said = world.condition(condition)
        assert (said.status, said.reason) == (status, Reason.GRANT_EXCEEDED)
    assert world.condition(Condition.CLAIMED).status == "True"
    world.connection = usable(grant())
    world.settle()
    assert world.kafka.registry.layouts["orders"].layout.delay_seconds == (0, 10, 60, 600)
    assert world.condition(Condition.TOPICS_READY).status == "True"


@pytest.mark.parametrize(
    ("grants", "spec", "said"),
    [
        ((grant(maxPartitions=4),), {"partitions": 5}, "at most 4 partitions"),
        ((grant(maxPartitions=4),), {"partitions": 4, "frontPartitions": 9}, "at most 4 partitions"),
        (
            (grant(maxPartitions=9, topicPrefixes=["x"]), grant(maxPartitions=2)),
            {"partitions": 5},
            "at most 2 partitions",
        ),
        ((grant(quota={"delayedTopics": 0}),), {}, "0 in sum (spec.allow[].quota.delayedTopics), and has 0"),
        ((grant(quota={"partitions": 5}),), {"partitions": 3}, "5 in sum (spec.allow[].quota.partitions)"),
        ((grant(quota={"partitions": 5}),), {"partitions": 3}, "this asks for 6 in all its topics"),
    ],
)
def test_nothing_is_made_of_what_asks_for_more_than_is_granted(
    grants: tuple[Grant, ...], spec: dict[str, Any], said: str
) -> None:
    world = World(resource(**spec), connection=usable(*grants))
    world.settle()
    assert world.done == []
    claimed = world.condition(Condition.CLAIMED)
    assert (claimed.status, claimed.reason) == ("False", Reason.GRANT_EXCEEDED)
    assert said in claimed.message


def test_of_several_entries_for_a_namespace_the_highest_number_counts() -> None:
    grants = (
        grant(quota={"partitions": 5, "workers": 9}),
        grant(quota={"partitions": 7}),
        grant(adopt=True),
        grant(quota={"delayedTopics": 99}, namespaceSelector={"matchLabels": {"team": "b"}}),
    )
    found = hard(grants, {"team": "a"})
    assert (found.partitions, found.workers, found.delayed_topics, found.executors) == (7, 9, None, None)


def test_a_team_on_a_connection_of_its_own_has_no_quota() -> None:
    world = World(resource(**workers(50)))
    world.others = Amount(delayed_topics=10**6, partitions=10**6, workers=10**6)
    world.settle()
    assert world.condition(Condition.CLAIMED).status == "True"
    assert live_workers(world) == 50
