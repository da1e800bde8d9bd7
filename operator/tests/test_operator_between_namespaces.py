"""Two teams share a Kafka cluster, and one attacks the other: nothing of the first is touched, and it is said who holds what."""

from typing import Any

import pytest
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api

RIVAL = {"team": "rival"}


@pytest.fixture
def rival(scene: Scene) -> str:
    """Another team's namespace."""
    name = f"rival-of-{scene.namespace}"
    scene.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RIVAL}})
    return name


def test_who_claims_what_another_has_is_told_whose_it_is_and_gets_and_breaks_nothing(scene: Scene, rival: str) -> None:
    scene.topic = f"shop.{scene.topic}"
    scene.apply(deletionPolicy="Delete")
    scene.wait_until_ready()
    ids, workers = scene.topic_ids(), (scene.stateful_set() or {})["spec"]
    attacks = {
        "thief": (scene.topic, "False", "ClaimedByOther"),
        "lookalike": (scene.topic.replace(".", "_"), "False", "ClaimedByOther"),  # one name to Kafka's metrics
        "inside": (f"{scene.topic}.delays.x", "True", "ClaimHeld"),
    }
    for name, (topic, _, _) in attacks.items():
        scene.api.apply(scene.delayed_topic(name, namespace=rival, topic=topic, deletionPolicy="Delete"))
    for name, (_, status, reason) in attacks.items():
        scene.wait_for("Claimed", status, reason, name=name, namespace=rival)
    for name in ("thief", "lookalike"):
        assert f"{scene.namespace}/{scene.topic}" in scene.condition("Claimed", name, rival)["message"]
        assert scene.condition("Ready", name, rival)["reason"] == "ClaimedByOther"
        assert scene.stateful_set(name, rival) is None

    for name in attacks:
        scene.delete(name, rival)
    assert scene.topic_ids() == ids
    assert (scene.stateful_set() or {})["spec"] == workers
    assert scene.condition("Ready")["status"] == "True"


def test_a_foreign_topic_is_neither_adopted_nor_changed_nor_deleted(scene: Scene) -> None:
    spec = NewTopicSpec(name=scene.topic, partitions=2, replication_factor=1, config={"retention.ms": "1234567"})
    scene.kafka.create_topics([spec])
    before = (scene.topic_ids(), scene.settings(scene.topic))
    scene.apply(deletionPolicy="Delete")
    scene.wait_for("Claimed", "False", "TopicForeign")
    assert scene.topic in scene.condition("Claimed")["message"]
    scene.wait_event("TopicForeign", scene.topic)
    scene.delete()
    assert (scene.topic_ids(), scene.settings(scene.topic)) == before, "nothing else was made, either"


def test_the_owner_of_a_connection_says_who_may_have_what(scene: Scene, rival: str) -> None:
    grant = {
        "namespaceSelector": {"matchLabels": RIVAL},
        "topicPrefixes": [scene.topic],
        "maxPartitions": 8,
        "maxWorkers": 2,
    }
    scene.api.apply(scene.cluster_connection("granted", allow=[grant]))
    connection = {"kind": "ClusterKafkaConnection", "name": "granted"}

    def ask(name: str, namespace: str, **spec: Any) -> None:
        topic = f"{scene.topic}-{name}"
        scene.api.apply(
            scene.delayed_topic(name, namespace=namespace, **{"topic": topic, "connectionRef": connection, **spec})
        )

    refusals: dict[str, tuple[str, dict[str, Any], str, str]] = {
        "stranger": (scene.namespace, {}, "NotAllowed", scene.namespace),
        "elsewhere": (rival, {"topic": "elsewhere"}, "NotAllowed", scene.topic),
        "wide": (rival, {"partitions": 9}, "GrantExceeded", "at most 8"),
    }
    for name, (namespace, spec, _, _) in refusals.items():
        ask(name, namespace, **spec)
    for name, (namespace, _, reason, words) in refusals.items():
        scene.wait_for("Claimed", "False", reason, name=name, namespace=namespace)
        assert words in scene.condition("Claimed", name, namespace)["message"]
        assert scene.topics(f"{scene.topic}-{name}") == {}
    ask("served", rival, partitions=8, workers={"replicas": 3})
    scene.wait_until_served("served", rival)
    assert (scene.stateful_set("served", rival) or {})["spec"]["replicas"] == 2
    ask("wide", rival, partitions=8)
    scene.wait_for("Claimed", "True", name="wide", namespace=rival)


def test_a_team_sets_nothing_on_pods_of_the_platform_but_what_the_connection_lists(scene: Scene) -> None:
    grant = {"namespaceSelector": {}, "topicPrefixes": [scene.topic], "template": {"labels": ["team"]}}
    scene.api.apply(scene.cluster_connection(allow=[grant]))
    scene.apply(workers={"template": {"labels": {"team": "shop"}}})
    scene.wait_until_served()
    template = (scene.stateful_set() or {})["spec"]["template"]
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
        topic = f"{scene.topic}-{name}"
        scene.api.apply(scene.delayed_topic(name, topic=topic, workers={"template": asked}))
        scene.wait_for("Claimed", "False", "NotAllowed", name=name)
        assert f"spec.workers.template.{field}" in scene.condition("Claimed", name)["message"]
        assert (scene.topics(topic), scene.stateful_set(name)) == ({}, None)

    scene.apply(workers={"template": attempts["injected"][0]})
    scene.wait_for("Claimed", "False", "NotAllowed")
    assert (scene.stateful_set() or {})["spec"]["template"] == template, "what ran before runs on"
