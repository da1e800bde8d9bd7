"""What a DelayedTopic goes through: made, disturbed, killed beside, deleted, applied again."""

import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
from delayed_topics_core.names import TopicNames
from delayed_topics_core.settings import MARK_SETTING
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.scene import Manifest, Scene

pytestmark = pytest.mark.api

SPEC: dict[str, Any] = {"delaySeconds": [0, 1, 2], "partitions": 5, "deletionPolicy": "Delete"}
CHANGED_BY_HAND = {
    "retention.ms": "3600000",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "2",
    "cleanup.policy": "compact",
    "max.message.bytes": "2000",
}
CHILDREN = ("StatefulSet", "ConfigMap", "PodDisruptionBudget")


def children(scene: Scene, name: str = "") -> dict[str, Manifest]:
    """What was made for the resource, the scene's own unless another is named, without what the API server and other controllers write."""
    return {
        f"{kind} {found['metadata']['name']}": {key: found[key] for key in ("spec", "data") if key in found}
        for kind in CHILDREN
        for found in scene.made(kind, name)
    }


def test_whatever_is_changed_by_hand_is_repaired_and_told(scene: Scene) -> None:
    scene.apply(partitions=4)
    scene.wait_until_ready()
    names = TopicNames.of(scene.topic).topics
    topics_before, children_before = {name: scene.settings(name) for name in names}, children(scene)
    assert len(children_before) >= len(CHILDREN), children_before.keys()

    scene.kafka.alter_topic_configs(dict.fromkeys(names, CHANGED_BY_HAND))
    for child, before in children_before.items():
        kind, name = child.split()
        match kind:
            case "StatefulSet":
                pod = {"spec": {"containers": [{"name": "worker", "image": "somebody/elses:image"}]}}
                patch = json.dumps({"spec": {"replicas": 3, "template": pod}})
                where = (f"--namespace={SYSTEM_NAMESPACE}", "--type=strategic")
                scene.api.kubectl("patch", "statefulset", name, *where, f"--patch={patch}")
            case "ConfigMap":
                scene.patch(kind, name, {"data": dict.fromkeys(before["data"], "{}")}, namespace=SYSTEM_NAMESPACE)
            case _:
                scene.api.kubectl("delete", kind, name, f"--namespace={SYSTEM_NAMESPACE}")

    def wrong() -> list[str]:
        now = children(scene)
        changed = [f"{name} is {now.get(name)}" for name, before in children_before.items() if now.get(name) != before]
        return [name for name in names if scene.settings(name) != topics_before[name]] + changed

    scene.wait(lambda: not wrong(), "topics and objects are as declared again", seen=wrong)
    for name in names:
        scene.wait_event("SettingsRepaired", name, "retention.ms")
    scene.wait_until_ready()


@pytest.mark.slow
def test_after_retain_the_same_resource_goes_on_and_no_other_takes_over(scene: Scene) -> None:
    scene.apply(deletionPolicy="Retain")
    scene.wait_until_ready()
    ids = scene.topic_ids()
    assert len(ids) == 4
    scene.delete()
    scene.wait(lambda: children(scene) == {}, "no object is left")
    scene.wait_event("Retained")
    assert scene.topic_ids() == ids

    scene.api.apply(scene.delayed_topic("heir", topic=scene.topic))
    scene.wait_for("Claimed", "False", "ClaimedByOther", name="heir")
    scene.apply(deletionPolicy="Delete")
    scene.wait_until_ready()
    assert scene.topic_ids() == ids


def test_after_delete_nothing_is_left_and_applying_again_begins_anew(scene: Scene) -> None:
    scene.apply(**SPEC)
    scene.wait_until_ready()
    former = scene.topic_ids()
    scene.delete()
    wait_until_nothing_is_left(scene)
    scene.apply(**SPEC)
    scene.wait_until_ready()
    assert not set(scene.topic_ids().values()) & set(former.values())


@pytest.mark.slow
def test_a_namespace_that_is_deleted_goes_and_keeps_the_policy_of_each(scene: Scene) -> None:
    scene.apply(deletionPolicy="Delete")
    scene.api.apply(scene.delayed_topic("kept", topic=f"{scene.topic}-kept", deletionPolicy="Retain"))
    scene.wait_until_served()
    scene.wait_until_served("kept")
    scene.api.kubectl("delete", "namespace", scene.namespace, "--timeout=180s")
    wait_until_nothing_is_left(scene)
    assert len(scene.topics(f"{scene.topic}-kept")) == 4
    scene.wait(lambda: scene.stateful_set("kept") is None, "the other's workers are gone, too")


def test_a_topic_that_a_producer_was_earlier_to_make_is_left_alone_until_it_is_gone(scene: Scene) -> None:
    scene.kafka.create_topics([NewTopicSpec(name=scene.topic, partitions=1, replication_factor=1)])
    scene.apply(**SPEC)
    scene.wait_for("Claimed", "False", "TopicForeign")
    assert scene.settings(scene.topic)["message.timestamp.type"] == "CreateTime"
    scene.kafka.delete_topics([scene.topic])
    scene.wait_until_ready()
    assert scene.topics()[scene.topic] == 3
    assert scene.settings(scene.topic)["message.timestamp.type"] == "LogAppendTime"


def test_a_topic_that_somebody_makes_while_kafka_refuses_ours_is_never_served_changed_or_deleted(scene: Scene) -> None:
    scene.apply(**SPEC, replicationFactor=100)
    scene.wait_for("TopicsReady", "False", "SpecInvalid")
    assert claimed(scene)
    theirs = {"cleanup.policy": "compact", "retention.ms": "-1"}
    scene.kafka.create_topics([NewTopicSpec(name=scene.topic, partitions=1, replication_factor=1, config=theirs)])
    ids, settings = scene.topic_ids(), scene.settings(scene.topic)

    scene.apply(**SPEC, replicationFactor=1)
    scene.wait_for("TopicsReady", "False", "TopicForeign")
    assert (scene.topic_ids(), scene.settings(scene.topic), children(scene)) == (ids, settings, {})
    scene.delete()
    assert (scene.topic_ids(), scene.settings(scene.topic)) == (ids, settings)
    assert not claimed(scene)


@pytest.mark.slow
def test_a_ready_topic_that_somebody_made_in_the_place_of_ours_is_not_written_to_and_not_deleted(scene: Scene) -> None:
    scene.apply(**SPEC)
    scene.wait_until_ready()
    ready = TopicNames.of(scene.topic).ready
    noted = scene.registry().topics[scene.topic].ids
    scene.operator.kill()
    scene.kafka.delete_topics([ready])
    scene.kafka.create_topics([NewTopicSpec(name=ready, partitions=1, replication_factor=1)])
    theirs, settings = scene.topic_ids()[ready], scene.settings(ready)
    scene.operator.start()
    scene.wait_for("TopicsReady", "False", "TopicForeign")
    assert ready in scene.condition("TopicsReady")["message"]
    assert scene.registry().topics[scene.topic].ids == noted, "workers write to noted topics only"
    assert scene.settings(ready) == settings
    scene.delete()
    assert scene.topic_ids() == {ready: theirs}


def test_a_claim_of_which_nothing_was_made_lapses_though_the_policy_is_retain(scene: Scene) -> None:
    scene.apply(replicationFactor=100, deletionPolicy="Retain")
    scene.wait_for("TopicsReady", "False", "SpecInvalid")
    assert claimed(scene)
    scene.delete()
    assert not claimed(scene)


@pytest.mark.slow
def test_where_adopting_is_allowed_an_early_producers_topic_is_completed_and_never_deleted(scene: Scene) -> None:
    grant = {"namespaceSelector": {}, "topicPrefixes": [""], "adopt": True}
    scene.api.apply(scene.cluster_connection(allow=[grant]))
    scene.kafka.create_topics([NewTopicSpec(name=scene.topic, partitions=1, replication_factor=1)])
    early = scene.topic_ids()
    scene.apply(**SPEC)
    scene.wait_until_ready()
    assert scene.topics()[scene.topic] == 3
    assert scene.settings(scene.topic)["message.timestamp.type"] == "LogAppendTime"
    assert scene.topic_ids()[scene.topic] == early[scene.topic]
    scene.delete()
    assert scene.topic_ids() == early


def test_a_plan_is_shown_and_nothing_is_done(scene: Scene) -> None:
    scene.api.apply(scene.delayed_topic(annotations={"delayedtopics.io/plan-only": "true"}))
    scene.wait_for("Planned", "True", "PlanOnly")
    assert f"claim {scene.topic}" in scene.condition("Planned")["message"]
    assert scene.topics() == {}
    assert children(scene) == {}


def test_an_operator_killed_three_times_while_making_and_while_removing_ends_in_the_same_state(scene: Scene) -> None:
    undisturbed = f"{scene.topic}-undisturbed"
    scene.api.apply(scene.delayed_topic(undisturbed, **SPEC))
    scene.wait_until_ready(undisturbed)
    scene.apply(**SPEC)
    kill_operator_when(scene, "its claim is written", lambda: claimed(scene))
    kill_operator_when(scene, "one of its topics exists", lambda: bool(scene.topics()))
    kill_operator_when(scene, "its StatefulSet exists", lambda: scene.stateful_set() is not None)
    scene.wait_until_ready()

    def both() -> list[Manifest]:
        return [end_state(scene, name) for name in (scene.topic, undisturbed)]

    scene.wait(lambda: operator.eq(*both()), "both resources are alike", seen=both)

    scene.api.kubectl("delete", "delayedtopic", scene.topic, f"--namespace={scene.namespace}", "--wait=false")
    kill_operator_when(scene, "its StatefulSet is gone", lambda: scene.stateful_set() is None)
    kill_operator_when(scene, "one of its topics is gone", lambda: len(scene.topics()) < 4)
    kill_operator_when(scene, "its claim is withdrawn", lambda: not claimed(scene))
    scene.wait(lambda: scene.resource() is None, "the resource is gone")
    wait_until_nothing_is_left(scene)


def end_state(scene: Scene, name: str) -> Manifest:
    """What must not depend on how it came to be, without names, ids, marks and times."""
    status = (scene.resource(name) or {})["status"]
    record = scene.registry().topics[name]
    return {
        "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
        "layout": status["layout"],
        "topics": [(t["role"], t["partitions"], t["replicationFactor"]) for t in status["topics"]],
        "settings": [
            {key: value for key, value in scene.settings(topic).items() if key != MARK_SETTING}
            for topic in TopicNames.of(name).topics
        ],
        "begun": sorted(record.begun.values()),
        "children": sorted(child.split()[0] for child in children(scene, name)),
    }


def claimed(scene: Scene) -> bool:
    return any(entry.claim.topic == scene.topic for entry in scene.registry().claims.values())


def kill_operator_when(scene: Scene, what: str, condition: Callable[[], bool]) -> None:
    scene.wait(condition, what)
    scene.operator.kill()
    scene.operator.start()


def wait_until_nothing_is_left(scene: Scene) -> None:
    def left() -> dict[str, object]:
        found = {"topics": scene.topics(), "children": sorted(children(scene)), "claimed": claimed(scene)}
        return {what: it for what, it in found.items() if it}

    scene.wait(lambda: not left(), "topics, objects and claim are gone", seen=left)
