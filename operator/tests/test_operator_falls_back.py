"""Kafka hasn't the rebalance protocol of the spec: the workers have the older one, and it is said."""

import json
from typing import Any

from delayed_topics_core.reasons import Condition
from delayed_topics_operator_testing.world import World, resource

UNIFORM = {"protocol": "Consumer"}
WORDS = "Kafka refuses the rebalance protocol consumer with the assignor uniform (UNSUPPORTED_VERSION)"


def running(rebalance: dict[str, str]) -> World:
    world = World(resource(workers={"replicas": 3}, rebalance=rebalance))
    world.settle()
    world.workers_come_up()
    world.settle()
    return world


def ended(code: int, message: str) -> dict[str, Any]:
    """A pod whose container has ended, and waits to be started again."""
    state = {"lastState": {"terminated": {"exitCode": code, "reason": "Error", "message": message}}}
    statuses = [{"name": "worker", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **state}]
    return {"metadata": {"name": "orders-2"}, "status": {"phase": "Running", "containerStatuses": statuses}}


def refuse(world: World) -> None:
    """A worker ends and says why, and is looked at."""
    world.worker_pods = (ended(3, f"INFO subscribed\nError: {WORDS}\n"),)
    world.settle()
    world.worker_pods = ()


def protocol(world: World) -> tuple[str, str]:
    told = json.loads(world.children["ConfigMap", f"{world.name}-worker"]["data"]["worker.json"])
    return told["protocol"], told["assignor"]


def test_workers_that_kafka_refuses_the_protocol_have_the_older_one_until_the_resource_is_edited() -> None:
    world = running({"protocol": "Classic"})
    world.edit(rebalance=UNIFORM)
    world.settle()
    assert protocol(world) == ("consumer", "Uniform")

    refuse(world)

    assert protocol(world) == ("classic", "Range")
    world.workers_come_up()
    world.settle()
    for condition in (Condition.WORKERS_READY, Condition.READY):
        said = world.condition(condition)
        assert (said.status, said.reason, WORDS in said.message) == ("True", "ProtocolRefused", True)
    refused = {"generation": world.raw["metadata"]["generation"], "message": WORDS}
    assert world.raw["status"]["rebalance"]["refused"] == refused
    world.later(3600)
    world.settle()
    assert protocol(world) == ("classic", "Range")

    world.edit(retryCap=7)
    world.settle()
    assert protocol(world) == ("consumer", "Uniform"), "Kafka may have it by now"
    refuse(world)
    world.edit(rebalance={"protocol": "Classic", "assignor": "RoundRobin"})
    world.settle()
    assert protocol(world) == ("classic", "RoundRobin")
    assert "refused" not in world.raw["status"]["rebalance"]


def test_a_resource_that_never_had_workers_has_some_all_the_same() -> None:
    world = World(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    world.settle()
    refuse(world)
    assert protocol(world) == ("classic", "Range")


def test_any_other_end_of_a_worker_changes_no_protocol_and_its_last_words_are_told() -> None:
    world = World(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    world.settle()
    world.worker_pods = (ended(1, "INFO subscribed\nError: a client was shut out for good"),)
    world.settle()
    assert protocol(world) == ("consumer", "Uniform")
    said = world.condition(Condition.WORKERS_READY)
    assert said.message.endswith("ended with exit code 1: Error: a client was shut out for good")


def test_a_worker_that_says_nothing_falls_back_too() -> None:
    world = World(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    world.settle()
    world.worker_pods = (ended(3, ""),)
    world.settle()
    assert protocol(world) == ("classic", "Range")
