"""An audit with executors: the settings of Spark, the template of the executor pods, and the status when these pods are stuck."""

import json
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_operator_testing.audit_simulation import AUDIT_NAMESPACE, AuditSimulation, audit_resource

ZONE = {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}


@pytest.mark.parametrize(
    ("spark", "rack"), [({}, {"valueFrom": ZONE}), ({"clientRack": "eu-central-1a"}, {"value": "eu-central-1a"})]
)
def test_every_pod_reads_from_the_replica_in_its_own_zone_or_in_one_that_is_named(
    spark: dict[str, str], rack: dict[str, Any]
) -> None:
    simulation = AuditSimulation(raw=audit_resource(spark={"executors": 2, **spark}))
    simulation.settle()
    assert simulation.job is not None
    assert simulation.config_map is not None
    driver = simulation.job["spec"]["template"]
    executor = json.loads(simulation.config_map["data"]["executor.json"])
    for pod in (driver, executor):
        assert {"name": "KAFKA_CLIENT_RACK", **rack} in pod["spec"]["containers"][0]["env"]


def test_every_pod_goes_to_the_nodes_that_are_asked_for() -> None:
    toleration = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
    nodes = {"nodeSelector": {"disk": "ssd"}, "tolerations": [toleration]}
    driver, executor = pods(executors=2, **nodes)
    assert nodes.items() <= driver.items()
    assert nodes.items() <= executor.items()
    driver, executor = pods(executors=2)
    assert not nodes.keys() & {*driver, *executor}


def pods(**spark: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the spec of the Job's pod and the spec of an executor's pod."""
    simulation = AuditSimulation(raw=audit_resource(spark=spark))
    simulation.settle()
    assert simulation.job is not None
    assert simulation.config_map is not None
    return simulation.job["spec"]["template"]["spec"], json.loads(simulation.config_map["data"]["executor.json"])[
        "spec"
    ]


def test_with_executors_spark_makes_restricted_pods_by_the_operators_template_and_rights() -> None:
    conf = {"spark.sql.shuffle.partitions": "8"}
    simulation = AuditSimulation(raw=audit_resource(spark={"executors": 2, "cores": 4, "memory": "2g", "conf": conf}))
    simulation.settle()
    assert simulation.job is not None
    assert simulation.config_map is not None
    pod = simulation.job["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("delayed-topics-audit-driver", True)
    (container,) = pod["containers"]
    settings = [a.removeprefix("--conf=") for a in container["args"] if a.startswith("--conf=")]
    assert "--master=k8s://https://kubernetes.default.svc" in container["args"]
    assert settings[0] == "spark.sql.shuffle.partitions=8"
    assert {
        "spark.executor.instances=2",
        "spark.executor.cores=4",
        "spark.executor.memory=2g",
        f"spark.kubernetes.namespace={AUDIT_NAMESPACE}",
        "spark.kubernetes.container.image=audit:1",
        "spark.kubernetes.authenticate.executor.serviceAccountName=delayed-topics-audit",
        "spark.authenticate=true",
    } <= set(settings)
    assert container["resources"]["requests"]["cpu"] == "100m"
    template = json.loads(simulation.config_map["data"]["executor.json"])
    made = template["spec"]
    assert (made["automountServiceAccountToken"], made["securityContext"]["runAsNonRoot"]) == (False, True)
    assert made["containers"][0]["securityContext"] == container["securityContext"]
    assert template["metadata"]["labels"]["delayedtopics.io/audit"] == simulation.job_name

    simulation.pod({"running": {}})
    waiting = {"name": "executor", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    labels = {"spark-role": "executor"}
    simulation.pods.append({"metadata": {"name": "e-1", "labels": labels}, "status": {"containerStatuses": [waiting]}})
    simulation.settle()
    assert "pod e-1: ErrImagePull: no such image" in simulation.condition(Condition.COMPLETE).message
    simulation.job_reports("Verified")
    simulation.settle()
    assert simulation.status["verdict"] == "Verified"


def test_executors_are_made_while_tasks_wait_for_one_up_to_the_most() -> None:
    driver, _ = pods(executors=8, minExecutors=1)
    settings = {a.removeprefix("--conf=") for a in driver["containers"][0]["args"]}
    assert {
        "spark.dynamicAllocation.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.enabled=true",
        "spark.dynamicAllocation.initialExecutors=1",
        "spark.dynamicAllocation.minExecutors=1",
        "spark.dynamicAllocation.maxExecutors=8",
    } <= settings
    assert not [setting for setting in settings if setting.startswith("spark.executor.instances")]
