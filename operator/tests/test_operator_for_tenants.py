"""A tenant's own KafkaConnection: all objects are in the tenant's namespace, which has let the operator in."""

import base64
import json
from collections.abc import Iterator

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.audits.reconcile.manifests import job_name, window_name
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audits import apply_audit, child, status
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api

OWN = {"kind": "KafkaConnection", "name": "mine"}


@pytest.fixture
def tenant(api: KubeApi, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness whose namespace has let the operator in."""
    made = OperatorHarness(api, broker, OperatorProcess(api))
    made.operator = OperatorProcess(api, "--resync-seconds=3", f"--tenant-namespace={made.namespace}")
    with made.opened(let_in=True):
        yield made


def connection(harness: OperatorHarness, **spec: object) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "KafkaConnection",
        "metadata": {"name": "mine", "namespace": harness.namespace},
        "spec": {"bootstrapServers": [harness.broker.bootstrap], **spec},
    }


def test_workers_and_credentials_live_beside_the_resource_and_belong_to_it(tenant: OperatorHarness) -> None:
    tenant.api.apply(connection(tenant))
    tenant.apply(connectionRef=OWN)
    tenant.wait_until_served()
    workers = tenant.stateful_set()
    assert workers is not None
    assert (workers["metadata"]["namespace"], workers["metadata"]["name"]) == (
        tenant.namespace,
        f"{tenant.topic}-delay",
    )
    assert workers["metadata"]["ownerReferences"][0]["name"] == tenant.topic
    assert "serviceAccountName" not in workers["spec"]["template"]["spec"]
    assert tenant.api.get("Secret", f"{tenant.topic}-delay-connection", tenant.namespace) is not None
    assert tenant.api.list_all("StatefulSet", SYSTEM_NAMESPACE) == []


@pytest.mark.slow
def test_a_namespace_with_its_own_connection_is_deleted_although_its_credentials_go_first(
    tenant: OperatorHarness,
) -> None:
    tenant.api.apply(connection(tenant))
    tenant.apply(connectionRef=OWN, deletionPolicy="Delete")
    tenant.wait_until_served()
    tenant.api.kubectl("delete", "kafkaconnection", "mine", f"--namespace={tenant.namespace}", "--wait=false")
    tenant.api.kubectl("delete", "namespace", tenant.namespace, "--timeout=180s")
    assert tenant.resource() is None
    assert tenant.topics() == {}


@pytest.mark.usefixtures("spark_applications")
@pytest.mark.parametrize("kind", ["Job", "SparkApplication"])
def test_an_audit_of_a_topic_that_shares_workers_has_the_connection_that_it_mounts(
    tenant: OperatorHarness, kind: str
) -> None:
    tenant.replace_operator("--audit-executors", "--audit-spark-applications", tenants=[tenant.namespace])
    tenant.api.apply(connection(tenant, sharedWorkers={"replicas": 1}))
    tenant.apply(connectionRef=OWN)
    tenant.wait_for("TopicsReady", "True")
    apply_audit(tenant, spark={"mode": kind, "executors": int(kind != "Job")})
    tenant.wait(lambda: child(tenant, kind, "jobName") is not None, "the audit has begun", seen=lambda: status(tenant))
    spec = (child(tenant, kind, "jobName") or {})["spec"]
    pod = (spec if kind == "Job" else spec["driver"])["template"]["spec"]
    (mounted,) = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    secret = tenant.api.get("Secret", mounted, tenant.namespace)
    assert secret is not None, mounted
    assert base64.b64decode(secret["data"]["bootstrap-servers"]).decode() == tenant.broker.bootstrap
    tenant.api.kubectl("delete", "dtaudit", "first", f"--namespace={tenant.namespace}", "--timeout=180s")
    tenant.wait(
        lambda: tenant.api.get("Secret", mounted, tenant.namespace) is None, "the Secret of the audit is deleted"
    )


CLUSTER_WIDE = {"kind": "ClusterKafkaConnection", "name": "default"}


def forged(kind: str, name: str, namespace: str) -> Manifest:
    """Returns an object made by somebody who knows how the operator names the objects of an audit. The Job never gets a pod."""
    metadata = {"name": name, "namespace": namespace}
    if kind == "ConfigMap":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {}}
    container = {"name": "audit", "image": "audit:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"suspend": True, "activeDeadlineSeconds": 600, "template": template}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(("kind", "field"), [("ConfigMap", "windowConfigMap"), ("Job", "jobName")])
def test_no_audit_brings_the_credentials_of_a_cluster_connection_into_a_tenants_namespace(
    tenant: OperatorHarness, kind: str, field: str
) -> None:
    tenant.api.apply(tenant.cluster_connection(allow=[]))
    audit = {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": "first", "namespace": tenant.namespace, "finalizers": [FINALIZER]},
        "spec": {"delayedTopicRef": {"name": tenant.topic}},
    }
    tenant.apply(connectionRef={"kind": "KafkaConnection", "name": "nowhere"})
    tenant.api.apply(audit)
    uid = (tenant.api.get("DelayedTopicAudit", "first", tenant.namespace) or {})["metadata"]["uid"]
    job = job_name("first", uid)
    tenant.api.apply(forged(kind, window_name(job) if kind == "ConfigMap" else job, tenant.namespace))
    tenant.wait(lambda: field in status(tenant), "the operator has found what looks like its own")
    tenant.delete()
    tenant.apply(connectionRef=CLUSTER_WIDE)

    def stolen() -> bool:
        secrets = tenant.api.list_all("Secret", tenant.namespace)
        data = (base64.b64decode(value).decode() for secret in secrets for value in (secret.get("data") or {}).values())
        return tenant.broker.bootstrap in data

    tenant.wait(lambda: stolen() or "verdict" in status(tenant), "the audit has ended", seen=lambda: status(tenant))
    assert not stolen()
    assert "was deleted and created again while it was audited" in status(tenant)["message"]
    assert status(tenant)["verdict"] == "Unknown"


def test_a_namespace_that_has_not_let_the_operator_in_is_told_how_to(harness: OperatorHarness) -> None:
    harness.api.apply(connection(harness))
    harness.apply(connectionRef=OWN)
    harness.wait_for("Ready", "False", "NotAllowed")
    assert "tenantNamespaces" in harness.condition("Ready")["message"]
    assert harness.topics() == {}


def test_missing_credentials_are_named_until_they_are_there(tenant: OperatorHarness) -> None:
    tenant.api.apply(connection(tenant, sasl={"secretRef": {"name": "login"}}))
    tenant.apply(connectionRef=OWN)
    tenant.wait_for("Ready", "False", "CredentialsMissing")
    assert f"Secret {tenant.namespace}/login does not exist" in tenant.condition("Ready")["message"]
    tenant.api.apply(connection(tenant))
    tenant.wait_until_served()


@pytest.fixture
def labelled(api: KubeApi, broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness whose operator recognizes tenants by the label `own-kafka`, and has rights in the namespace of this test."""
    made = OperatorHarness(api, broker, OperatorProcess(api))
    selector = json.dumps({"matchLabels": {"own-kafka": made.namespace}})
    made.operator = OperatorProcess(api, "--resync-seconds=600", f"--tenant-selector={selector}")
    with made.opened(let_in=True):
        yield made


def ready(harness: OperatorHarness) -> Manifest:
    """Returns the condition Ready of the tenant's connection."""
    found = harness.api.get("KafkaConnection", "mine", harness.namespace)
    assert found is not None
    return next(condition for condition in found["status"]["conditions"] if condition["type"] == "Ready")


@pytest.mark.slow
def test_a_namespace_that_gets_the_label_is_served_at_once_and_left_alone_when_it_has_lost_it(
    labelled: OperatorHarness,
) -> None:
    harness = labelled
    harness.api.apply(connection(harness))
    harness.apply(connectionRef=OWN)
    harness.wait_for("Ready", "False", "NotAllowed")
    assert "tenantNamespaceSelector" in harness.condition("Ready")["message"]
    assert harness.topics() == {}
    harness.api.kubectl("label", "namespace", harness.namespace, f"own-kafka={harness.namespace}")
    harness.wait_until_served()
    workers = harness.stateful_set()
    assert workers is not None
    name = workers["metadata"]["name"]
    harness.patch(
        "StatefulSet", name, {"spec": {"replicas": 0}}, namespace=harness.namespace
    )  # the operator watches the objects in this namespace
    harness.wait(
        lambda: (harness.stateful_set() or {})["spec"]["replicas"] == 1, "what was changed by hand is repaired"
    )
    harness.api.kubectl("label", "namespace", harness.namespace, "own-kafka-")
    harness.wait_for("Ready", "False", "NotAllowed")
    assert harness.stateful_set() is not None
    harness.wait(lambda: ready(harness)["reason"] == "NotAllowed", "the connection is not used any more")
    harness.api.kubectl("label", "namespace", harness.namespace, f"own-kafka={harness.namespace}")
    harness.wait_for("TopicsReady", "True")
    harness.wait(lambda: harness.condition("Ready").get("reason") != "NotAllowed", "the resource is served again")
