"""What the operator reads from pods that do not run, and what it reports."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.delayed_topic.reconcile.workers import POD_WAKE_SECONDS
from delayed_topics_operator.values.pods import hindrance, obstacle_of_events
from delayed_topics_operator_testing.simulation import BEGIN, Simulation, resource


def pod(container: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "worker", **container}] if container is not None else []
    return {"metadata": {"name": "orders-0"}, "status": {"containerStatuses": statuses, **status}}


def starting() -> Simulation:
    simulation = Simulation(resource())
    simulation.settle()
    return simulation


def test_a_pod_that_is_going_is_not_looked_at_and_one_that_starts_is_looked_at_again_soon() -> None:
    simulation = starting()
    going = pod({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    simulation.worker_pods = (going,)
    plan = simulation.settle()
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.reason, condition.message) == (
        Reason.WORKERS_STARTING,
        "0 of 1 workers are ready, and 0 of 1 are up to date",
    )
    assert plan.wake_seconds == POD_WAKE_SECONDS


@pytest.mark.parametrize(("seconds", "is_lost"), [(59, False), (61, True)])
def test_a_worker_on_a_lost_node_is_told_of_with_what_to_do(seconds: int, is_lost: bool) -> None:
    """Kubernetes sets the deletion timestamp to the end of the grace period."""
    simulation = starting()
    lost = pod({"state": {"running": {}}, "ready": False}, phase="Running")
    lost["metadata"].update(namespace="system", deletionTimestamp="2026-01-01T00:00:00Z")
    lost["spec"] = {"nodeName": "node-7"}
    simulation.worker_pods = (lost,)
    simulation.later(seconds)
    simulation.settle()
    condition = simulation.condition(Condition.WORKERS_READY)
    assert (condition.reason == Reason.WORKERS_FAILING) == is_lost
    words = ("pod orders-0", "node node-7", "delete the Node", "node.kubernetes.io/out-of-service")
    force = "kubectl --namespace system delete pod orders-0 --force"
    assert all(word in condition.message for word in (*words, force)) == is_lost


def test_a_pod_that_finds_no_node_is_given_time_for_one_to_come() -> None:
    simulation = starting()
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    simulation.worker_pods = (pod(conditions=[unplaced]),)
    simulation.settle()
    condition = simulation.condition(Condition.WORKERS_READY)
    assert condition.reason == Reason.WORKERS_STARTING
    assert "finds no node: 0/3 nodes are available. Either lower" in condition.message
    simulation.later(121)
    simulation.settle()
    assert simulation.condition(Condition.WORKERS_READY).reason == Reason.WORKERS_FAILING


def test_a_container_that_ended_once_is_told_of_until_it_is_ready_again() -> None:
    last = {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file\n"}}
    found = hindrance(pod({"state": {"running": {}}, "lastState": last, "ready": False}), BEGIN)
    assert found is not None
    assert found.message == "pod orders-0: container worker ended with exit code 128: StartError: no such file"
    assert hindrance(pod({"state": {"running": {}}, "lastState": last, "ready": True}), BEGIN) is None


def test_the_newest_event_that_somebody_has_to_do_something_about_is_told() -> None:
    about = {"kind": "StatefulSet", "name": "orders"}
    events = [
        {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": f"2026-01-01T00:00:0{n}Z"}
        for n, (reason, message) in enumerate(
            [("FailedCreate", "old"), ("FailedCreate", "new"), ("Unhealthy", "as it should be while it starts")]
        )
    ]
    found = obstacle_of_events(events)
    assert found is not None
    assert found.message == "StatefulSet orders: FailedCreate: new"
    assert obstacle_of_events(events[2:]) is None
