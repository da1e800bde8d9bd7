"""Kafka does not have the rebalance protocol of the spec: the workers use the older one, and conditions say so."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_operator_testing.simulation import Simulation, Stopped, resource
from delayed_topics_operator_testing.workers import worker_config

UNIFORM = {"protocol": "Consumer"}
WORDS = "Kafka refuses the rebalance protocol consumer with the assignor uniform (UNSUPPORTED_VERSION)"


def running(rebalance: dict[str, str]) -> Simulation:
    return Simulation.serving(workers={"replicas": 3}, rebalance=rebalance)


def ended(code: int, message: str) -> dict[str, Any]:
    """Returns a pod whose container has ended and waits for its restart."""
    state = {"lastState": {"terminated": {"exitCode": code, "reason": "Error", "message": message}}}
    statuses = [{"name": "worker", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, **state}]
    return {"metadata": {"name": "orders-2"}, "status": {"phase": "Running", "containerStatuses": statuses}}


def refuse(simulation: Simulation) -> None:
    """A worker ends because Kafka refuses its protocol, and the operator reads why."""
    simulation.worker_pods = (ended(3, f"INFO subscribed\nError: {WORDS}\n"),)
    simulation.settle()
    simulation.worker_pods = ()


def protocol(simulation: Simulation) -> tuple[str, str]:
    settings = worker_config(simulation.children["StatefulSet", simulation.name])
    return settings["protocol"], settings["assignor"]


def test_workers_that_kafka_refuses_the_protocol_have_the_older_one_until_the_resource_is_edited() -> None:
    simulation = running({"protocol": "Classic"})
    simulation.edit(rebalance=UNIFORM)
    simulation.settle()
    assert protocol(simulation) == ("consumer", "Uniform")

    refuse(simulation)

    assert protocol(simulation) == ("classic", "Range")
    simulation.workers_come_up()
    simulation.settle()
    for kind in (Condition.WORKERS_READY, Condition.READY):
        condition = simulation.condition(kind)
        assert (condition.status, condition.reason, WORDS in condition.message) == ("True", "ProtocolRefused", True)
    refused = {"generation": simulation.raw["metadata"]["generation"], "message": WORDS}
    assert simulation.raw["status"]["rebalance"]["refused"] == refused
    simulation.later(3600)
    simulation.settle()
    assert protocol(simulation) == ("classic", "Range")

    simulation.edit(retryCap=7)
    simulation.settle()
    assert protocol(simulation) == ("consumer", "Uniform"), "Kafka may have the protocol by now"
    refuse(simulation)
    simulation.edit(rebalance={"protocol": "Classic", "assignor": "RoundRobin"})
    simulation.settle()
    assert protocol(simulation) == ("classic", "RoundRobin")
    assert "refused" not in simulation.raw["status"]["rebalance"]


def test_an_operator_killed_while_it_falls_back_goes_on_with_that() -> None:
    """The pod that reported the refusal may have been replaced by then."""
    simulation = running({"protocol": "Classic"})
    simulation.edit(rebalance=UNIFORM)
    simulation.settle()
    simulation.done.clear()
    simulation.worker_pods = (ended(3, f"INFO subscribed\nError: {WORDS}\n"),)
    with pytest.raises(Stopped):
        simulation.settle(actions=1)
    simulation.worker_pods = ()
    simulation.settle()
    assert protocol(simulation) == ("classic", "Range")


def test_a_resource_that_never_had_workers_has_some_all_the_same() -> None:
    simulation = Simulation(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    simulation.settle()
    refuse(simulation)
    assert protocol(simulation) == ("classic", "Range")


def test_any_other_end_of_a_worker_changes_no_protocol_and_its_last_words_are_told() -> None:
    simulation = Simulation(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    simulation.settle()
    simulation.worker_pods = (ended(1, "INFO subscribed\nError: a Kafka client failed permanently"),)
    simulation.settle()
    assert protocol(simulation) == ("consumer", "Uniform")
    condition = simulation.condition(Condition.WORKERS_READY)
    assert condition.message.endswith("ended with exit code 1: Error: a Kafka client failed permanently")


def test_a_worker_that_says_nothing_falls_back_too() -> None:
    simulation = Simulation(resource(workers={"replicas": 1}, rebalance=UNIFORM))
    simulation.settle()
    simulation.worker_pods = (ended(3, ""),)
    simulation.settle()
    assert protocol(simulation) == ("classic", "Range")
