"""Where an audit writes its account (a claim or a bucket), and what the pods that write there are given."""

import json
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant, parse
from delayed_topics_operator.audits.reconcile.access import AuditSite, refused
from delayed_topics_operator.audits.reconcile.observation import Refused
from delayed_topics_operator.values.key import Key
from delayed_topics_operator_testing.audit_simulation import AUDIT_NAMESPACE, WINDOW, AuditSimulation, audit_resource

S3 = {"bucket": "accounts", "prefix": "some/folder", "secretName": "accounts-s3"}


def begun(output: dict[str, Any], **spec: Any) -> AuditSimulation:
    """Begins an audit in a namespace that has a KafkaConnection of its own."""
    simulation = AuditSimulation(raw=audit_resource(output=output, **spec), home="shop")
    simulation.settle()
    return simulation


def pod_of(simulation: AuditSimulation) -> dict[str, Any]:
    assert simulation.job is not None
    return dict(simulation.job["spec"]["template"]["spec"])


def test_the_account_is_kept_on_the_claim_that_it_is_given() -> None:
    simulation = begun({"claimName": "accounts", "parquet": True})
    pod = pod_of(simulation)
    assert {"name": "output", "persistentVolumeClaim": {"claimName": "accounts"}} in pod["volumes"]
    assert pod["securityContext"]["fsGroup"] == 10001
    (container,) = pod["containers"]
    (mount,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "output"]
    assert {f"--output={mount}/{simulation.job_name}", "--parquet"} <= set(container["args"])
    assert simulation.status["report"] == f"accounts:{simulation.job_name}/report.html"


def test_where_the_cluster_chooses_the_group_of_a_claim_nobody_else_does() -> None:
    simulation = AuditSimulation(raw=audit_resource(output={"claimName": "accounts"}), home="shop", fs_group=None)
    simulation.settle()
    assert "fsGroup" not in pod_of(simulation)["securityContext"]


def test_the_account_is_kept_in_the_bucket_that_it_is_given() -> None:
    own = {"endpoint": "https://minio.example.com:9000", "region": "eu-1"}
    simulation = begun({"s3": {**S3, **own}})
    pod = pod_of(simulation)
    assert {"name": "output", "secret": {"secretName": "accounts-s3", "optional": True}} in pod["volumes"]
    assert "fsGroup" not in pod["securityContext"]
    (container,) = pod["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "output"]
    assert mount["readOnly"] is True
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == f"{mount['mountPath']}/credentials"
    assert {
        f"--output=s3a://accounts/some/folder/{simulation.job_name}",
        "--conf=spark.hadoop.fs.s3a.endpoint=https://minio.example.com:9000",
        "--conf=spark.hadoop.fs.s3a.path.style.access=true",
        "--conf=spark.hadoop.fs.s3a.endpoint.region=eu-1",
    } <= set(container["args"])
    assert "--parquet" not in container["args"]
    assert simulation.status["report"] == f"s3://accounts/some/folder/{simulation.job_name}/report.html"


def test_amazons_own_s3_needs_a_bucket_and_a_secret_only() -> None:
    simulation = begun({"s3": {**S3, "prefix": None}})
    (container,) = pod_of(simulation)["containers"]
    assert f"--output=s3a://accounts/{simulation.job_name}" in container["args"]
    assert not [word for word in container["args"] if word.startswith("--conf")]


@pytest.mark.parametrize("output", [{"claimName": "accounts"}, {"s3": S3}], ids=str)
def test_no_storage_of_the_operators_namespace_is_written_to_for_a_tenant(output: dict[str, Any]) -> None:
    site = AuditSite(
        namespace="shop",
        namespace_labels={},
        home=AUDIT_NAMESPACE,
        executors=True,
        spark_applications=False,
        topic="orders",
        connection=Key("ClusterKafkaConnection", "", "default"),
        grants=(Grant.model_validate({"namespaceSelector": {}, "topicPrefixes": [""]}),),
    )
    asked = parse("DelayedTopicAudit", audit_resource(output=output)).spec
    assert "must come with a KafkaConnection of namespace shop" in (refused(asked, site) or "")
    assert refused(asked, replace(site, home="shop", grants=None)) is None


def test_an_audit_that_may_not_be_has_its_verdict_at_once() -> None:
    simulation = AuditSimulation(frozen=Refused(message="not here"))
    simulation.settle()
    assert (simulation.job, simulation.status["verdict"], simulation.status["message"]) == (None, "Unknown", "not here")
    assert simulation.condition(Condition.COMPLETE).reason == Reason.NOT_ALLOWED


@pytest.mark.parametrize("output", [{"claimName": "accounts"}, {"s3": S3}], ids=str)
def test_executors_can_write_where_the_account_goes(output: dict[str, Any]) -> None:
    simulation = begun({**output, "parquet": True}, spark={"executors": 2})
    assert simulation.config_map is not None
    driver = pod_of(simulation)
    executor = json.loads(simulation.config_map["data"]["executor.json"])["spec"]
    assert [volume for volume in driver["volumes"] if volume["name"] == "output"] == executor["volumes"][1:]
    assert executor["securityContext"] == driver["securityContext"]
    (container,) = executor["containers"]
    assert container["volumeMounts"][1] in driver["containers"][0]["volumeMounts"]
    assert all(variable in driver["containers"][0]["env"] for variable in container["env"])


def test_executors_have_nothing_to_write_without_parquet_but_for_what_a_chain_carries() -> None:
    """Spark writes the index, so there is none if the executors cannot write."""

    def asked(window: AuditWindow) -> tuple[list[str], bool]:
        """Returns the names of the executors' volumes, and whether the job writes an index."""
        resource = audit_resource(output={"claimName": "accounts"}, spark={"executors": 2})
        simulation = AuditSimulation(raw=resource, home="shop", frozen=window)
        simulation.settle()
        assert simulation.config_map is not None
        executor = json.loads(simulation.config_map["data"]["executor.json"])
        volumes = [volume["name"] for volume in executor["spec"]["volumes"]]
        return volumes, "--index" in pod_of(simulation)["containers"][0]["args"]

    assert asked(WINDOW) == (["spark-local-dir-1"], False)
    assert asked(replace(WINDOW, carries=True)) == (["spark-local-dir-1", "output"], True)
