"""Audits on a real API server, with the test as the kubelet of their pods."""

import json
from typing import Any

from delayed_topics_core.reasons import Reason
from delayed_topics_operator.values.manifest import Manifest

from delayed_topics_operator_testing.operator_harness import OperatorHarness


def apply_audit(harness: OperatorHarness, name: str = "first", **spec: Any) -> None:
    harness.api.apply(
        {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "DelayedTopicAudit",
            "metadata": {"name": name, "namespace": harness.namespace},
            "spec": {"delayedTopicRef": {"name": harness.topic}, **spec},
        }
    )


def status(harness: OperatorHarness, name: str = "first") -> Manifest:
    return dict((harness.api.get("DelayedTopicAudit", name, harness.namespace) or {}).get("status") or {})


def wait_said(harness: OperatorHarness, reason: Reason, *words: str, name: str = "first") -> None:
    """Waits until the condition Complete has this reason and these words."""

    def said() -> bool:
        found: Manifest = next((c for c in status(harness, name).get("conditions", ()) if c["type"] == "Complete"), {})
        return found.get("reason") == reason and all(word in found["message"] for word in words)

    harness.wait(said, f"audit {name} says {reason} {words}")


def child(harness: OperatorHarness, kind: str, field: str, name: str = "first") -> Manifest | None:
    namespace, _, child_name = status(harness, name).get(field, "").partition("/")
    return harness.api.get(kind, child_name, namespace) if child_name else None


def wait_for_job(harness: OperatorHarness, name: str = "first") -> None:
    harness.wait(lambda: child(harness, "Job", "jobName", name) is not None, "the audit's Job is there")


def end_pod(
    harness: OperatorHarness,
    phase: str,
    terminated: Manifest,
    name: str = "first",
    conditions: tuple[Manifest, ...] = (),
    beside: tuple[Manifest, ...] = (),
) -> None:
    """Ends the pod, as a kubelet does when the container has ended. `conditions`: of the pod. `beside`: the statuses of other
    containers."""
    namespace, _, job = status(harness, name)["jobName"].partition("/")

    def pods() -> list[Manifest]:
        found = harness.api.list_all("Pod", namespace)
        of_job = [p for p in found if p["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job]
        return [p for p in of_job if p["status"].get("phase") not in ("Succeeded", "Failed")]

    harness.wait(lambda: bool(pods()), "the Job has a pod that has not ended")
    ended = ended_container("audit", terminated)
    patch = {"status": {"phase": phase, "containerStatuses": [ended, *beside], "conditions": list(conditions)}}
    pod = pods()[0]["metadata"]["name"]
    where = (f"--namespace={namespace}", "--subresource=status", "--type=merge")
    harness.api.kubectl("patch", "pod", pod, *where, "-p", json.dumps(patch))


def running_container(name: str) -> Manifest:
    """Returns the entry of a running container in the status of its pod."""
    known = {"name": name, "image": f"{name}:1", "imageID": "", "ready": True, "restartCount": 0}
    return {**known, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def ended_container(name: str, terminated: Manifest) -> Manifest:
    """Returns the entry of an ended container in the status of its pod."""
    known = {"name": name, "image": "audit:1", "imageID": "", "ready": False, "restartCount": 0}
    return {**known, "state": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z", **terminated}}}


def with_verdict(verdict: str) -> Manifest:
    """Returns how a container ends that has reached this verdict."""
    account = {"produced": 7, "lost": 1}
    body = {"verdict": verdict, "message": "counted", "account": account, "offenders": {"over_cap": ["f:0:6"]}}
    return {"exitCode": 0, "reason": "Completed", "message": json.dumps(body)}


def report(harness: OperatorHarness, verdict: str, name: str = "first") -> None:
    end_pod(harness, "Succeeded", with_verdict(verdict), name)
