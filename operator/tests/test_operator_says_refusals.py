"""What the API server refuses the operator is reported on the resource, under a reason of its own, and in a Warning."""

import json
import re

import pytest
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.rights import give_the_rights_of_the_chart

pytestmark = pytest.mark.api

OWN = {"kind": "KafkaConnection", "name": "mine"}


def kafka_connection(harness: OperatorHarness) -> Manifest:
    connection = {**harness.cluster_connection(), "kind": "KafkaConnection"}
    connection["metadata"] = {"name": "mine", "namespace": harness.namespace}
    connection["spec"] = {"bootstrapServers": [harness.broker.bootstrap]}
    return connection


def audit(harness: OperatorHarness) -> Manifest:
    return {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopicAudit",
        "metadata": {"name": "first", "namespace": harness.namespace},
        "spec": {"delayedTopicRef": {"name": harness.topic}},
    }


def complete(harness: OperatorHarness) -> Manifest:
    found = (
        (harness.api.get("DelayedTopicAudit", "first", harness.namespace) or {}).get("status", {}).get("conditions", [])
    )
    return next((c for c in found if c["type"] == "Complete"), {})


@pytest.mark.slow
def test_rights_that_were_taken_away_are_named_until_they_are_back(harness: OperatorHarness) -> None:
    harness.rights_are_taken = True
    harness.replace_operator(tenants=[harness.namespace])
    harness.api.apply(kafka_connection(harness))
    harness.apply(connectionRef=OWN)
    harness.wait_until_served()
    harness.api.apply(audit(harness))
    harness.wait(lambda: complete(harness).get("reason") == "AuditRunning", "the audit runs")

    harness.api.kubectl("delete", "rolebinding", "--all", f"--namespace={harness.namespace}")
    harness.wait_for("Ready", "False", "KubernetesRefused")
    message = harness.condition("Ready")["message"]
    assert "is forbidden: User" in message
    assert f'in the namespace "{harness.namespace}"' in message
    harness.wait_event("KubernetesRefused", "is forbidden: User")
    harness.wait(lambda: complete(harness)["reason"] == "KubernetesRefused", "the audit says so, too")
    harness.wait_event("KubernetesRefused", 'cannot get resource "configmaps"')

    give_the_rights_of_the_chart(harness.api.server, tenants=[harness.namespace])
    harness.wait(
        lambda: harness.condition("Ready")["reason"].startswith("Workers"), "the operator goes on with the resource"
    )
    harness.wait(lambda: complete(harness)["reason"] == "AuditRunning", "the audit goes on")


def test_a_template_that_no_pod_can_have_is_an_invalid_spec(harness: OperatorHarness) -> None:
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}}
    harness.apply(workers={"template": {"resources": resources}})
    for condition in ("WorkersReady", "Ready"):
        harness.wait_for(condition, "False", "SpecInvalid")
    assert "must be less than or equal to memory limit" in harness.condition("Ready")["message"]
    harness.wait_event("SpecInvalid", "must be less than or equal to memory limit")
    harness.wait(lambda: refused_passes(harness) > 0, "the pass is counted, but not as a failure of the operator")
    harness.apply()
    harness.wait_until_served()


def refused_passes(harness: OperatorHarness) -> float:
    return harness.operator.counted("delayedtopics_operator_reconciles_total", kind="DelayedTopic", outcome="refused")


def test_what_kafka_takes_from_no_one_is_an_invalid_spec_and_no_failure_of_the_operator(
    harness: OperatorHarness,
) -> None:
    harness.apply(replicationFactor=100)
    harness.wait_for("Ready", "False", "SpecInvalid")
    harness.wait(lambda: refused_passes(harness) > 0, "the pass is counted")


@pytest.mark.slow
def test_a_quota_without_room_for_the_workers_is_said_until_it_has(harness: OperatorHarness) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": SYSTEM_NAMESPACE}}
    spec = {"hard": {"count/statefulsets.apps": "0"}}
    harness.api.kubectl("apply", "-f", "-", text_in=json.dumps({**quota, "spec": spec}))
    where = ("quota", "full", f"--namespace={SYSTEM_NAMESPACE}")
    try:
        harness.api.kubectl("wait", *where, "--for=jsonpath={.status.hard}", "--timeout=180s")
        harness.apply()
        for condition in ("WorkersReady", "Ready"):
            harness.wait_for(condition, "False", "QuotaExceeded")
        assert "exceeded quota: full" in harness.condition("Ready")["message"]
        harness.wait_event("QuotaExceeded", "exceeded quota: full")
    finally:
        harness.api.kubectl("delete", *where)
    harness.wait_until_served()


@pytest.mark.slow
def test_a_connection_tells_by_events_what_keeps_it_from_kafka_and_that_it_is_back(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection("moody", bootstrap="127.0.0.1:1"))
    events_of_the_cluster = "default"
    harness.wait_event("KafkaUnreachable", "127.0.0.1:1", namespace=events_of_the_cluster)
    harness.api.apply(harness.cluster_connection("moody"))
    described = ""

    def back() -> bool:
        nonlocal described
        described = harness.api.kubectl("describe", "clusterkafkaconnection", "moody")
        return bool(re.search(r"Warning\s+KafkaUnreachable.*Normal\s+Ready\s.*brokers answers", described, re.DOTALL))

    harness.wait(back, "kubectl describe shows both", seen=lambda: described)


def test_a_secret_that_the_operator_may_not_read_is_no_secret_that_is_missing(harness: OperatorHarness) -> None:
    harness.rights_are_taken = True
    harness.replace_operator(tenants=[harness.namespace])
    connection = kafka_connection(harness)
    connection["spec"]["sasl"] = {"secretRef": {"name": "login"}}
    harness.api.kubectl("delete", "rolebinding", "--all", f"--namespace={harness.namespace}")
    harness.api.apply(connection)
    harness.wait_event("KubernetesRefused", 'cannot get resource "secrets"')
    give_the_rights_of_the_chart(harness.api.server, tenants=[harness.namespace])
    harness.wait_event("CredentialsMissing", f"Secret {harness.namespace}/login does not exist")
