"""The progress of the Job or SparkApplication that runs an audit, from its status. Pure."""

from dataclasses import dataclass
from datetime import datetime

from delayed_topics_operator.audits.reconcile import spark_application
from delayed_topics_operator.values.manifest import Manifest

POD_SECONDS = 10
"""Both have a pod within this time, unless someone has to correct something."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`at`: None if the status does not say when. `message`: why it failed, if the status says so. `out_of_time`: whether it exceeded its
    deadline."""

    succeeded: bool
    at: datetime | None
    message: str | None = None
    out_of_time: bool = False


def ended(runner: Manifest, now: datetime) -> Ended | None:
    """Returns how the Job or SparkApplication ended. None: it runs, or waits for something."""
    return _application_ended(runner, now) if is_application(runner) else _job_ended(runner)


def deadline_seconds(runner: Manifest) -> int:
    """Returns how long the Job or SparkApplication may take."""
    spec = runner["spec"]["driver"]["template"]["spec"] if is_application(runner) else runner["spec"]
    return int(spec["activeDeadlineSeconds"])


def without_pod(runner: Manifest, now: datetime) -> str | None:
    """Returns what someone has to do about a runner that has no pod, though it should have one by now. None: nothing."""
    meta = runner["metadata"]
    named = f"{runner['kind']} {meta['name']}"
    error = _state(runner).get("errorMessage") if is_application(runner) else None
    if error:
        return f"{named}: {error}"
    if (age := _age_seconds(runner, now)) is None or age < POD_SECONDS:
        return None
    if is_application(runner) and not _state(runner).get("state"):
        return f"{named} was not started. Check that the Spark Operator runs and that it serves namespace {meta['namespace']}"
    # The reason may be a quota, pod security or a missing service account. Only the events say which, and there is none yet.
    described = f"kubectl describe {runner['kind'].lower()} {meta['name']} -n {meta['namespace']}"
    return f"{named} gets no pod. See its events ({described})"


def is_application(runner: Manifest) -> bool:
    return bool(runner["kind"] == spark_application.KIND)


def _age_seconds(runner: Manifest, at: datetime) -> float | None:
    made = runner["metadata"].get("creationTimestamp")
    return (at - datetime.fromisoformat(made)).total_seconds() if made is not None else None


def _job_ended(job: Manifest) -> Ended | None:
    status = job.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions", ()) if c["status"] == "True"}
    if "Complete" in conditions:
        return Ended(succeeded=True, at=_time(status.get("completionTime")))
    if (failed := conditions.get("Failed")) is None:
        return None
    return Ended(
        succeeded=False,
        at=_time(failed.get("lastTransitionTime")),
        message=failed.get("message"),
        out_of_time=failed.get("reason") == "DeadlineExceeded",
    )


def _application_ended(application: Manifest, now: datetime) -> Ended | None:
    """Kubernetes enforces the deadline for each driver. This function enforces it for all tries together, as a Job does."""
    state, at = _state(application), _terminated_at(application)
    if state.get("state") == "COMPLETED":
        return Ended(succeeded=True, at=at)
    failed = state.get("state") == "FAILED"
    age = _age_seconds(application, (at or now) if failed else now)
    out_of_time = age is not None and age > deadline_seconds(application)
    if failed or out_of_time:
        return Ended(succeeded=False, at=at, message=state.get("errorMessage"), out_of_time=out_of_time)
    return None


def _state(application: Manifest) -> Manifest:
    return (application.get("status") or {}).get("applicationState") or {}


def _terminated_at(application: Manifest) -> datetime | None:
    return _time((application.get("status") or {}).get("terminationTime"))


def _time(given: str | None) -> datetime | None:
    return datetime.fromisoformat(given) if given else None
