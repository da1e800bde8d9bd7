"""A tenant's own KafkaConnection: everything lives in the tenant's namespace, where the operator is let in."""

import json
from collections.abc import Iterator

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Manifest, Scene

pytestmark = pytest.mark.api

OWN = {"kind": "KafkaConnection", "name": "mine"}


@pytest.fixture
def tenant(api: KubeApi, broker: Broker) -> Iterator[Scene]:
    """A scene whose namespace has let the operator in."""
    made = Scene(api, broker, OperatorProcess(api))
    made.operator = OperatorProcess(api, "--resync-seconds=3", f"--tenant-namespace={made.namespace}")
    try:
        made.open(let_in=True)
        yield made
    finally:
        made.close()


def connection(scene: Scene, **spec: object) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "KafkaConnection",
        "metadata": {"name": "mine", "namespace": scene.namespace},
        "spec": {"bootstrapServers": [scene.broker.bootstrap], **spec},
    }


def test_workers_and_credentials_live_beside_the_resource_and_belong_to_it(tenant: Scene) -> None:
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
def test_a_namespace_with_its_own_connection_is_deleted_although_its_credentials_go_first(tenant: Scene) -> None:
    tenant.api.apply(connection(tenant))
    tenant.apply(connectionRef=OWN, deletionPolicy="Delete")
    tenant.wait_until_served()
    tenant.api.kubectl("delete", "kafkaconnection", "mine", f"--namespace={tenant.namespace}", "--wait=false")
    tenant.api.kubectl("delete", "namespace", tenant.namespace, "--timeout=180s")
    assert tenant.resource() is None
    assert tenant.topics() == {}


def test_a_namespace_that_has_not_let_the_operator_in_is_told_how_to(scene: Scene) -> None:
    scene.api.apply(connection(scene))
    scene.apply(connectionRef=OWN)
    scene.wait_for("Ready", "False", "NotAllowed")
    assert "tenantNamespaces" in scene.condition("Ready")["message"]
    assert scene.topics() == {}


def test_missing_credentials_are_named_until_they_are_there(tenant: Scene) -> None:
    tenant.api.apply(connection(tenant, sasl={"secretRef": {"name": "login"}}))
    tenant.apply(connectionRef=OWN)
    tenant.wait_for("Ready", "False", "CredentialsMissing")
    assert f"Secret {tenant.namespace}/login does not exist" in tenant.condition("Ready")["message"]
    tenant.api.apply(connection(tenant))
    tenant.wait_until_served()


@pytest.fixture
def labelled(api: KubeApi, broker: Broker) -> Iterator[Scene]:
    """A scene whose operator knows tenants by the label `own-kafka`, and has rights in the namespace of this test."""
    made = Scene(api, broker, OperatorProcess(api))
    selector = json.dumps({"matchLabels": {"own-kafka": made.namespace}})
    made.operator = OperatorProcess(api, "--resync-seconds=600", f"--tenant-selector={selector}")
    try:
        made.open(let_in=True)
        yield made
    finally:
        made.close()


def ready(scene: Scene) -> Manifest:
    """The condition of its connection."""
    found = scene.api.get("KafkaConnection", "mine", scene.namespace)
    assert found is not None
    return next(condition for condition in found["status"]["conditions"] if condition["type"] == "Ready")


@pytest.mark.slow
def test_a_namespace_that_gets_the_label_is_served_at_once_and_left_alone_when_it_has_lost_it(labelled: Scene) -> None:
    scene = labelled
    scene.api.apply(connection(scene))
    scene.apply(connectionRef=OWN)
    scene.wait_for("Ready", "False", "NotAllowed")
    assert "tenantNamespaceSelector" in scene.condition("Ready")["message"]
    assert scene.topics() == {}
    scene.api.kubectl("label", "namespace", scene.namespace, f"own-kafka={scene.namespace}")
    scene.wait_until_served()
    workers = scene.stateful_set()
    assert workers is not None
    name = workers["metadata"]["name"]
    scene.patch("StatefulSet", name, {"spec": {"replicas": 0}}, namespace=scene.namespace)  # its objects are watched
    scene.wait(lambda: (scene.stateful_set() or {})["spec"]["replicas"] == 1, "what was changed by hand is repaired")
    scene.api.kubectl("label", "namespace", scene.namespace, "own-kafka-")
    scene.wait_for("Ready", "False", "NotAllowed")
    assert scene.stateful_set() is not None
    scene.wait(lambda: ready(scene)["reason"] == "NotAllowed", "its connection is not used any more")
    scene.api.kubectl("label", "namespace", scene.namespace, f"own-kafka={scene.namespace}")
    scene.wait_for("TopicsReady", "True")
    scene.wait(lambda: scene.condition("Ready").get("reason") != "NotAllowed", "it is served again")
