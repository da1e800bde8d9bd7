"""What is deleted goes, in whatever order its parts are deleted, and says what stays in Kafka."""

import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api

Manifest = dict[str, Any]
OURS = {"kind": "KafkaConnection", "name": "ours"}
GONE_SECONDS = 180
PARTS = ("rolebinding", "kafkaconnection", "delayedtopic", "delayedtopicaudit")
ORDERS = tuple(itertools.permutations(PARTS))
"""In which they can go. Every sixth begins with another part."""


def test_a_connection_and_its_topic_deleted_by_one_command_are_gone_with_all_that_is_in_kafka(scene: Scene) -> None:
    connection = scene.cluster_connection("shared")
    topic = scene.delayed_topic(connectionRef={"name": "shared"}, deletionPolicy="Delete")
    both = json.dumps({"apiVersion": "v1", "kind": "List", "items": [connection, topic]})
    scene.api.kubectl("apply", "-f", "-", text_in=both)
    scene.wait_until_served()
    assert scene.topics()
    scene.api.kubectl("delete", "-f", "-", f"--timeout={GONE_SECONDS}s", text_in=both)
    assert scene.topics() == {}
    assert scene.topic not in scene.registry().claims


def test_a_connection_that_is_used_stays_until_it_is_not_and_says_by_what(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection("shared"))
    scene.apply(connectionRef={"name": "shared"})
    scene.wait_until_served()
    scene.api.kubectl("delete", "clusterkafkaconnection", "shared", "--wait=false")

    def said() -> bool:
        (ready,) = scene.connection_status("shared")["conditions"]
        user = f"{scene.namespace}/{scene.topic}"
        return (ready["status"], ready["reason"]) == ("False", "Deleting") and user in ready["message"]

    scene.wait(said, "the connection says what uses it")
    scene.apply(connectionRef={"name": "shared"}, retryCap=7)
    scene.wait(lambda: scene.registry().layouts[scene.topic].retry_cap == 7, "what uses it is still followed")
    scene.api.apply(scene.delayed_topic("late", connectionRef={"name": "shared"}))
    scene.wait_for("Claimed", "Unknown", "ConnectionMissing", name="late")
    assert "shared is being deleted" in scene.condition("Claimed", "late")["message"]
    scene.delete("late")
    scene.delete()
    scene.wait(lambda: scene.api.get("ClusterKafkaConnection", "shared") is None, "the connection is gone")


@pytest.mark.slow
def test_a_connection_that_nothing_uses_goes_at_once_and_without_an_operator(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection("shared"))
    scene.apply(connectionRef={"name": "shared"}, deletionPolicy="Delete")
    scene.wait_until_served()
    held = (scene.api.get("ClusterKafkaConnection", "shared") or {})["metadata"].get("finalizers")
    assert held == ["delayedtopics.io/finalizer"]
    scene.delete()

    def free() -> bool:
        return not (scene.api.get("ClusterKafkaConnection", "shared") or {})["metadata"].get("finalizers")

    scene.wait(free, "nothing holds the connection any more")
    scene.operator.stop()
    scene.api.kubectl("delete", "clusterkafkaconnection", "shared", "--timeout=60s")


@pytest.mark.slow
def test_a_connection_that_leads_to_another_kafka_goes_although_it_is_used(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection("shared"))
    scene.apply(connectionRef={"name": "shared"})
    scene.wait_until_served()
    with Broker() as other:
        scene.api.apply(scene.cluster_connection("shared", bootstrap=other.bootstrap))
        scene.wait_for("Claimed", "Unknown", "ClusterChanged")
        scene.api.kubectl("delete", "clusterkafkaconnection", "shared", "--timeout=60s")
        scene.api.apply(scene.cluster_connection("shared", bootstrap=other.bootstrap))
        scene.wait_until_served()


@pytest.mark.slow
def test_a_namespace_that_is_deleted_goes_in_whatever_order_its_parts_go(api_server: ApiServer, scene: Scene) -> None:
    """With the rights that the chart gives, which go early. In one it is Kubernetes that deletes the parts. ORDERS=4: only so many."""
    several = int(os.environ.get("ORDERS", len(ORDERS)))
    orders: Sequence[tuple[str, ...]] = (*ORDERS[:: len(ORDERS) // several], ())
    homes = {f"{scene.namespace}-{n}": order for n, order in enumerate(orders)}
    for home in homes:
        api_server.kubectl("create", "namespace", home)
    scene.rights_are_taken = True  # with the namespaces
    scene.replace_operator(tenants=tuple(homes))
    for home in homes:
        scene.api.apply(*everything(scene, home))
    for home in homes:
        for name in ("kept", "gone"):
            scene.wait_until_served(name, home)
    scene.wait(lambda: all(scene.api.list_all("Job", home) for home in homes), "the audits run")
    for home, order in homes.items():
        for part in order:
            api_server.kubectl("delete", part, "--all", f"--namespace={home}", "--wait=false")
    api_server.kubectl("delete", "namespace", *homes, f"--timeout={GONE_SECONDS}s")
    for home in homes:
        assert (len(scene.topics(f"{home}.kept")), scene.topics(f"{home}.gone")) == (4, {}), home
    told = [e["message"] for e in scene.api.list_all("Event", "default") if e["involvedObject"]["name"] == home]
    assert any(f"{home}.kept" in message and "stay" in message for message in told), told


def everything(scene: Scene, home: str) -> list[Manifest]:
    """A connection of the namespace's own, a topic that stays in Kafka, one that doesn't, and an audit whose Job never ends."""
    connection = {**scene.cluster_connection(), "kind": "KafkaConnection"}
    connection |= {"metadata": {"name": "ours", "namespace": home}}
    connection["spec"] = {"bootstrapServers": [scene.broker.bootstrap]}
    audit = {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": "endless", "namespace": home},
        "spec": {"delayedTopicRef": {"name": "gone"}},
    }
    topics = {"kept": "Retain", "gone": "Delete"}
    return [
        connection,
        *(
            scene.delayed_topic(name, namespace=home, topic=f"{home}.{name}", connectionRef=OURS, deletionPolicy=policy)
            for name, policy in topics.items()
        ),
        audit,
    ]
