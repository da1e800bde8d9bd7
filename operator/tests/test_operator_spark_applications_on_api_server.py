"""An audit as a SparkApplication, with the Spark Operator's own CRD on a real API server. The test plays the Spark Operator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_operator.audits.reconcile.spark_application import DRIVER, KIND
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audits import apply_audit, child, ended_container, status, wait_said, with_verdict
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart

pytestmark = [pytest.mark.api, pytest.mark.usefixtures("spark_applications")]

ALLOWED = {"namespaceSelector": {}, "topicPrefixes": [""], "audits": {"maxExecutors": 4}}


@pytest.fixture
def harness(harness: OperatorHarness) -> OperatorHarness:
    """Replaces the operator by one of an installation that has enabled SparkApplications."""
    start_operator(harness, "--audit-executors", "--audit-spark-applications")
    harness.api.apply(harness.cluster_connection(allow=[ALLOWED]))
    harness.apply()
    harness.wait_until_served()
    return harness


def start_operator(harness: OperatorHarness, *flags: str) -> None:
    """Starts an operator in place of the one that runs."""
    harness.operator.stop()
    harness.operator = OperatorProcess(harness.api, "--resync-seconds=3", *flags)
    harness.operator.start()


@contextmanager
def spark_applications_turned_off(harness: OperatorHarness) -> Iterator[None]:
    """Turns SparkApplications off as `helm upgrade` does: the operator has other flags, and no rights to SparkApplications."""
    harness.operator.stop()
    harness.api.kubectl("delete", "clusterrole", f"{SYSTEM_NAMESPACE}:delayed-topics-audits-spark-applications")
    try:
        start_operator(harness, "--audit-executors")
        yield
    finally:
        give_the_rights_of_the_chart(harness.api.server)


def asked(**spark: Any) -> dict[str, Any]:
    return {"mode": KIND, "executors": 2, "minExecutors": 1, "cores": 2, "memory": "2g", **spark}


def application(harness: OperatorHarness, name: str = "first") -> Manifest:
    harness.wait(lambda: child(harness, KIND, "jobName", name) is not None, "the audit has a SparkApplication")
    return child(harness, KIND, "jobName", name) or {}


def delete_audit(harness: OperatorHarness, name: str) -> None:
    harness.api.kubectl("delete", "delayedtopicaudit", name, f"--namespace={harness.namespace}", "--timeout=60s")


def patch_status(harness: OperatorHarness, kind: str, name: str, patched: Manifest) -> None:
    where = (f"--namespace={AUDIT_NAMESPACE}", "--subresource=status", "--type=merge")
    harness.api.kubectl("patch", kind, name, *where, "-p", json.dumps({"status": patched}))


def submit(harness: OperatorHarness, made: Manifest) -> str:
    """Creates the driver's pod from the template as spark-submit does, and returns the name of the pod."""
    spec, name = made["spec"], f"{made['metadata']['name']}-driver"
    template = spec["driver"]["template"]
    (container,) = template["spec"]["containers"]
    owner = {key: made[key] for key in ("apiVersion", "kind")} | {key: made["metadata"][key] for key in ("name", "uid")}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": name,
            "namespace": AUDIT_NAMESPACE,
            "labels": {**template["metadata"]["labels"], "spark-role": "driver"},
            "ownerReferences": [owner],
        },
        "spec": {
            **template["spec"],
            "restartPolicy": "Never",
            "serviceAccountName": spec["driver"]["serviceAccount"],
            "containers": [{**container, "image": spec["image"], "args": ["driver", *spec["arguments"]]}],
        },
    }
    harness.api.apply(pod)
    return name


def succeed(harness: OperatorHarness, made: Manifest, driver: str) -> None:
    """Lets the driver and its SparkApplication succeed, with a verdict."""
    ended = [ended_container(DRIVER, with_verdict("Verified"))]
    patch_status(harness, "Pod", driver, {"phase": "Succeeded", "containerStatuses": ended})
    patch_status(
        harness, KIND, made["metadata"]["name"], {"driverInfo": {}, "applicationState": {"state": "COMPLETED"}}
    )


def wait_until_gone(harness: OperatorHarness, *made: Manifest) -> None:
    names = [each["metadata"]["name"] for each in made]
    harness.wait(lambda: not any(harness.api.get(KIND, name, AUDIT_NAMESPACE) for name in names), f"{names} are gone")


@pytest.mark.slow
def test_an_audit_is_run_by_the_spark_operator_and_its_verdict_is_that_of_the_driver(harness: OperatorHarness) -> None:
    apply_audit(harness, spark=asked(), ttlSecondsAfterFinished=0)
    made = application(harness)
    wait_said(harness, Reason.AUDIT_WAITING, "Check that the Spark Operator runs")
    driver = submit(harness, made)
    patch_status(harness, KIND, made["metadata"]["name"], {"driverInfo": {}, "applicationState": {"state": "RUNNING"}})
    wait_said(harness, Reason.AUDIT_RUNNING, f"{KIND} {AUDIT_NAMESPACE}/{made['metadata']['name']}")
    succeed(harness, made, driver)
    harness.wait(lambda: status(harness).get("verdict") == "Verified", "the audit has its verdict")
    wait_until_gone(harness, made)


@pytest.mark.slow
def test_a_spark_application_goes_with_the_audit_that_is_deleted(harness: OperatorHarness) -> None:
    apply_audit(harness, spark=asked(minExecutors=0))
    made = application(harness)
    delete_audit(harness, "first")
    wait_until_gone(harness, made)


@pytest.mark.slow
def test_spark_applications_may_be_turned_off_while_one_runs_and_one_is_kept(harness: OperatorHarness) -> None:
    apply_audit(harness, "kept", spark=asked())
    kept = application(harness, "kept")
    succeed(harness, kept, submit(harness, kept))
    harness.wait(lambda: status(harness, "kept").get("verdict") == "Verified", "the audit has its verdict")
    apply_audit(harness, "runs", spark=asked())
    runs = application(harness, "runs")

    with spark_applications_turned_off(harness):
        wait_said(harness, Reason.NOT_ALLOWED, "audits.sparkApplications.enabled", name="runs")
        wait_until_gone(harness, kept, runs)
        delete_audit(harness, "kept")
        delete_audit(harness, "runs")
