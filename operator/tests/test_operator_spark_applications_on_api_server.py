"""An audit as a SparkApplication, by the Spark Operator's own schema on a real API server. The test plays the Spark Operator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_operator.audits.spark_application import DRIVER, KIND
from delayed_topics_operator_testing.audits import apply_audit, child, ended_container, status, wait_said, with_verdict
from delayed_topics_operator_testing.operator_process import AUDIT_NAMESPACE, SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart
from delayed_topics_operator_testing.scene import Manifest, Scene

pytestmark = [pytest.mark.api, pytest.mark.usefixtures("spark_applications")]

ALLOWED = {"namespaceSelector": {}, "topicPrefixes": [""], "audits": {"maxExecutors": 4}}


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """The operator of an installation that has turned them on."""
    start_operator(scene, "--audit-executors", "--audit-spark-applications")
    scene.api.apply(scene.cluster_connection(allow=[ALLOWED]))
    scene.apply()
    scene.wait_until_served()
    return scene


def start_operator(scene: Scene, *flags: str) -> None:
    """In place of the one that runs."""
    scene.operator.stop()
    scene.operator = OperatorProcess(scene.api, "--resync-seconds=3", *flags)
    scene.operator.start()


@contextmanager
def spark_applications_turned_off(scene: Scene) -> Iterator[None]:
    """As `helm upgrade` does it: the operator is told, and has no rights on them any more."""
    scene.operator.stop()
    scene.api.kubectl("delete", "clusterrole", f"{SYSTEM_NAMESPACE}:delayed-topics-audits-spark-applications")
    try:
        start_operator(scene, "--audit-executors")
        yield
    finally:
        give_the_rights_of_the_chart(scene.api.server)


def asked(**spark: Any) -> dict[str, Any]:
    return {"mode": KIND, "executors": 2, "minExecutors": 1, "cores": 2, "memory": "2g", **spark}


def application(scene: Scene, name: str = "first") -> Manifest:
    scene.wait(lambda: child(scene, KIND, "jobName", name) is not None, "the audit has a SparkApplication")
    return child(scene, KIND, "jobName", name) or {}


def delete_audit(scene: Scene, name: str) -> None:
    scene.api.kubectl("delete", "delayedtopicaudit", name, f"--namespace={scene.namespace}", "--timeout=60s")


def patch_status(scene: Scene, kind: str, name: str, patched: Manifest) -> None:
    where = (f"--namespace={AUDIT_NAMESPACE}", "--subresource=status", "--type=merge")
    scene.api.kubectl("patch", kind, name, *where, "-p", json.dumps({"status": patched}))


def submit(scene: Scene, made: Manifest) -> str:
    """The driver's pod, as spark-submit makes it from the template."""
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
    scene.api.apply(pod)
    return name


def succeed(scene: Scene, made: Manifest, driver: str) -> None:
    """With a verdict."""
    ended = [ended_container(DRIVER, with_verdict("Verified"))]
    patch_status(scene, "Pod", driver, {"phase": "Succeeded", "containerStatuses": ended})
    patch_status(scene, KIND, made["metadata"]["name"], {"driverInfo": {}, "applicationState": {"state": "COMPLETED"}})


def wait_until_gone(scene: Scene, *made: Manifest) -> None:
    names = [each["metadata"]["name"] for each in made]
    scene.wait(lambda: not any(scene.api.get(KIND, name, AUDIT_NAMESPACE) for name in names), f"{names} are gone")


@pytest.mark.slow
def test_an_audit_is_run_by_the_spark_operator_and_its_verdict_is_that_of_the_driver(scene: Scene) -> None:
    apply_audit(scene, spark=asked(), ttlSecondsAfterFinished=0)
    made = application(scene)
    wait_said(scene, Reason.AUDIT_WAITING, "the Spark Operator must run")
    driver = submit(scene, made)
    patch_status(scene, KIND, made["metadata"]["name"], {"driverInfo": {}, "applicationState": {"state": "RUNNING"}})
    wait_said(scene, Reason.AUDIT_RUNNING, f"{KIND} {AUDIT_NAMESPACE}/{made['metadata']['name']}")
    succeed(scene, made, driver)
    scene.wait(lambda: status(scene).get("verdict") == "Verified", "the verdict is there")
    wait_until_gone(scene, made)


@pytest.mark.slow
def test_a_spark_application_goes_with_the_audit_that_is_deleted(scene: Scene) -> None:
    apply_audit(scene, spark=asked(minExecutors=0))
    made = application(scene)
    delete_audit(scene, "first")
    wait_until_gone(scene, made)


@pytest.mark.slow
def test_spark_applications_may_be_turned_off_while_one_runs_and_one_is_kept(scene: Scene) -> None:
    apply_audit(scene, "kept", spark=asked())
    kept = application(scene, "kept")
    succeed(scene, kept, submit(scene, kept))
    scene.wait(lambda: status(scene, "kept").get("verdict") == "Verified", "the verdict is there")
    apply_audit(scene, "runs", spark=asked())
    runs = application(scene, "runs")

    with spark_applications_turned_off(scene):
        wait_said(scene, Reason.NOT_ALLOWED, "audits.sparkApplications.enabled", name="runs")
        wait_until_gone(scene, kept, runs)
        delete_audit(scene, "kept")
        delete_audit(scene, "runs")
