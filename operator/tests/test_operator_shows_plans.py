"""A resource whose plan is only shown reports how it is, and not what the operator is about to do."""

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import parse
from delayed_topics_operator_testing.simulation import Simulation, resource

KINDS = (Condition.READY, Condition.TOPICS_READY, Condition.WORKERS_READY)


def shown(simulation: Simulation, **spec: object) -> Simulation:
    """Sets the annotation plan-only, and makes an edit that the operator then does not follow."""
    simulation.annotate(plan_only="true")
    simulation.edit(**spec)
    simulation.settle()
    assert not simulation.done
    return simulation


def reported(simulation: Simulation) -> list[tuple[str, str]]:
    return [(c.status, c.reason) for c in map(simulation.condition, KINDS)]


def test_a_new_resource_says_that_nothing_is_done() -> None:
    simulation = shown(Simulation(resource()))
    claimed, ready = simulation.condition(Condition.CLAIMED), simulation.condition(Condition.READY)
    assert (claimed.status, claimed.reason) == ("Unknown", Reason.PLAN_ONLY)
    assert (ready.status, ready.reason) == ("False", Reason.PLAN_ONLY)
    for condition in (claimed, ready):
        assert "is writing" not in condition.message
        assert (
            "The operator does nothing, because the annotation delayedtopics.io/plan-only is set" in condition.message
        )


def test_topics_that_are_to_grow_are_served_as_they_are() -> None:
    simulation = shown(Simulation.serving(), partitions=9)
    assert reported(simulation) == [("True", "PlanOnly"), ("True", "PlanOnly"), ("True", "AsDeclared")]
    message = simulation.condition(Condition.TOPICS_READY).message
    assert "the topics are served as they are. The operator does nothing" in message
    assert "grow topic orders.delays" in message
    assert Condition.PLANNED in {c.type for c in parse("DelayedTopic", simulation.raw).status.conditions}


@pytest.mark.parametrize("may_roll", [True, False])
@pytest.mark.parametrize(
    ("workers", "action"),
    [
        ({"replicas": 4}, "StatefulSet"),
        ({"replicas": 0}, "StatefulSet"),
        ({"replicas": 1, "template": {"resources": {"limits": {"memory": "1Gi"}}}}, "which replaces its pods"),
    ],
)
def test_workers_that_are_to_change_serve_as_they_are(workers: dict[str, object], action: str, may_roll: bool) -> None:
    simulation = Simulation.serving()
    simulation.may_roll = may_roll
    shown(simulation, workers=workers)
    ready, _, workers_ready = reported(simulation)
    assert ready == workers_ready == ("True", "PlanOnly")
    message = simulation.condition(Condition.WORKERS_READY).message
    assert "1 of 1 workers are ready. The operator does nothing" in message
    assert action in message


def test_a_pause_that_is_not_followed_is_not_said_to_be_one() -> None:
    simulation = shown(Simulation.serving(), paused=True)
    assert simulation.condition(Condition.READY).reason == Reason.PLAN_ONLY


def test_workers_that_fail_are_said_to_fail() -> None:
    simulation = Simulation.serving()
    simulation.children["StatefulSet", simulation.name]["status"]["readyReplicas"] = 0
    shown(simulation, workers={"replicas": 2})
    simulation.later(600)
    simulation.settle()
    assert reported(simulation)[2] == ("False", "WorkersFailing")
    assert "0 of 1 workers are ready" in simulation.condition(Condition.READY).message


def test_workers_that_are_stopped_are_said_to_be_stopped() -> None:
    simulation = Simulation.serving(workers={"replicas": 0})
    shown(simulation, workers={"replicas": 2})
    assert simulation.condition(Condition.READY).reason == Reason.SCALED_TO_ZERO
    assert "spec.workers.replicas is 0" not in simulation.condition(Condition.READY).message


def test_a_topic_that_records_need_and_that_is_not_made_again_is_not_ready() -> None:
    simulation = Simulation.serving()
    simulation.kafka.delete("orders.ready")
    shown(simulation)
    assert reported(simulation)[:2] == [("False", "PlanOnly"), ("False", "PlanOnly")]
    assert "create topic orders.ready" in simulation.condition(Condition.TOPICS_READY).message


def test_a_setting_that_a_promise_needs_and_that_is_not_repaired_is_not_ready() -> None:
    simulation = Simulation.serving()
    simulation.kafka.topics["orders"].config["retention.ms"] = "1000"
    shown(simulation)
    assert reported(simulation)[:2] == [("False", "PlanOnly"), ("False", "PlanOnly")]


def test_a_plan_that_is_executed_after_all_leaves_nothing_of_it() -> None:
    simulation = shown(Simulation.serving(), partitions=9)
    simulation.raw["metadata"]["annotations"].clear()
    simulation.serve()
    assert reported(simulation) == [("True", "AsDeclared")] * 3


def test_without_anything_to_do_all_is_as_declared() -> None:
    simulation = shown(Simulation.serving())
    assert reported(simulation) == [("True", "AsDeclared")] * 3
    assert simulation.condition(Condition.PLANNED).message == "nothing has to be done"
