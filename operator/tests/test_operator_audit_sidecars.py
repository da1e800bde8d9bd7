"""An injector adds a container to the pod of an audit, and this container never ends."""

from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.audits.reconcile.pods import ADDED_ONES_END_SECONDS
from delayed_topics_operator_testing.audit_simulation import BEGIN, AuditSimulation
from delayed_topics_operator_testing.audits import (
    apply_audit,
    child,
    end_pod,
    ended_container,
    running_container,
    status,
    wait_for_job,
    with_verdict,
)
from delayed_topics_operator_testing.operator_harness import OperatorHarness

PROXY = running_container("proxy")


def pod_with_proxy(terminated: dict[str, Any], **of_the_pod: Any) -> AuditSimulation:
    simulation = AuditSimulation()
    simulation.settle()
    simulation.pod({}, containerStatuses=[PROXY, ended_container("audit", terminated)], phase="Running", **of_the_pod)
    simulation.settle()
    return simulation


@pytest.mark.api
def test_an_audit_has_its_verdict_and_its_job_ends_although_an_injected_container_runs_on(
    harness: OperatorHarness,
) -> None:
    harness.apply()
    apply_audit(harness)
    wait_for_job(harness)
    namespace, _, job = status(harness)["jobName"].partition("/")
    end_pod(harness, "Running", with_verdict("Verified"), beside=(PROXY,))
    harness.wait(lambda: status(harness).get("verdict") == "Verified", "the audit is Verified", seconds=60)
    harness.wait_for("DeliveryVerified", "True", "EveryRecordAccounted")
    harness.wait(lambda: child(harness, "Job", "jobName") is None, "the Job is gone")

    def pods() -> list[str]:
        found = (pod["metadata"] for pod in harness.api.list_all("Pod", namespace))
        return [meta["name"] for meta in found if meta["name"].startswith(job)]

    harness.wait(lambda: not pods(), "the pod is gone, and the injected container with it", seen=pods)


def test_an_audit_that_fails_beside_an_injected_container_says_why_at_once() -> None:
    simulation = pod_with_proxy({"exitCode": 137, "reason": "OOMKilled"})
    assert (simulation.status["verdict"], simulation.condition(Condition.VERIFIED).reason) == (
        "Unknown",
        Reason.AUDIT_FAILED,
    )
    assert "with a higher spec.spark.memory" in simulation.status["message"]
    assert (simulation.job, simulation.secret, simulation.raw["metadata"]["finalizers"]) == (None, None, [])


def test_an_audit_that_fails_beside_an_injected_container_that_ends_soon_after_it_is_tried_again() -> None:
    """Many proxies end when the container beside them has ended. The Job then starts another pod, if it has retries left."""
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": BEGIN.isoformat()}
    simulation = pod_with_proxy(ended)
    assert "verdict" not in simulation.status
    simulation.pod({}, containerStatuses=[PROXY, running_container("audit")], phase="Running")
    simulation.later(ADDED_ONES_END_SECONDS)
    simulation.settle()
    assert "verdict" not in simulation.status, "the next pod is still running"

    simulation.pod({}, containerStatuses=[PROXY, ended_container("audit", ended)], phase="Running")
    simulation.settle()
    assert simulation.status["verdict"] == "Unknown"


def test_a_pod_that_is_evicted_with_an_injected_container_is_still_no_try() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    simulation = pod_with_proxy({"exitCode": 143, "reason": "Error"}, conditions=[disrupted])
    assert "verdict" not in simulation.status
    simulation.job_reports("Verified")
    simulation.settle()
    assert simulation.status["verdict"] == "Verified"


def test_a_job_whose_only_container_has_ended_is_kept_until_its_time_to_live_is_over() -> None:
    simulation = AuditSimulation()
    simulation.settle()
    simulation.container_reports("Verified")
    simulation.settle()
    assert "verdict" not in simulation.status, "the Job is about to be complete"
    simulation.job_ends()
    simulation.settle()
    assert (simulation.status["verdict"], simulation.expired) == ("Verified", 86_400)
