"""The assignor changes while workers run: they are replaced one by one if both can be in one group, and all at once otherwise."""

import json
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_operator.values.plan import ApplyChild, ScaleWorkers
from delayed_topics_operator.workers.reconcile.manifests import WORKER_CONFIG
from delayed_topics_operator_testing.simulation import Simulation, member, resource
from delayed_topics_operator_testing.workers import worker_config

STICKY = {"protocol": "Classic", "assignor": "Sticky"}
RANGE = {"protocol": "Classic"}
UNIFORM = {"protocol": "Consumer"}
IN_KAFKA = {"Range": "range", "RoundRobin": "roundrobin", "Sticky": "cooperative-sticky", "Uniform": "uniform"}


def running(rebalance: dict[str, str], replicas: int = 3) -> Simulation:
    simulation = Simulation(resource(workers={"replicas": replicas}, rebalance=rebalance))
    simulation.settle()
    come_up(simulation)
    simulation.settle()
    simulation.done.clear()
    return simulation


def come_up(simulation: Simulation) -> None:
    simulation.workers_come_up()
    names = [f"{simulation.name}-{n}" for n in range(stateful_set(simulation)["spec"]["replicas"])]
    simulation.kafka.members[group(simulation)] = tuple(member(name) for name in names)
    simulation.kafka.assignors[group(simulation)] = IN_KAFKA[config(simulation)[1]]


def stateful_set(simulation: Simulation) -> dict[str, Any]:
    return simulation.children["StatefulSet", simulation.name]


def group(simulation: Simulation) -> str:
    return f"delayedtopics.{simulation.owner.name}"


def config(simulation: Simulation) -> tuple[str, str]:
    settings = worker_config(simulation.children["StatefulSet", simulation.name])
    return settings["protocol"], settings["assignor"]


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
    simulation = running(before)
    simulation.edit(rebalance=after)
    simulation.settle()
    assert not [a for a in simulation.done if isinstance(a, ScaleWorkers)]
    assert [a.kind for a in simulation.done if isinstance(a, ApplyChild) and a.rolls] == ["StatefulSet"]


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
    simulation = running(before)
    was = config(simulation)
    simulation.edit(rebalance=after)
    simulation.settle()
    assert (stateful_set(simulation)["spec"]["replicas"], config(simulation)) == (0, was)
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.status, "all workers of orders stop" in condition.message) == ("False", True)

    stateful_set(simulation)["status"]["replicas"] = 0
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 0, "stopped workers are members until their sessions end"

    simulation.kafka.members[group(simulation)] = ()
    simulation.may_roll = False  # the resource had its turn already, when its workers stopped
    simulation.settle()
    assert (stateful_set(simulation)["spec"]["replicas"], config(simulation)) == (3, expected)
    come_up(simulation)
    simulation.settle()
    assert simulation.condition(Condition.WORKERS_READY).status == "True"


def test_to_stop_they_wait_for_their_turn() -> None:
    simulation = running(RANGE)
    simulation.may_roll = False
    simulation.edit(rebalance=STICKY)
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 3
    assert (
        "waits until fewer other resources replace their workers"
        in simulation.condition(Condition.WORKERS_READY).message
    )


def test_an_edit_that_is_taken_back_while_they_stop_starts_them_as_they_were() -> None:
    simulation = running(RANGE)
    simulation.edit(rebalance=STICKY)
    simulation.settle()
    simulation.edit(rebalance=RANGE)
    simulation.settle()
    assert (stateful_set(simulation)["spec"]["replicas"], config(simulation)) == (3, ("classic", "Range"))


def test_whatever_somebody_wrote_into_their_settings_what_kafka_says_of_the_group_counts() -> None:
    simulation = running(RANGE)
    annotations = stateful_set(simulation)["spec"]["template"]["metadata"]["annotations"]
    for written in ("", "{}", json.dumps({"protocol": "classic", "assignor": "Sticky"})):
        annotations[WORKER_CONFIG] = written
        simulation.settle()
        assert (stateful_set(simulation)["spec"]["replicas"], config(simulation)) == (3, ("classic", "Range"))


def test_while_members_join_and_kafka_tells_no_assignor_it_is_the_one_that_was_seen_last() -> None:
    simulation = running(RANGE)
    simulation.kafka.assignors[group(simulation)] = ""
    simulation.edit(rebalance=STICKY)
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 0


def test_a_worker_that_was_started_before_the_others_had_joined_is_stopped_with_them() -> None:
    """The edit came before the group had members, so a rolling replacement began, and Kafka refuses the first new worker."""
    simulation = Simulation(resource(workers={"replicas": 3}, rebalance=RANGE))
    simulation.settle()
    simulation.edit(rebalance=STICKY)
    simulation.settle()
    assert config(simulation) == ("classic", "Sticky")
    come_up(simulation)
    simulation.kafka.assignors[group(simulation)] = "range"
    simulation.settle()
    assert stateful_set(simulation)["spec"]["replicas"] == 0
    stateful_set(simulation)["status"]["replicas"] = 0
    simulation.kafka.members[group(simulation)] = ()
    simulation.settle()
    assert (stateful_set(simulation)["spec"]["replicas"], config(simulation)) == (3, ("classic", "Sticky"))
