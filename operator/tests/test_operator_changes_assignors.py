"""Another assignor while workers run: replaced one by one where both may be in one group, and all at once where they may not."""

import json
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_operator.plan import ApplyChild, ScaleWorkers
from delayed_topics_operator_testing.world import World, member, resource

STICKY = {"protocol": "Classic", "assignor": "Sticky"}
RANGE = {"protocol": "Classic"}
UNIFORM = {"protocol": "Consumer"}
IN_KAFKA = {"Range": "range", "RoundRobin": "roundrobin", "Sticky": "cooperative-sticky", "Uniform": "uniform"}


def running(rebalance: dict[str, str], replicas: int = 3) -> World:
    world = World(resource(workers={"replicas": replicas}, rebalance=rebalance))
    world.settle()
    come_up(world)
    world.settle()
    world.done.clear()
    return world


def come_up(world: World) -> None:
    world.workers_come_up()
    names = [f"{world.name}-{n}" for n in range(stateful_set(world)["spec"]["replicas"])]
    world.kafka.members[group(world)] = tuple(member(name) for name in names)
    world.kafka.assignors[group(world)] = IN_KAFKA[config(world)[1]]


def stateful_set(world: World) -> dict[str, Any]:
    return world.children["StatefulSet", world.name]


def group(world: World) -> str:
    return f"delayedtopics.{world.owner.name}"


def config(world: World) -> tuple[str, str]:
    told = json.loads(world.children["ConfigMap", f"{world.name}-worker"]["data"]["worker.json"])
    return told["protocol"], told["assignor"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RANGE, UNIFORM),
        (UNIFORM, RANGE),
        (RANGE, {"assignor": "RoundRobin"}),
        (UNIFORM, {**UNIFORM, "assignor": "Range"}),
    ],
)
def test_where_both_may_be_in_one_group_the_workers_are_replaced_one_by_one(
    before: dict[str, str], after: dict[str, str]
) -> None:
    world = running(before)
    world.edit(rebalance=after)
    world.settle()
    assert not [a for a in world.done if isinstance(a, ScaleWorkers)]
    assert [a.kind for a in world.done if isinstance(a, ApplyChild) and a.rolls] == ["StatefulSet"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (RANGE, STICKY, ("classic", "Sticky")),
        (STICKY, RANGE, ("classic", "Range")),
        (STICKY, UNIFORM, ("consumer", "Uniform")),
        (UNIFORM, STICKY, ("classic", "Sticky")),
    ],
)
def test_from_and_to_sticky_all_stop_and_their_sessions_end_before_others_start(
    before: dict[str, str], after: dict[str, str], expected: tuple[str, str]
) -> None:
    world = running(before)
    was = config(world)
    world.edit(rebalance=after)
    world.settle()
    assert (stateful_set(world)["spec"]["replicas"], config(world)) == (0, was)
    said = world.condition(Condition.WORKERS_READY)
    assert (said.status, "all workers of orders stop" in said.message) == ("False", True)

    stateful_set(world)["status"]["replicas"] = 0
    world.settle()
    assert stateful_set(world)["spec"]["replicas"] == 0, "they are members until their sessions are over"

    world.kafka.members[group(world)] = ()
    world.may_roll = False  # it was its turn when they stopped
    world.settle()
    assert (stateful_set(world)["spec"]["replicas"], config(world)) == (3, expected)
    come_up(world)
    world.settle()
    assert world.condition(Condition.WORKERS_READY).status == "True"


def test_to_stop_they_wait_for_their_turn() -> None:
    world = running(RANGE)
    world.may_roll = False
    world.edit(rebalance=STICKY)
    world.settle()
    assert stateful_set(world)["spec"]["replicas"] == 3
    assert "waits until fewer other resources replace theirs" in world.condition(Condition.WORKERS_READY).message


def test_an_edit_that_is_taken_back_while_they_stop_starts_them_as_they_were() -> None:
    world = running(RANGE)
    world.edit(rebalance=STICKY)
    world.settle()
    world.edit(rebalance=RANGE)
    world.settle()
    assert (stateful_set(world)["spec"]["replicas"], config(world)) == (3, ("classic", "Range"))


def test_whatever_somebody_wrote_into_their_settings_what_kafka_says_of_the_group_counts() -> None:
    world = running(RANGE)
    settings = world.children["ConfigMap", f"{world.name}-worker"]["data"]
    for written in ("", "{}", json.dumps({"protocol": "classic", "assignor": "Sticky"})):
        settings["worker.json"] = written
        world.settle()
        assert (stateful_set(world)["spec"]["replicas"], config(world)) == (3, ("classic", "Range"))


def test_while_members_join_and_kafka_tells_no_assignor_it_is_the_one_that_was_seen_last() -> None:
    world = running(RANGE)
    world.kafka.assignors[group(world)] = ""
    world.edit(rebalance=STICKY)
    world.settle()
    assert stateful_set(world)["spec"]["replicas"] == 0


def test_a_worker_that_was_started_before_the_others_had_joined_is_stopped_with_them() -> None:
    """It was edited before a member was there: replacing them began, and the first new one is refused."""
    world = World(resource(workers={"replicas": 3}, rebalance=RANGE))
    world.settle()
    world.edit(rebalance=STICKY)
    world.settle()
    assert config(world) == ("classic", "Sticky")
    come_up(world)
    world.kafka.assignors[group(world)] = "range"
    world.settle()
    assert stateful_set(world)["spec"]["replicas"] == 0
    stateful_set(world)["status"]["replicas"] = 0
    world.kafka.members[group(world)] = ()
    world.settle()
    assert (stateful_set(world)["spec"]["replicas"], config(world)) == (3, ("classic", "Sticky"))
