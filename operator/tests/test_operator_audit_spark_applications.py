"""An audit as a SparkApplication: what the operator requests from the Spark Operator, and how it reads the result. No network is used."""

from importlib.metadata import version
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_operator.audits.reconcile.observation import Waiting
from delayed_topics_operator.audits.reconcile.spark_application import DRIVER, SPARK_VERSION
from delayed_topics_operator_testing.audit_simulation import AUDIT_NAMESPACE, BEGIN, AuditSimulation, audit_resource

DEADLINE_SECONDS, KEPT_SECONDS = 600, 300


@pytest.fixture
def simulation() -> AuditSimulation:
    """Returns an audit whose SparkApplication exists."""
    return begun(executors=2)


def begun(most_ttl_seconds: int | None = None, **spark: Any) -> AuditSimulation:
    asked = {"mode": "SparkApplication", "cores": 4, "memory": "2g", **spark}
    limits: dict[str, Any] = {"activeDeadlineSeconds": DEADLINE_SECONDS, "ttlSecondsAfterFinished": KEPT_SECONDS}
    simulation = AuditSimulation(raw=audit_resource(spark=asked, **limits), most_ttl_seconds=most_ttl_seconds)
    simulation.settle()
    assert simulation.job is not None
    simulation.job["metadata"]["creationTimestamp"] = BEGIN.isoformat()
    return simulation


def spec(simulation: AuditSimulation) -> dict[str, Any]:
    assert simulation.job is not None
    assert (simulation.job["kind"], simulation.job["metadata"]["namespace"]) == ("SparkApplication", AUDIT_NAMESPACE)
    return dict(simulation.job["spec"])


def message_after_pass(simulation: AuditSimulation) -> str:
    simulation.settle()
    return simulation.condition(Condition.COMPLETE).message


def test_its_fields_are_those_of_the_audit_and_its_pods_are_restricted_by_template(simulation: AuditSimulation) -> None:
    asked = spec(simulation)
    assert (asked["type"], asked["mode"], asked["image"]) == ("Python", "cluster", "audit:1")
    assert asked["arguments"][0] == "run"
    assert "--master=k8s://https://kubernetes.default.svc" in asked["arguments"]
    assert not any(argument.startswith("--conf=") for argument in asked["arguments"])
    assert asked["sparkConf"]["spark.authenticate"] == "true"
    driver, executor = asked["driver"], asked["executor"]
    assert (driver["memory"], driver["serviceAccount"]) == ("2g", "delayed-topics-audit-driver")
    assert (executor["instances"], executor["cores"], executor["memory"]) == (2, 4, "2g")
    for part, name in ((driver, DRIVER), (executor, "executor")):
        template = part["template"]
        assert template["metadata"]["labels"]["delayedtopics.io/audit"] == simulation.job_name
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        (container,) = template["spec"]["containers"]
        assert (container["name"], "args" in container) == (name, False)
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert driver["template"]["spec"]["activeDeadlineSeconds"] == DEADLINE_SECONDS
    assert simulation.config_map is not None
    assert (simulation.config_map["data"], list(simulation.config_map["binaryData"])) == ({}, ["window.json.gz"])


def test_a_spark_application_names_the_spark_of_the_image() -> None:
    assert version("pyspark") == SPARK_VERSION


def test_with_the_least_number_of_executors_spark_makes_more_while_it_needs_them() -> None:
    asked = spec(begun(executors=8, minExecutors=0))
    assert (asked["dynamicAllocation"]["minExecutors"], asked["dynamicAllocation"]["maxExecutors"]) == (0, 8)
    assert "instances" not in asked["executor"], "the Spark Operator does not accept 0 instances"


def test_its_verdict_is_read_when_it_is_complete_and_what_it_had_goes_when_its_time_is_over(
    simulation: AuditSimulation,
) -> None:
    simulation.application_is("RUNNING")
    simulation.pod({"running": {}}, container=DRIVER)
    assert (
        message_after_pass(simulation)
        == f"SparkApplication {AUDIT_NAMESPACE}/{simulation.job_name} accounts for the records"
    )
    simulation.pods.clear()
    simulation.container_reports("Verified", container=DRIVER)
    simulation.now = BEGIN.replace(hour=1)
    simulation.application_is("COMPLETED")
    simulation.settle()
    assert (simulation.status["verdict"], simulation.status["finishedAt"]) == ("Verified", "2026-01-02T01:00:00Z")
    assert simulation.secret is None
    assert simulation.job is not None, "the application is kept so that people can look at it"
    simulation.now = BEGIN.replace(hour=1)
    simulation.later(KEPT_SECONDS - 1)
    simulation.settle()
    assert simulation.job is not None
    simulation.later(1)
    simulation.settle()
    assert not any((simulation.job, simulation.config_map, simulation.raw["metadata"]["finalizers"]))
    assert simulation.expired is None, "the Spark Operator would run the application again if its spec changed"


def test_a_spark_application_is_kept_no_longer_than_was_granted_when_it_began() -> None:
    simulation = begun(most_ttl_seconds=KEPT_SECONDS - 100, executors=2)
    simulation.most_ttl_seconds = None  # the connection may be gone at the end
    simulation.container_reports("Verified", container=DRIVER)
    simulation.application_is("COMPLETED")
    simulation.settle()
    simulation.later(KEPT_SECONDS - 100)
    simulation.settle()
    assert simulation.job is None


def test_an_audit_that_was_deleted_takes_its_spark_application_along(simulation: AuditSimulation) -> None:
    simulation.application_is("RUNNING")
    simulation.raw["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    simulation.settle()
    assert not any((simulation.job, simulation.secret, simulation.config_map, simulation.raw["metadata"]["finalizers"]))


def test_what_it_waits_for_is_said(simulation: AuditSimulation) -> None:
    simulation.later(20)
    assert (
        "Check that the Spark Operator runs and that it serves namespace delayed-topics-audits"
        in message_after_pass(simulation)
    )
    simulation.application_is("SUBMISSION_FAILED", errorMessage="forbidden: no such account")
    assert message_after_pass(simulation) == f"SparkApplication {simulation.job_name}: forbidden: no such account"
    simulation.application_is("SUBMITTED")
    assert "gets no pod" in message_after_pass(simulation)
    simulation.pod({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, container=DRIVER)
    assert "no such image" in message_after_pass(simulation)


@pytest.mark.parametrize(
    ("terminated", "words"),
    [
        ({"exitCode": 1, "message": '{"message": "topic gone"}'}, "topic gone"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "with a higher spec.spark.memory"),
        (None, "driver pod failed"),
    ],
    ids=["said", "killed", "not said"],
)
def test_why_it_failed_is_said_and_there_is_no_verdict(
    simulation: AuditSimulation, terminated: dict[str, Any] | None, words: str
) -> None:
    if terminated is not None:
        simulation.pod({"terminated": terminated}, container=DRIVER)
    simulation.application_is("FAILED", errorMessage="driver pod failed")
    assert words in message_after_pass(simulation)
    assert (simulation.status["verdict"], simulation.condition(Condition.COMPLETE).reason) == (
        "Unknown",
        Reason.AUDIT_FAILED,
    )


def test_an_audit_that_takes_too_long_is_ended_whatever_the_spark_operator_makes_of_it(
    simulation: AuditSimulation,
) -> None:
    simulation.application_is("PENDING_RERUN")
    simulation.pod({"running": {}}, container=DRIVER)
    simulation.later(DEADLINE_SECONDS)
    simulation.settle()
    assert f"the SparkApplication did not finish within {DEADLINE_SECONDS} seconds" in simulation.status["message"]
    assert (simulation.status["verdict"], simulation.job) == ("Unknown", None)


def test_an_audit_that_failed_in_time_is_not_out_of_time_for_an_operator_that_was_away(
    simulation: AuditSimulation,
) -> None:
    simulation.later(60)
    simulation.application_is("FAILED", errorMessage="driver pod failed")
    simulation.later(DEADLINE_SECONDS)
    assert message_after_pass(simulation) == "driver pod failed"


def test_an_audit_that_was_ended_at_its_deadline_is_out_of_time_whenever_that_is_seen(
    simulation: AuditSimulation,
) -> None:
    simulation.later(DEADLINE_SECONDS + 1)
    simulation.application_is("FAILED", errorMessage="driver pod failed")
    simulation.later(DEADLINE_SECONDS)
    assert "a higher spec.activeDeadlineSeconds" in message_after_pass(simulation)


@pytest.mark.parametrize("state", ["NEW", "RUNNING", "COMPLETED"])
def test_when_they_are_turned_off_one_that_runs_has_no_verdict_and_goes(
    simulation: AuditSimulation, state: str
) -> None:
    simulation.application_is(state)
    simulation.spark_applications = False
    assert "audits.sparkApplications.enabled" in message_after_pass(simulation)
    assert (simulation.status["verdict"], simulation.condition(Condition.COMPLETE).reason) == (
        "Unknown",
        Reason.NOT_ALLOWED,
    )
    assert not any((simulation.job, simulation.secret, simulation.config_map, simulation.raw["metadata"]["finalizers"]))


def test_when_they_are_turned_off_one_that_has_only_its_window_never_begins() -> None:
    asked = {"mode": "SparkApplication", "executors": 2}
    simulation = AuditSimulation(
        raw=audit_resource(spark=asked), files=Waiting(reason=Reason.CONNECTION_MISSING, message="gone")
    )
    simulation.settle()
    assert (simulation.config_map is not None, simulation.job) == (True, None)
    simulation.spark_applications = False
    assert "audits.sparkApplications.enabled" in message_after_pass(simulation)
    assert simulation.config_map is None


def test_an_audit_whose_application_somebody_removed_before_its_end_has_no_verdict(simulation: AuditSimulation) -> None:
    simulation.job = None
    assert (
        f"SparkApplication {AUDIT_NAMESPACE}/{simulation.job_name} was removed before it ended"
        in message_after_pass(simulation)
    )
    assert simulation.status["verdict"] == "Unknown"
