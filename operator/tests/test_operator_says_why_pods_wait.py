"""The resource says what keeps its pods from running, since its owner may not look into the namespace where they are.

The tests play the kubelet and the scheduler, which report it in the status of a pod or in an Event.
"""

import json
from typing import Any

import pytest
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE

pytestmark = pytest.mark.api


@pytest.fixture
def served(harness: OperatorHarness) -> OperatorHarness:
    """Returns a harness whose resource has a worker pod."""
    harness.apply()
    harness.wait_until_served()
    harness.wait(lambda: bool(harness.made("Pod")), "there is a pod")
    return harness


def set_pod_status(harness: OperatorHarness, **status: Any) -> str:
    """Sets the status of the worker's pod, and returns the name of the pod."""
    (pod,) = harness.made("Pod")
    where = (f"--namespace={SYSTEM_NAMESPACE}", "--subresource=status", "--type=merge")
    name = str(pod["metadata"]["name"])
    harness.api.kubectl("patch", "pod", name, *where, "-p", json.dumps({"status": status}))
    return name


def container(state: Manifest, last: Manifest | None = None) -> list[Manifest]:
    known = {"name": "worker", "image": "worker:1", "imageID": "", "ready": False, "restartCount": 3}
    return [{**known, "state": state, "lastState": last or {}}]


def wait_until_said(harness: OperatorHarness, reason: str, *words: str) -> None:
    """Waits until WorkersReady, and so Ready, has this reason and these words."""

    def has_reason(condition: str) -> bool:
        found = harness.condition(condition)
        return found.get("reason") == reason and all(word in found["message"] for word in words)

    harness.wait(
        lambda: has_reason("WorkersReady") and has_reason("Ready"),
        f"the workers are {reason} with {words}",
        seen=lambda: harness.condition("WorkersReady"),
    )


@pytest.mark.slow
def test_an_image_that_can_not_be_pulled_is_said_and_forgotten_when_it_was(served: OperatorHarness) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "worker:1"'}
    pod = set_pod_status(served, containerStatuses=container({"waiting": waiting}))
    words = (f"pod {pod}: ImagePullBackOff: Back-off pulling image", "images.worker")
    wait_until_said(served, "WorkersFailing", "0 of 1 workers are ready", *words)
    served.wait_event("WorkersFailing", *words)
    set_pod_status(served, containerStatuses=container({"running": {"startedAt": "2026-01-01T00:00:00Z"}}))
    served.wait_until_ready()


def test_a_worker_that_was_out_of_memory_is_said_with_what_to_raise(served: OperatorHarness) -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}
    pod = set_pod_status(
        served,
        phase="Running",
        containerStatuses=container({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ended}),
    )
    words = (f"pod {pod}: container worker ended with exit code 137: OOMKilled", "template.resources.limits.memory")
    wait_until_said(served, "WorkersFailing", *words)


@pytest.mark.slow
def test_a_pod_that_finds_no_node_is_said(served: OperatorHarness) -> None:
    unplaced = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes: Insufficient cpu.",
    }
    pod = set_pod_status(served, conditions=[unplaced])
    wait_until_said(served, "WorkersStarting", f"pod {pod} finds no node: 0/3 nodes: Insufficient cpu.", "or add room")


@pytest.mark.slow
def test_limits_that_no_container_can_start_with_are_said(served: OperatorHarness) -> None:
    """The kubelet reports this only in an Event."""
    (pod,) = served.made("Pod")
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "no-sandbox", "namespace": SYSTEM_NAMESPACE},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **meta},
        "type": "Warning",
        "reason": "FailedCreatePodSandBox",
        "message": "container init was OOM-killed (memory limit too low?)",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    served.api.apply(event)
    wait_until_said(
        served, "WorkersFailing", f"Pod {meta['name']}: FailedCreatePodSandBox: container init was OOM-killed"
    )


@pytest.mark.slow
def test_a_quota_that_has_no_room_for_workers_is_said(harness: OperatorHarness) -> None:
    with harness.no_room(SYSTEM_NAMESPACE, "pods"):
        harness.apply()
        wait_until_said(harness, "QuotaExceeded", "FailedCreate", "exceeded quota: no-room")
        harness.wait_event("QuotaExceeded", "exceeded quota: no-room")


@pytest.mark.slow
def test_a_quota_that_has_no_room_for_an_audits_pod_is_said(served: OperatorHarness) -> None:
    with served.no_room(AUDIT_NAMESPACE, "pods"):
        metadata = {"name": "first", "namespace": served.namespace}
        spec = {"delayedTopicRef": {"name": served.topic}}
        kind = {"apiVersion": "delayedtopics.io/v1alpha1", "kind": "DelayedTopicAudit"}
        served.api.apply({**kind, "metadata": metadata, "spec": spec})
        served.wait_event("QuotaExceeded", "FailedCreate", "exceeded quota: no-room")
        where = ("dtaudit/first", f"--namespace={served.namespace}", "--timeout=60s")
        served.api.kubectl(
            "wait", *where, '--for=jsonpath={.status.conditions[?(@.type=="Complete")].reason}=QuotaExceeded'
        )
