"""spec.workers.autoscale: the resource, its workers, and what people read about them."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_crds import DelayedTopicStatus, parse
from delayed_topics_operator.delayed_topic.reconcile.load import LOOK_SECONDS, Load, Look
from delayed_topics_operator.values.transitions import autoscaled
from delayed_topics_operator_testing.namespace_simulation import grant
from delayed_topics_operator_testing.simulation import Simulation, Stopped, resource, usable

KEY = ("orders", 0)


def load(workers: int, *, due: int, released: int, seconds: int = 20) -> Load:
    """Returns the load after `seconds` in which `due` records a second came due and `released` records a second were released."""
    found = Load()
    for step in range(int(seconds / LOOK_SECONDS) + 1):
        at = step * LOOK_SECONDS
        found = found.after(
            Look(
                at_seconds=at,
                due={KEY: int(at * due)},
                released={KEY: int(at * released)},
                workers=workers,
                shared=True,
            )
        )
    return found


def running(autoscale: dict[str, int], **workers: Any) -> Simulation:
    return Simulation.serving(partitions=6, workers={"autoscale": autoscale, **workers})


def replicas(simulation: Simulation) -> int:
    return int(simulation.children["StatefulSet", simulation.name]["spec"]["replicas"])


def status(simulation: Simulation) -> DelayedTopicStatus:
    return parse("DelayedTopic", simulation.raw).status


def test_workers_that_do_not_catch_up_become_more_and_the_status_says_why() -> None:
    simulation = running({"min": 1, "max": 8})
    before = status(simulation)
    assert (replicas(simulation), before.workers and before.workers.wanted_replicas) == (1, 1)

    simulation.load = load(1, due=25_000, released=10_000)
    simulation.settle()

    assert replicas(simulation) == 4
    after = status(simulation)
    assert after.workers is not None
    assert after.workers.last_scaled is not None
    decision = after.workers.last_scaled
    assert (decision.from_replicas, decision.to_replicas, after.workers.wanted_replicas) == (1, 4, 4)
    assert "25,000 records a second came due, and 1 worker released 10,000 a second" in decision.message
    (notice,) = autoscaled(before, after)
    assert (notice.type, notice.reason, notice.message) == (
        "Normal",
        "WorkersScaled",
        f"scaled from 1 to 4 workers: {decision.message}",
    )
    simulation.later(60)
    simulation.serve()
    assert autoscaled(after, status(simulation)) == ()


def test_the_resource_stays_ready_while_workers_are_added_and_not_if_they_never_come() -> None:
    simulation = running({"max": 8})
    simulation.load = load(1, due=25_000, released=10_000)
    simulation.settle()
    live = simulation.children["StatefulSet", simulation.name]
    live["status"] |= {"observedGeneration": live["metadata"]["generation"], "replicas": 4, "updatedReplicas": 4}
    simulation.settle()
    assert simulation.condition(Condition.READY).status == "True"
    assert simulation.condition(Condition.WORKERS_READY).message.startswith(
        "1 of 4 workers are ready. Autoscaling set the number to 4"
    )

    simulation.later(130)
    simulation.settle()
    assert simulation.condition(Condition.WORKERS_READY).status == "False"
    assert simulation.condition(Condition.READY).status == "False"


def test_idle_workers_become_fewer_and_it_is_ready_all_the_time() -> None:
    simulation = running({"min": 1, "max": 8}, replicas=4)
    simulation.load = load(4, due=10, released=10, seconds=320)
    simulation.settle()
    assert (replicas(simulation), simulation.condition(Condition.READY).status) == (2, "True")


@pytest.mark.parametrize(("edit", "expected"), [({"min": 3, "max": 5}, 3), ({"min": 1, "max": 2}, 2)])
def test_new_bounds_hold_at_once(edit: dict[str, int], expected: int) -> None:
    simulation = running({"min": 2, "max": 2} if expected == 3 else {"min": 4, "max": 4})
    simulation.edit(workers={"autoscale": edit})
    simulation.settle()
    assert replicas(simulation) == expected


def test_there_are_never_more_workers_than_partitions() -> None:
    simulation = running({"min": 30, "max": 50})
    assert replicas(simulation) == 10  # four partitions of the front topic and six of the delays topic


def test_there_are_never_more_workers_than_are_granted_and_it_is_said() -> None:
    simulation = Simulation(resource(partitions=6, workers={"autoscale": {"max": 8}}))
    simulation.connection = usable(grant(maxWorkers=3))
    simulation.serve()
    simulation.load = load(1, due=50_000, released=10_000)
    simulation.serve()
    assert replicas(simulation) == 3
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.status, condition.reason) == ("True", "GrantExceeded")
    assert "spec.workers.autoscale wants 8, but only 3 may run" in condition.message


@pytest.mark.parametrize("spec", [{"workers": {"replicas": 0, "autoscale": {"max": 8}}}])
def test_zero_replicas_stop_all_workers_as_with_any_autoscaler(spec: dict[str, Any]) -> None:
    simulation = running({"max": 8})
    simulation.load = load(1, due=50_000, released=10_000)
    simulation.edit(**spec)
    simulation.settle()
    assert (replicas(simulation), simulation.condition(Condition.WORKERS_READY).reason) == (0, "ScaledToZero")
    assert "wantedReplicas" not in simulation.raw["status"]["workers"]


def test_while_a_plan_is_only_shown_nothing_is_decided() -> None:
    simulation = running({"max": 8})
    before = status(simulation)
    simulation.annotate(plan_only="true")
    simulation.load = load(1, due=25_000, released=10_000)
    simulation.settle()
    after = status(simulation)
    assert before.workers is not None
    assert after.workers is not None
    assert (replicas(simulation), after.workers.wanted_replicas) == (1, before.workers.wanted_replicas)
    assert autoscaled(before, after) == ()
    assert "change StatefulSet" in simulation.condition(Condition.PLANNED).message


def test_a_paused_topic_is_not_scaled() -> None:
    simulation = running({"max": 8})
    simulation.edit(paused=True)
    simulation.load = load(1, due=50_000, released=10)
    simulation.settle()
    assert replicas(simulation) == 1


def test_without_autoscale_replicas_decide_again() -> None:
    simulation = running({"min": 4, "max": 8})
    simulation.edit(workers={"replicas": 2})
    simulation.settle()
    assert (replicas(simulation), {"wantedReplicas", "lastScaled"} & simulation.raw["status"]["workers"].keys()) == (
        2,
        set(),
    )


@pytest.mark.parametrize("boundary", [1, 2])
def test_an_operator_killed_while_it_scales_goes_on_with_the_number_that_it_decided(boundary: int) -> None:
    simulation = running({"max": 8})
    simulation.load = load(1, due=25_000, released=10_000)
    with pytest.raises(Stopped):
        simulation.settle(actions=boundary)
    simulation.load = Load()  # the next operator has not looked at the load yet
    simulation.settle()
    assert replicas(simulation) == 4
    decision = status(simulation).workers
    assert decision is not None
    assert decision.last_scaled is not None
    assert (decision.last_scaled.from_replicas, decision.last_scaled.to_replicas) == (1, 4)
