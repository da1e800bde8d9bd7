"""spec.workers.autoscale: the resource, its workers and what people read of them."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_crds import DelayedTopicStatus, parse
from delayed_topics_operator.load import LOOK_SECONDS, Load, Look
from delayed_topics_operator.reconcile.transitions import autoscaled
from delayed_topics_operator_testing.team import grant
from delayed_topics_operator_testing.world import World, resource, usable

KEY = ("orders", 0)


def load(workers: int, *, due: int, released: int, seconds: int = 20) -> Load:
    """As `due` records a second come due and `released` are released for so long, at most one second's work is lagging at first."""
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


def running(autoscale: dict[str, int], **workers: Any) -> World:
    world = World(resource(partitions=6, workers={"autoscale": autoscale, **workers}))
    come_up(world)
    return world


def come_up(world: World) -> None:
    world.settle()
    world.workers_come_up()
    world.settle()


def replicas(world: World) -> int:
    return int(world.children["StatefulSet", world.name]["spec"]["replicas"])


def status(world: World) -> DelayedTopicStatus:
    return parse("DelayedTopic", world.raw).status


def test_workers_that_do_not_catch_up_become_more_and_the_status_says_why() -> None:
    world = running({"min": 1, "max": 8})
    before = status(world)
    assert (replicas(world), before.workers and before.workers.wanted_replicas) == (1, 1)

    world.load = load(1, due=25_000, released=10_000)
    world.settle()

    assert replicas(world) == 4
    after = status(world)
    assert after.workers is not None
    assert after.workers.last_scaled is not None
    decision = after.workers.last_scaled
    assert (decision.from_replicas, decision.to_replicas, after.workers.wanted_replicas) == (1, 4, 4)
    assert "25,000 a second came due, and 1 worker released 10,000 a second" in decision.message
    (told,) = autoscaled(before, after)
    assert (told.type, told.reason, told.message) == (
        "Normal",
        "WorkersScaled",
        f"scaled from 1 to 4 workers: {decision.message}",
    )
    world.later(60)
    come_up(world)
    assert autoscaled(after, status(world)) == ()


def test_the_resource_stays_ready_while_workers_are_added_and_not_if_they_never_come() -> None:
    world = running({"max": 8})
    world.load = load(1, due=25_000, released=10_000)
    world.settle()
    live = world.children["StatefulSet", world.name]
    live["status"] |= {"observedGeneration": live["metadata"]["generation"], "replicas": 4, "updatedReplicas": 4}
    world.settle()
    assert world.condition(Condition.READY).status == "True"
    assert world.condition(Condition.WORKERS_READY).message.startswith(
        "1 of 4 workers are ready; autoscaling made it 4"
    )

    world.later(130)
    world.settle()
    assert world.condition(Condition.WORKERS_READY).status == "False"
    assert world.condition(Condition.READY).status == "False"


def test_idle_workers_become_fewer_and_it_is_ready_all_the_time() -> None:
    world = running({"min": 1, "max": 8}, replicas=4)
    world.load = load(4, due=10, released=10, seconds=320)
    world.settle()
    assert (replicas(world), world.condition(Condition.READY).status) == (2, "True")


@pytest.mark.parametrize(("edit", "expected"), [({"min": 3, "max": 5}, 3), ({"min": 1, "max": 2}, 2)])
def test_new_bounds_hold_at_once(edit: dict[str, int], expected: int) -> None:
    world = running({"min": 2, "max": 2} if expected == 3 else {"min": 4, "max": 4})
    world.edit(workers={"autoscale": edit})
    world.settle()
    assert replicas(world) == expected


def test_there_are_never_more_workers_than_partitions() -> None:
    world = running({"min": 30, "max": 50})
    assert replicas(world) == 10  # four of the front topic, six of the delays topic


def test_there_are_never_more_workers_than_are_granted_and_it_is_said() -> None:
    world = World(resource(partitions=6, workers={"autoscale": {"max": 8}}))
    world.connection = usable(grant(maxWorkers=3))
    come_up(world)
    world.load = load(1, due=50_000, released=10_000)
    come_up(world)
    assert replicas(world) == 3
    said = world.condition(Condition.WORKERS_READY)
    assert (said.status, said.reason) == ("True", "GrantExceeded")
    assert "spec.workers.autoscale wants 8, and there are 3" in said.message


@pytest.mark.parametrize("spec", [{"workers": {"replicas": 0, "autoscale": {"max": 8}}}])
def test_zero_replicas_stop_all_workers_as_with_any_autoscaler(spec: dict[str, Any]) -> None:
    world = running({"max": 8})
    world.load = load(1, due=50_000, released=10_000)
    world.edit(**spec)
    world.settle()
    assert (replicas(world), world.condition(Condition.WORKERS_READY).reason) == (0, "ScaledToZero")
    assert "wantedReplicas" not in world.raw["status"]["workers"]


def test_a_paused_topic_is_not_scaled() -> None:
    world = running({"max": 8})
    world.edit(paused=True)
    world.load = load(1, due=50_000, released=10)
    world.settle()
    assert replicas(world) == 1


def test_without_autoscale_replicas_decide_again() -> None:
    world = running({"min": 4, "max": 8})
    world.edit(workers={"replicas": 2})
    world.settle()
    assert (replicas(world), {"wantedReplicas", "lastScaled"} & world.raw["status"]["workers"].keys()) == (2, set())
