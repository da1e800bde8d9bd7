"""Audits of a scene, and what a kubelet would make of their Jobs."""

import json
from typing import Any

from delayed_topics_core.reasons import Reason

from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE
from delayed_topics_operator_testing.scene import Scene

Manifest = dict[str, Any]


def apply_audit(scene: Scene, name: str = "first", **spec: Any) -> None:
    scene.api.apply(
        {
            "apiVersion": "delayedtopics.io/v1alpha1",
            "kind": "DelayedTopicAudit",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"delayedTopicRef": {"name": scene.topic}, **spec},
        }
    )


def status(scene: Scene, name: str = "first") -> Manifest:
    return dict((scene.api.get("DelayedTopicAudit", name, scene.namespace) or {}).get("status") or {})


def wait_said(scene: Scene, reason: Reason, *words: str, name: str = "first") -> None:
    """Until its condition Complete says so."""

    def said() -> bool:
        found: Manifest = next((c for c in status(scene, name).get("conditions", ()) if c["type"] == "Complete"), {})
        return found.get("reason") == reason and all(word in found["message"] for word in words)

    scene.wait(said, f"audit {name} says {reason} {words}")


def child(scene: Scene, kind: str, field: str, name: str = "first") -> Manifest | None:
    namespace, _, child_name = status(scene, name).get(field, "").partition("/")
    return scene.api.get(kind, child_name, namespace) if child_name else None


def wait_for_job(scene: Scene, name: str = "first") -> None:
    scene.wait(lambda: child(scene, "Job", "jobName", name) is not None, "the audit's Job is there")


def end_pod(
    scene: Scene, phase: str, terminated: Manifest, name: str = "first", conditions: tuple[Manifest, ...] = ()
) -> None:
    """As a kubelet would, when the container has ended. `conditions`: of the pod."""
    job = status(scene, name)["jobName"].partition("/")[2]

    def pods() -> list[Manifest]:
        found = scene.api.list_all("Pod", AUDIT_NAMESPACE)
        of_job = [p for p in found if p["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job]
        return [p for p in of_job if p["status"].get("phase") not in ("Succeeded", "Failed")]

    scene.wait(lambda: bool(pods()), "the Job has a pod that has not ended")
    ended = [ended_container("audit", terminated)]
    patch = {"status": {"phase": phase, "containerStatuses": ended, "conditions": list(conditions)}}
    pod = pods()[0]["metadata"]["name"]
    where = (f"--namespace={AUDIT_NAMESPACE}", "--subresource=status", "--type=merge")
    scene.api.kubectl("patch", "pod", pod, *where, "-p", json.dumps(patch))


def ended_container(name: str, terminated: Manifest) -> Manifest:
    """Its entry in the status of its pod."""
    known = {"name": name, "image": "audit:1", "imageID": "", "ready": False, "restartCount": 0}
    return {**known, "state": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z", **terminated}}}


def with_verdict(verdict: str) -> Manifest:
    """How a container ends that has reached it."""
    account = {"produced": 7, "lost": 1}
    body = {"verdict": verdict, "message": "counted", "account": account, "offenders": {"over_cap": ["f:0:6"]}}
    return {"exitCode": 0, "reason": "Completed", "message": json.dumps(body)}


def report(scene: Scene, verdict: str, name: str = "first") -> None:
    end_pod(scene, "Succeeded", with_verdict(verdict), name)
