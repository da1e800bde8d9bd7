"""What the API server refuses the operator stands on the resource, under a reason of its own, and in a Warning."""

import json
import re

import pytest
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart
from delayed_topics_operator_testing.scene import Manifest, Scene

pytestmark = pytest.mark.api

OWN = {"kind": "KafkaConnection", "name": "mine"}


def kafka_connection(scene: Scene) -> Manifest:
    connection = {**scene.cluster_connection(), "kind": "KafkaConnection"}
    connection["metadata"] = {"name": "mine", "namespace": scene.namespace}
    connection["spec"] = {"bootstrapServers": [scene.broker.bootstrap]}
    return connection


def audit(scene: Scene) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": "first", "namespace": scene.namespace},
        "spec": {"delayedTopicRef": {"name": scene.topic}},
    }


def complete(scene: Scene) -> Manifest:
    found = (scene.api.get("DelayedTopicAudit", "first", scene.namespace) or {}).get("status", {}).get("conditions", [])
    return next((c for c in found if c["type"] == "Complete"), {})


@pytest.mark.slow
def test_rights_that_were_taken_away_are_named_until_they_are_back(scene: Scene) -> None:
    scene.rights_are_taken = True
    scene.replace_operator(tenants=[scene.namespace])
    scene.api.apply(kafka_connection(scene))
    scene.apply(connectionRef=OWN)
    scene.wait_until_served()
    scene.api.apply(audit(scene))
    scene.wait(lambda: complete(scene).get("reason") == "AuditRunning", "the audit runs")

    scene.api.kubectl("delete", "rolebinding", "--all", f"--namespace={scene.namespace}")
    scene.wait_for("Ready", "False", "KubernetesRefused")
    message = scene.condition("Ready")["message"]
    assert "is forbidden: User" in message
    assert f'in the namespace "{scene.namespace}"' in message
    scene.wait_event("KubernetesRefused", "is forbidden: User")
    scene.wait(lambda: complete(scene)["reason"] == "KubernetesRefused", "the audit says so, too")
    scene.wait_event("KubernetesRefused", 'cannot get resource "configmaps"')

    give_the_rights_of_the_chart(scene.api.server, tenants=[scene.namespace])
    scene.wait(lambda: scene.condition("Ready")["reason"].startswith("Workers"), "it goes on")
    scene.wait(lambda: complete(scene)["reason"] == "AuditRunning", "the audit goes on")


def test_a_template_that_no_pod_can_have_is_an_invalid_spec(scene: Scene) -> None:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}}
    scene.apply(workers={"template": {"resources": resources}})
    for condition in ("WorkersReady", "Ready"):
        scene.wait_for(condition, "False", "SpecInvalid")
    assert "must be less than or equal to memory limit" in scene.condition("Ready")["message"]
    scene.wait_event("SpecInvalid", "must be less than or equal to memory limit")
    scene.apply()
    scene.wait_until_served()


@pytest.mark.slow
def test_a_quota_without_room_for_the_workers_is_said_until_it_has(scene: Scene) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": SYSTEM_NAMESPACE}}
    spec = {"hard": {"count/statefulsets.apps": "0"}}
    scene.api.kubectl("apply", "-f", "-", text_in=json.dumps({**quota, "spec": spec}))
    where = ("quota", "full", f"--namespace={SYSTEM_NAMESPACE}")
    try:
        scene.api.kubectl("wait", *where, "--for=jsonpath={.status.hard}", "--timeout=180s")
        scene.apply()
        for condition in ("WorkersReady", "Ready"):
            scene.wait_for(condition, "False", "QuotaExceeded")
        assert "exceeded quota: full" in scene.condition("Ready")["message"]
        scene.wait_event("QuotaExceeded", "exceeded quota: full")
    finally:
        scene.api.kubectl("delete", *where)
    scene.wait_until_served()


@pytest.mark.slow
def test_a_connection_tells_by_events_what_keeps_it_from_kafka_and_that_it_is_back(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection("moody", bootstrap="127.0.0.1:1"))
    events_of_the_cluster = "default"
    scene.wait_event("KafkaUnreachable", "127.0.0.1:1", namespace=events_of_the_cluster)
    scene.api.apply(scene.cluster_connection("moody"))
    described = ""

    def back() -> bool:
        nonlocal described
        described = scene.api.kubectl("describe", "clusterkafkaconnection", "moody")
        return bool(re.search(r"Warning\s+KafkaUnreachable.*Normal\s+Ready\s.*brokers answers", described, re.DOTALL))

    scene.wait(back, "kubectl describe shows both", seen=lambda: described)


def test_a_secret_that_the_operator_may_not_read_is_no_secret_that_is_missing(scene: Scene) -> None:
    scene.rights_are_taken = True
    scene.replace_operator(tenants=[scene.namespace])
    connection = kafka_connection(scene)
    connection["spec"]["sasl"] = {"secretRef": {"name": "login"}}
    scene.api.kubectl("delete", "rolebinding", "--all", f"--namespace={scene.namespace}")
    scene.api.apply(connection)
    scene.wait_event("KubernetesRefused", 'cannot get resource "secrets"')
    give_the_rights_of_the_chart(scene.api.server, tenants=[scene.namespace])
    scene.wait_event("CredentialsMissing", f"Secret {scene.namespace}/login does not exist")
