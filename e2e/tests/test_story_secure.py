"""A team has a KafkaConnection of its own, with TLS, SASL/SCRAM, Secrets and workers in its own namespace."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from delayed_topics_e2e.tenant import API_VERSION, Install, Tenant, Tenants, set_tenant_namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_cluster")]

CONNECTION = {"kind": "KafkaConnection", "name": "ours"}


def test_with_tls_and_scram_a_wrong_password_is_said_and_the_right_one_serves_and_is_told_to_nobody(
    secure_tenant: Tenant, credentials: dict[str, str]
) -> None:
    tenant, kube = secure_tenant, secure_tenant.install.kube
    login(tenant, "wrong")
    orders = tenant.declare("orders", workers_in=tenant.namespace, connectionRef=CONNECTION).apply()
    orders.wait_condition("Ready", "False", reason="KafkaRefused")
    login(tenant, credentials["password"])
    orders.wait_ready()
    assert orders.pods(), "no workers are in the tenant's namespace"
    kube.wait("kafkaconnection", "ours", namespace=tenant.namespace, until_it="condition=Ready", timeout_seconds=180)
    with orders.checker() as checker:
        orders.kafka.produce(orders.topic, [(b"k%d" % i, b"%d" % i, ()) for i in range(200)])
        account = checker.settled(produced=200)
        assert account.clean, account

    kinds = ("pods", "statefulsets", "configmaps", "events", "delayedtopics", "kafkaconnections", "jobs", "services")
    texts = [kube.kubectl("get", kind, "-n", tenant.namespace, "-o", "yaml") for kind in kinds]
    texts += [kube.logs(p["metadata"]["name"], namespace=tenant.namespace, lines=2000) for p in orders.pods()]
    texts.append(tenant.install.operator_log(lines=5000))
    encoded = base64.b64encode(credentials["password"].encode()).decode()
    assert not [text for text in texts if credentials["password"] in text or encoded in text]

    orders.delete()
    assert not orders.kube.list("secrets", namespace=tenant.namespace, labels=orders.labels)


def test_without_a_role_binding_the_operator_does_not_look_into_a_namespace(
    start_tenant: Tenants, credentials: dict[str, str]
) -> None:
    tenant = start_tenant()
    connect(tenant, credentials)
    orders = tenant.declare("orders", workers_in=tenant.namespace, connectionRef=CONNECTION).apply()
    refused = orders.wait_condition("Ready", "False", reason="NotAllowed")
    assert "tenantNamespaces" in refused["message"]


@pytest.fixture
def credentials(install: Install) -> dict[str, str]:
    """The credentials for the secure listener of the evaluation Kafka."""
    secret = install.kube.get("secret", f"{install.release}-kafka-user-operator", namespace=install.namespace)
    if secret is None:
        pytest.skip("the evaluation Kafka was installed without evaluationKafka.secureListener")
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


@pytest.fixture
def secure_tenant(install: Install, start_tenant: Tenants, credentials: dict[str, str]) -> Iterator[Tenant]:
    """A tenant with a connection of its own, in a namespace that is one of the chart's tenantNamespaces."""
    tenant = start_tenant()
    set_tenant_namespaces(install, [tenant.namespace])
    connect(tenant, credentials)
    yield tenant
    tenant.request_deletion()
    tenant.finish_deletion()
    set_tenant_namespaces(install, [])


def login(tenant: Tenant, password: str) -> None:
    body = {"stringData": {"password": password}}
    tenant.install.kube.patch("secret", "kafka-login", body, namespace=tenant.namespace)


def connect(tenant: Tenant, credentials: dict[str, str]) -> None:
    install = tenant.install
    server = f"{install.release}-kafka.{install.namespace}.svc:9093"
    meta = {"namespace": tenant.namespace}
    manifests: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **meta}, "stringData": data}
        for name, data in (
            ("kafka-ca", {"ca.crt": credentials["ca.crt"]}),
            ("kafka-login", {"username": credentials["username"], "password": credentials["password"]}),
        )
    ]
    spec = {
        "bootstrapServers": [server],
        "tls": {"caSecretRef": {"name": "kafka-ca"}},
        "sasl": {"mechanism": "SCRAM-SHA-512", "secretRef": {"name": "kafka-login"}},
    }
    manifests.append(
        {"apiVersion": API_VERSION, "kind": "KafkaConnection", "metadata": {"name": "ours", **meta}, "spec": spec}
    )
    install.kube.apply(*manifests)
