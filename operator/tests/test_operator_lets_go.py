"""Deleted resources go, in whatever order their parts are deleted, and an Event says what stays in Kafka."""

import itertools
import json
import os
from collections.abc import Sequence

import pytest
from delayed_topics_devcluster.api_server import ApiServer
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

OURS = {"kind": "KafkaConnection", "name": "ours"}
GONE_SECONDS = 180
PARTS = ("rolebinding", "kafkaconnection", "delayedtopic", "delayedtopicaudit")
ORDERS = tuple(itertools.permutations(PARTS))
"""The orders in which the parts can go. Every sixth begins with another part."""


def test_a_connection_and_its_topic_deleted_by_one_command_are_gone_with_all_that_is_in_kafka(
    harness: OperatorHarness,
) -> None:
    connection = harness.cluster_connection("shared")
    topic = harness.delayed_topic(connectionRef={"name": "shared"}, deletionPolicy="Delete")
    both = json.dumps({"apiVersion": "v1", "kind": "List", "items": [connection, topic]})
    harness.api.kubectl("apply", "-f", "-", text_in=both)
    harness.wait_until_served()
    assert harness.topics()
    harness.api.kubectl("delete", "-f", "-", f"--timeout={GONE_SECONDS}s", text_in=both)
    assert harness.topics() == {}
    assert harness.topic not in harness.registry().claims


def test_a_connection_that_is_used_stays_until_it_is_not_and_says_by_what(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection("shared"))
    harness.apply(connectionRef={"name": "shared"})
    harness.wait_until_served()
    harness.api.kubectl("delete", "clusterkafkaconnection", "shared", "--wait=false")

    def names_its_user() -> bool:
        (ready,) = harness.connection_status("shared")["conditions"]
        user = f"{harness.namespace}/{harness.topic}"
        return (ready["status"], ready["reason"]) == ("False", "Deleting") and user in ready["message"]

    harness.wait(names_its_user, "the connection says what uses it")
    harness.apply(connectionRef={"name": "shared"}, retryCap=7)
    harness.wait(lambda: harness.registry().layouts[harness.topic].retry_cap == 7, "what uses it is still followed")
    harness.api.apply(harness.delayed_topic("late", connectionRef={"name": "shared"}))
    harness.wait_for("Claimed", "Unknown", "ConnectionMissing", name="late")
    assert "shared is being deleted" in harness.condition("Claimed", "late")["message"]
    harness.delete("late")
    harness.delete()
    harness.wait(lambda: harness.api.get("ClusterKafkaConnection", "shared") is None, "the connection is gone")


@pytest.mark.slow
def test_a_connection_that_nothing_uses_goes_at_once_and_without_an_operator(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection("shared"))
    harness.apply(connectionRef={"name": "shared"}, deletionPolicy="Delete")
    harness.wait_until_served()
    held = (harness.api.get("ClusterKafkaConnection", "shared") or {})["metadata"].get("finalizers")
    assert held == ["delayedtopics.io/finalizer"]
    harness.delete()

    def free() -> bool:
        return not (harness.api.get("ClusterKafkaConnection", "shared") or {})["metadata"].get("finalizers")

    harness.wait(free, "nothing holds the connection any more")
    harness.operator.stop()
    harness.api.kubectl("delete", "clusterkafkaconnection", "shared", "--timeout=60s")


@pytest.mark.slow
def test_a_connection_that_leads_to_another_kafka_goes_although_it_is_used(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection("shared"))
    harness.apply(connectionRef={"name": "shared"})
    harness.wait_until_served()
    with Broker() as other:
        harness.api.apply(harness.cluster_connection("shared", bootstrap=other.bootstrap))
        harness.wait_for("Claimed", "Unknown", "ClusterChanged")
        harness.api.kubectl("delete", "clusterkafkaconnection", "shared", "--timeout=60s")
        harness.api.apply(harness.cluster_connection("shared", bootstrap=other.bootstrap))
        harness.wait_until_served()


@pytest.mark.slow
def test_a_namespace_that_is_deleted_goes_in_whatever_order_its_parts_go(
    api_server: ApiServer, harness: OperatorHarness
) -> None:
    """The operator has the rights of the chart, which go early. In one of the namespaces, Kubernetes deletes the parts.

    The environment variable ORDERS limits the number of orders that are tried.
    """
    several = int(os.environ.get("ORDERS", len(ORDERS)))
    orders: Sequence[tuple[str, ...]] = (*ORDERS[:: len(ORDERS) // several], ())
    homes = {f"{harness.namespace}-{n}": order for n, order in enumerate(orders)}
    for home in homes:
        api_server.kubectl("create", "namespace", home)
    harness.rights_are_taken = True  # the rights go with the namespaces
    harness.replace_operator(tenants=tuple(homes))
    for home in homes:
        harness.api.apply(*everything(harness, home))
    for home in homes:
        for name in ("kept", "gone"):
            harness.wait_until_served(name, home)
    harness.wait(lambda: all(harness.api.list_all("Job", home) for home in homes), "the audits run")
    for home, order in homes.items():
        for part in order:
            api_server.kubectl("delete", part, "--all", f"--namespace={home}", "--wait=false")
    api_server.kubectl("delete", "namespace", *homes, f"--timeout={GONE_SECONDS}s")
    for home in homes:
        assert (len(harness.topics(f"{home}.kept")), harness.topics(f"{home}.gone")) == (4, {}), home
    messages = [e["message"] for e in harness.api.list_all("Event", "default") if e["involvedObject"]["name"] == home]
    assert any(f"{home}.kept" in message and "stay" in message for message in messages), messages


def everything(harness: OperatorHarness, home: str) -> list[Manifest]:
    """Returns a connection of the namespace, a topic that stays in Kafka, one that does not, and an audit whose Job never ends."""
    connection = {**harness.cluster_connection(), "kind": "KafkaConnection"}
    connection |= {"metadata": {"name": "ours", "namespace": home}}
    connection["spec"] = {"bootstrapServers": [harness.broker.bootstrap]}
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
            harness.delayed_topic(
                name, namespace=home, topic=f"{home}.{name}", connectionRef=OURS, deletionPolicy=policy
            )
            for name, policy in topics.items()
        ),
        audit,
    ]


def test_a_resource_whose_namespace_took_its_rights_from_the_operator_goes_and_its_topics_stay(
    harness: OperatorHarness,
) -> None:
    """Kubernetes removes the workers and the objects of the audit, which belong to the resources."""
    harness.rights_are_taken = True
    harness.replace_operator("--gone-after-seconds=6", tenants=[harness.namespace])
    connection, _, gone, audit = everything(harness, harness.namespace)
    harness.api.apply(connection, gone, audit)
    harness.wait_until_served("gone")
    harness.wait(lambda: bool(harness.api.list_all("Job", harness.namespace)), "the audit runs")
    harness.api.kubectl("delete", "rolebinding", "--all", f"--namespace={harness.namespace}")
    harness.wait_for("Ready", "False", "KubernetesRefused", name="gone")
    harness.api.kubectl(
        "delete", "dtaudit", "endless", f"--namespace={harness.namespace}", f"--timeout={GONE_SECONDS}s"
    )
    harness.delete("gone")
    harness.wait_event("KubernetesRefused", "is forbidden: User", "gone.delays", "deletionPolicy Retain")
    assert len(harness.topics(f"{harness.namespace}.gone")) == 4
    harness.wait(lambda: harness.stateful_set("gone") is None, "the workers are gone")
    harness.wait(lambda: not harness.api.list_all("Job", harness.namespace), "the audit's Job is gone")
