"""Two teams share a Kafka cluster, and one attacks the other: nothing of the victim is touched, and conditions name the owner."""

from typing import Any

import pytest
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

RIVAL = {"team": "rival"}


@pytest.fixture
def rival(harness: OperatorHarness) -> str:
    """Creates another team's namespace and returns its name."""
    name = f"rival-of-{harness.namespace}"
    harness.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RIVAL}})
    return name


def test_who_claims_what_another_has_is_told_whose_it_is_and_gets_and_breaks_nothing(
    harness: OperatorHarness, rival: str
) -> None:
    harness.topic = f"shop.{harness.topic}"
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_ready()
    ids, workers = harness.topic_ids(), (harness.stateful_set() or {})["spec"]
    attacks = {
        "thief": (harness.topic, "False", "ClaimedByOther"),
        "lookalike": (harness.topic.replace(".", "_"), "False", "ClaimedByOther"),  # the same name in Kafka's metrics
        "inside": (f"{harness.topic}.delays.x", "True", "ClaimHeld"),
    }
    for name, (topic, _, _) in attacks.items():
        harness.api.apply(harness.delayed_topic(name, namespace=rival, topic=topic, deletionPolicy="Delete"))
    for name, (_, status, reason) in attacks.items():
        harness.wait_for("Claimed", status, reason, name=name, namespace=rival)
    for name in ("thief", "lookalike"):
        assert f"{harness.namespace}/{harness.topic}" in harness.condition("Claimed", name, rival)["message"]
        assert harness.condition("Ready", name, rival)["reason"] == "ClaimedByOther"
        assert harness.stateful_set(name, rival) is None

    for name in attacks:
        harness.delete(name, rival)
    assert harness.topic_ids() == ids
    assert (harness.stateful_set() or {})["spec"] == workers
    assert harness.condition("Ready")["status"] == "True"


def test_a_foreign_topic_is_neither_adopted_nor_changed_nor_deleted(harness: OperatorHarness) -> None:
    spec = NewTopicSpec(name=harness.topic, partitions=2, replication_factor=1, config={"retention.ms": "1234567"})
    harness.kafka.create_topics([spec])
    before = (harness.topic_ids(), harness.settings(harness.topic))
    harness.apply(deletionPolicy="Delete")
    harness.wait_for("Claimed", "False", "TopicForeign")
    assert harness.topic in harness.condition("Claimed")["message"]
    harness.wait_event("TopicForeign", harness.topic)
    harness.delete()
    assert (harness.topic_ids(), harness.settings(harness.topic)) == before, "no other topic was created either"


def test_the_owner_of_a_connection_says_who_may_have_what(harness: OperatorHarness, rival: str) -> None:
    grant = {
        "namespaceSelector": {"matchLabels": RIVAL},
        "topicPrefixes": [harness.topic],
        "maxPartitions": 8,
        "maxWorkers": 2,
    }
    harness.api.apply(harness.cluster_connection("granted", allow=[grant]))
    connection = {"kind": "ClusterKafkaConnection", "name": "granted"}

    def ask(name: str, namespace: str, **spec: Any) -> None:
        topic = f"{harness.topic}-{name}"
        harness.api.apply(
            harness.delayed_topic(name, namespace=namespace, **{"topic": topic, "connectionRef": connection, **spec})
        )

    refusals: dict[str, tuple[str, dict[str, Any], str, str]] = {
        "stranger": (harness.namespace, {}, "NotAllowed", harness.namespace),
        "elsewhere": (rival, {"topic": "elsewhere"}, "NotAllowed", harness.topic),
        "wide": (rival, {"partitions": 9}, "GrantExceeded", "at most 8"),
    }
    for name, (namespace, spec, _, _) in refusals.items():
        ask(name, namespace, **spec)
    for name, (namespace, _, reason, words) in refusals.items():
        harness.wait_for("Claimed", "False", reason, name=name, namespace=namespace)
        assert words in harness.condition("Claimed", name, namespace)["message"]
        assert harness.topics(f"{harness.topic}-{name}") == {}
    ask("served", rival, partitions=8, workers={"replicas": 3})
    harness.wait_until_served("served", rival)
    assert (harness.stateful_set("served", rival) or {})["spec"]["replicas"] == 2
    ask("wide", rival, partitions=8)
    harness.wait_for("Claimed", "True", name="wide", namespace=rival)


def test_a_team_sets_nothing_on_pods_of_the_platform_but_what_the_connection_lists(harness: OperatorHarness) -> None:
    grant = {"namespaceSelector": {}, "topicPrefixes": [harness.topic], "template": {"labels": ["team"]}}
    harness.api.apply(harness.cluster_connection(allow=[grant]))
    harness.apply(workers={"template": {"labels": {"team": "shop"}}})
    harness.wait_until_served()
    template = (harness.stateful_set() or {})["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "shop"
    attempts: dict[str, tuple[dict[str, Any], str]] = {
        "injected": ({"annotations": {"sidecar.istio.io/inject": "true"}}, "annotations[sidecar.istio.io/inject]"),
        "labelled": ({"labels": {"policy": "open", "team": "shop"}}, "labels[policy]"),
        "privileged": ({"priorityClassName": "system-cluster-critical"}, "priorityClassName"),
        "tolerant": ({"tolerations": [{"operator": "Exists"}]}, "tolerations[0] (every taint)"),
        "placed": ({"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}, "nodeSelector"),
        "large": ({"resources": {"limits": {"memory": "64Gi"}}}, "resources.limits[memory] (64Gi, at most 2Gi)"),
        "unlimited": ({"resources": {"requests": {"cpu": "1"}}}, "resources.limits without memory"),
    }
    for name, (asked, field) in attempts.items():
        topic = f"{harness.topic}-{name}"
        harness.api.apply(harness.delayed_topic(name, topic=topic, workers={"template": asked}))
        harness.wait_for("Claimed", "False", "NotAllowed", name=name)
        assert f"spec.workers.template.{field}" in harness.condition("Claimed", name)["message"]
        assert (harness.topics(topic), harness.stateful_set(name)) == ({}, None)

    harness.apply(workers={"template": attempts["injected"][0]})
    harness.wait_for("Claimed", "False", "NotAllowed")
    assert (harness.stateful_set() or {})["spec"]["template"] == template, "the running workers stay as they are"
