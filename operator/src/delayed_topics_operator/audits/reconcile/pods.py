"""How an audit ended, or what its pods wait for, from their status and Events. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from delayed_topics_crds import Account
from delayed_topics_crds.common import Verdict
from pydantic import BaseModel, ValidationError

from delayed_topics_operator.audits.reconcile import spark_application
from delayed_topics_operator.audits.reconcile.manifests import CONTAINER
from delayed_topics_operator.audits.reconcile.runner import Ended, deadline_seconds, ended, is_application, without_pod
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.pods import obstacle, obstacle_of_events

OURS = (CONTAINER, spark_application.DRIVER)
"""The names of the audit's own container, in a Job and in a SparkApplication."""
ADDED_ONES_END_SECONDS = 60
"""How long a sidecar may run on after the audit's own container. If it ends within this time, the Job tries again by itself."""
_REMEDIES = {
    "image": ". Correct the chart values images.audit or images.pullSecrets",
    "room": ". Either lower spec.spark in a new DelayedTopicAudit, or add room on the nodes",
}


@dataclass(frozen=True, kw_only=True)
class Running:
    """`obstacle`: what keeps the audit from going on until someone removes it. None: nothing does."""

    obstacle: str | None = None


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The audit ended without a verdict. `out_of_time`: whether it exceeded its deadline, perhaps while it waited for something."""

    message: str
    out_of_time: bool = False


class Reported(BaseModel):
    """The container's termination message: what delayed_topics_audit calls a Result."""

    verdict: Verdict
    message: str
    account: Account | None = None
    unfinished: bool = False
    pending_since_ms: int | None = None
    offenders: dict[str, tuple[str, ...]] = {}
    carried_sha256: str | None = None

    @property
    def settles(self) -> bool:
        """Whether the next audit of the chain need not look at the same records."""
        return self.account is not None and not self.unfinished


def outcome(
    runner: Manifest, pods: tuple[Manifest, ...], now: datetime, warnings: tuple[Manifest, ...] = ()
) -> Running | Failed | Reported:
    """`runner`: the Job or SparkApplication. `warnings`: Events that may say why there is no pod, or why it has not started."""
    executors = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("spark-role") == "executor"]
    newest = sorted(
        (pod for pod in pods if pod not in executors),
        key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""),
        reverse=True,
    )
    named = f"the {runner['kind']}"
    match ended(runner, now):
        case Ended(succeeded=True):
            reported = next((r for pod in newest if (r := _reported(pod)) is not None), None)
            return reported or Failed(
                message=f"{named} succeeded, but its pod was removed before the operator read the verdict"
            )
        case Ended(out_of_time=True):
            return Failed(message=_out_of_time(runner), out_of_time=True)
        case Ended(message=message):
            why = next((why for pod in newest if (why := _failure(pod)) is not None), None)
            return Failed(message=why or message or f"{named} failed")
        case None if (early := _early(runner, newest, now)) is not None:
            return early
        case None:
            warning = obstacle_of_events(warnings)
    if not newest:
        return Running(obstacle=warning.message if warning is not None else without_pod(runner, now))
    of_pods = next((what for pod in (newest[0], *executors) if (what := _obstacle(pod))), None)
    return Running(obstacle=of_pods or (warning.message if warning is not None else None))


def _early(runner: Manifest, newest: Sequence[Manifest], now: datetime) -> Failed | Reported | None:
    """Returns the result of an audit whose Job does not end, because a sidecar that was added to the pod runs on. The Spark Operator needs
    no such help."""
    if is_application(runner) or not newest or not _sidecars_run(newest[0]):
        return None
    pod = newest[0]
    if (terminated := _terminated(pod)) is None:
        return None
    if (reported := _reported(pod)) is not None:
        return reported
    disrupted = any(c["type"] == "DisruptionTarget" for c in pod["status"].get("conditions") or ())
    if disrupted or "deletionTimestamp" in pod["metadata"]:
        return None  # the whole pod goes, and another one begins anew
    ended_at = terminated.get("finishedAt")
    if ended_at is not None and (now - datetime.fromisoformat(ended_at)).total_seconds() < ADDED_ONES_END_SECONDS:
        return None
    return Failed(message=_failure(pod) or f"the {runner['kind']} failed")


def _sidecars_run(pod: Manifest) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(status["name"] not in OURS and "terminated" not in (status.get("state") or {}) for status in statuses)


def _out_of_time(runner: Manifest) -> str:
    """Returns the message for an exceeded deadline. The pods are gone, so they can't say more."""
    return (
        f"the {runner['kind']} did not finish within {deadline_seconds(runner)} seconds. Create a new DelayedTopicAudit with either a "
        "higher spec.activeDeadlineSeconds, or more spec.spark.cores or spec.spark.executors"
    )


def _terminated(pod: Manifest) -> Manifest | None:
    status = _container(pod).get("state") or {}
    terminated: Manifest | None = status.get("terminated")
    return terminated


def _reported(pod: Manifest) -> Reported | None:
    terminated = _terminated(pod)
    if terminated is None or terminated.get("exitCode") != 0:
        return None
    try:
        return Reported.model_validate(json.loads(terminated.get("message") or ""))
    except (ValueError, ValidationError):
        return None


def _failure(pod: Manifest) -> str | None:
    terminated = _terminated(pod)
    if terminated is None:
        evicted = (pod.get("status") or {}).get("message")
        return f"the pod was terminated: {evicted}" if evicted else None
    if terminated.get("reason") == "OOMKilled":
        return "the pod was killed because it ran out of memory. Create a new DelayedTopicAudit with a higher spec.spark.memory"
    try:
        return str(json.loads(terminated.get("message") or "")["message"])
    except (ValueError, KeyError, TypeError):
        return f"the container ended with exit code {terminated.get('exitCode')}. See the logs of pod {pod['metadata']['name']}"


def _obstacle(pod: Manifest) -> str | None:
    found = obstacle(pod)
    return found.message.removesuffix(".") + _REMEDIES.get(found.about, "") if found is not None else None


def _container(pod: Manifest) -> Manifest:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] in OURS), {})
