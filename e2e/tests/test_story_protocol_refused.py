"""A resource requests a rebalance protocol that its Kafka lacks: records are still released, and a condition reports it."""

import json
from collections.abc import Iterator

import pytest
from delayed_topics_e2e.tenant import Install, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("own_cluster")]

CLASSIC_ONLY = "classic-only"
RECORDS = 300


def test_where_kafka_has_not_the_newer_protocol_the_workers_go_on_with_the_older_one(
    tenant: Tenant, classic_only: None
) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1], partitions=4, workers={"replicas": 3}).apply().wait_ready()
    orders.apply(rebalance={"protocol": "Consumer"}, workers={"replicas": 3})
    orders.kafka.produce(orders.topic, [(b"k%d" % (i % 31), b"%d" % i, ()) for i in range(RECORDS)])

    ready = orders.wait_condition("Ready", "True", reason="ProtocolRefused")

    assert "group.coordinator.rebalance.protocols" in ready["message"]
    assert (orders.status["rebalance"]["protocol"], orders.status["rebalance"]["memberCount"]) == ("Classic", 3)
    assert "ProtocolRefused" in {event["reason"] for event in orders.kube.events(tenant.namespace, about="orders")}
    with orders.checker() as checker:
        account = checker.settled(produced=RECORDS)
        assert account.clean, account


@pytest.fixture
def classic_only(install: Install) -> Iterator[None]:
    """Makes Kafka refuse the newer protocol, as before 4.0, until the story is over."""
    settings = {"broker.properties": "group.coordinator.rebalance.protocols=classic\n"}
    meta = {"name": CLASSIC_ONLY, "namespace": install.namespace}
    install.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": settings})
    mount = {"name": CLASSIC_ONLY, "mountPath": "/etc/kafka/broker.properties", "subPath": "broker.properties"}
    restart(install, mount, {"name": CLASSIC_ONLY, "configMap": {"name": CLASSIC_ONLY}})
    try:
        yield
    finally:
        gone = {"$patch": "delete"}
        restart(install, {**gone, "mountPath": mount["mountPath"]}, {**gone, "name": CLASSIC_ONLY})
        install.kube.delete("configmap", CLASSIC_ONLY, namespace=install.namespace)


def restart(install: Install, mount: dict[str, str], volume: dict[str, object]) -> None:
    """Restarts Kafka with this volume and mount added to its pod or removed from it."""
    name = f"{install.release}-kafka"
    pod = {"containers": [{"name": "kafka", "volumeMounts": [mount]}], "volumes": [volume]}
    patch = json.dumps({"spec": {"template": {"spec": pod}}})
    install.kube.kubectl("patch", "statefulset", name, "-n", install.namespace, "-p", patch)
    until(
        lambda: install.kube.get("statefulset", name, namespace=install.namespace) or {},
        what="Kafka runs again",
        enough=lambda found: (
            found["status"].get("observedGeneration") == found["metadata"]["generation"]
            and found["status"].get("currentRevision") == found["status"].get("updateRevision")
            and found["status"].get("readyReplicas", 0) == 1
        ),
    )
