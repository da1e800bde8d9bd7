"""The life of a DelayedTopic: it is created, changed by hand, deleted and applied again, and its operator is killed on the way."""

import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
from delayed_topics_core.names import TopicNames
from delayed_topics_core.settings import MARK_SETTING
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE

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


def children(harness: OperatorHarness, name: str = "") -> dict[str, Manifest]:
    """Returns what the operator made for the resource (`harness.topic` by default), without what other controllers write."""
    return {
        f"{kind} {found['metadata']['name']}": {key: found[key] for key in ("spec", "data") if key in found}
        for kind in CHILDREN
        for found in harness.made(kind, name)
    }


def test_whatever_is_changed_by_hand_is_repaired_and_told(harness: OperatorHarness) -> None:
    harness.apply(partitions=4)
    harness.wait_until_ready()
    names = TopicNames.of(harness.topic).topics
    topics_before, children_before = {name: harness.settings(name) for name in names}, children(harness)
    assert len(children_before) >= len(CHILDREN), children_before.keys()

    harness.kafka.alter_topic_configs(dict.fromkeys(names, CHANGED_BY_HAND))
    for child, before in children_before.items():
        kind, name = child.split()
        match kind:
            case "StatefulSet":
                pod = {"spec": {"containers": [{"name": "worker", "image": "somebody/elses:image"}]}}
                patch = json.dumps({"spec": {"replicas": 3, "template": pod}})
                where = (f"--namespace={SYSTEM_NAMESPACE}", "--type=strategic")
                harness.api.kubectl("patch", "statefulset", name, *where, f"--patch={patch}")
            case "ConfigMap":
                harness.patch(kind, name, {"data": dict.fromkeys(before["data"], "{}")}, namespace=SYSTEM_NAMESPACE)
            case _:
                harness.api.kubectl("delete", kind, name, f"--namespace={SYSTEM_NAMESPACE}")

    def wrong() -> list[str]:
        now = children(harness)
        changed = [f"{name} is {now.get(name)}" for name, before in children_before.items() if now.get(name) != before]
        return [name for name in names if harness.settings(name) != topics_before[name]] + changed

    harness.wait(lambda: not wrong(), "topics and objects are as declared again", seen=wrong)
    for name in names:
        harness.wait_event("SettingsRepaired", name, "retention.ms")
    harness.wait_until_ready()


@pytest.mark.slow
def test_after_retain_the_same_resource_goes_on_and_no_other_takes_over(harness: OperatorHarness) -> None:
    harness.apply(deletionPolicy="Retain")
    harness.wait_until_ready()
    ids = harness.topic_ids()
    assert len(ids) == 4
    harness.delete()
    harness.wait(lambda: children(harness) == {}, "no object is left")
    harness.wait_event("Retained")
    assert harness.topic_ids() == ids

    harness.api.apply(harness.delayed_topic("heir", topic=harness.topic))
    harness.wait_for("Claimed", "False", "ClaimedByOther", name="heir")
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_ready()
    assert harness.topic_ids() == ids


def test_after_delete_nothing_is_left_and_applying_again_begins_anew(harness: OperatorHarness) -> None:
    harness.apply(**SPEC)
    harness.wait_until_ready()
    former = harness.topic_ids()
    harness.delete()
    wait_until_nothing_is_left(harness)
    harness.apply(**SPEC)
    harness.wait_until_ready()
    assert not set(harness.topic_ids().values()) & set(former.values())


@pytest.mark.parametrize("field", ["schedule", "ready topic"])
def test_after_delete_nothing_is_left_although_the_spec_asks_for_what_there_can_not_be(
    harness: OperatorHarness, field: str
) -> None:
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_served()
    wrong = {
        "schedule": {"audit": {"schedule": "0 24 * * *"}},
        "ready topic": {"ready": {"allowedTopics": [harness.topic]}},
    }
    harness.patch("DelayedTopic", harness.topic, {"spec": wrong[field]}, namespace=harness.namespace)
    harness.wait_for("Ready", "False", "SpecInvalid")
    harness.delete()
    wait_until_nothing_is_left(harness)


@pytest.mark.slow
def test_a_namespace_that_is_deleted_goes_and_keeps_the_policy_of_each(harness: OperatorHarness) -> None:
    harness.apply(deletionPolicy="Delete")
    harness.api.apply(harness.delayed_topic("kept", topic=f"{harness.topic}-kept", deletionPolicy="Retain"))
    harness.wait_until_served()
    harness.wait_until_served("kept")
    harness.api.kubectl("delete", "namespace", harness.namespace, "--timeout=180s")
    wait_until_nothing_is_left(harness)
    assert len(harness.topics(f"{harness.topic}-kept")) == 4
    harness.wait(lambda: harness.stateful_set("kept") is None, "the workers of the other resource are gone, too")


def test_a_topic_that_a_producer_was_earlier_to_make_is_left_alone_until_it_is_gone(harness: OperatorHarness) -> None:
    harness.kafka.create_topics([NewTopicSpec(name=harness.topic, partitions=1, replication_factor=1)])
    harness.apply(**SPEC)
    harness.wait_for("Claimed", "False", "TopicForeign")
    assert harness.settings(harness.topic)["message.timestamp.type"] == "CreateTime"
    harness.kafka.delete_topics([harness.topic])
    harness.wait_until_ready()
    assert harness.topics()[harness.topic] == 3
    assert harness.settings(harness.topic)["message.timestamp.type"] == "LogAppendTime"


def test_a_topic_that_somebody_makes_while_kafka_refuses_ours_is_never_served_changed_or_deleted(
    harness: OperatorHarness,
) -> None:
    harness.apply(**SPEC, replicationFactor=100)
    harness.wait_for("TopicsReady", "False", "SpecInvalid")
    assert claimed(harness)
    theirs = {"cleanup.policy": "compact", "retention.ms": "-1"}
    harness.kafka.create_topics([NewTopicSpec(name=harness.topic, partitions=1, replication_factor=1, config=theirs)])
    ids, settings = harness.topic_ids(), harness.settings(harness.topic)

    harness.apply(**SPEC, replicationFactor=1)
    harness.wait_for("TopicsReady", "False", "TopicForeign")
    assert (harness.topic_ids(), harness.settings(harness.topic), children(harness)) == (ids, settings, {})
    harness.delete()
    assert (harness.topic_ids(), harness.settings(harness.topic)) == (ids, settings)
    assert not claimed(harness)


@pytest.mark.slow
def test_a_ready_topic_that_somebody_made_in_the_place_of_ours_is_not_written_to_and_not_deleted(
    harness: OperatorHarness,
) -> None:
    harness.apply(**SPEC)
    harness.wait_until_ready()
    ready = TopicNames.of(harness.topic).ready
    recorded = harness.registry().topics[harness.topic].ids
    harness.operator.kill()
    harness.kafka.delete_topics([ready])
    harness.kafka.create_topics([NewTopicSpec(name=ready, partitions=1, replication_factor=1)])
    theirs, settings = harness.topic_ids()[ready], harness.settings(ready)
    harness.operator.start()
    harness.wait_for("TopicsReady", "False", "TopicForeign")
    assert ready in harness.condition("TopicsReady")["message"]
    assert harness.registry().topics[harness.topic].ids == recorded, "workers write only to recorded topics"
    assert harness.settings(ready) == settings
    harness.delete()
    assert harness.topic_ids() == {ready: theirs}


def test_a_claim_of_which_nothing_was_made_lapses_though_the_policy_is_retain(harness: OperatorHarness) -> None:
    harness.apply(replicationFactor=100, deletionPolicy="Retain")
    harness.wait_for("TopicsReady", "False", "SpecInvalid")
    assert claimed(harness)
    harness.delete()
    assert not claimed(harness)


@pytest.mark.slow
def test_where_adopting_is_allowed_an_early_producers_topic_is_completed_and_never_deleted(
    harness: OperatorHarness,
) -> None:
    grant = {"namespaceSelector": {}, "topicPrefixes": [""], "adopt": True}
    harness.api.apply(harness.cluster_connection(allow=[grant]))
    harness.kafka.create_topics([NewTopicSpec(name=harness.topic, partitions=1, replication_factor=1)])
    early = harness.topic_ids()
    harness.apply(**SPEC)
    harness.wait_until_ready()
    assert harness.topics()[harness.topic] == 3
    assert harness.settings(harness.topic)["message.timestamp.type"] == "LogAppendTime"
    assert harness.topic_ids()[harness.topic] == early[harness.topic]
    harness.delete()
    assert harness.topic_ids() == early


def test_a_plan_is_shown_and_nothing_is_done(harness: OperatorHarness) -> None:
    harness.api.apply(harness.delayed_topic(annotations={"delayedtopics.io/plan-only": "true"}))
    harness.wait_for("Planned", "True", "PlanOnly")
    assert f"claim {harness.topic}" in harness.condition("Planned")["message"]
    for kind, status in (("Claimed", "Unknown"), ("Ready", "False")):
        condition = harness.condition(kind)
        assert (condition["status"], condition["reason"]) == (status, "PlanOnly")
        assert "The operator does nothing" in condition["message"]
    assert harness.topics() == {}
    assert children(harness) == {}


def test_an_operator_killed_three_times_while_making_and_while_removing_ends_in_the_same_state(
    harness: OperatorHarness,
) -> None:
    undisturbed = f"{harness.topic}-undisturbed"
    harness.api.apply(harness.delayed_topic(undisturbed, **SPEC))
    harness.wait_until_ready(undisturbed)
    harness.apply(**SPEC)
    kill_operator_when(harness, "the claim is written", lambda: claimed(harness))
    kill_operator_when(harness, "one of the topics exists", lambda: bool(harness.topics()))
    kill_operator_when(harness, "the StatefulSet exists", lambda: harness.stateful_set() is not None)
    harness.wait_until_ready()

    def both() -> list[Manifest]:
        return [end_state(harness, name) for name in (harness.topic, undisturbed)]

    harness.wait(lambda: operator.eq(*both()), "both resources are alike", seen=both)

    harness.api.kubectl("delete", "delayedtopic", harness.topic, f"--namespace={harness.namespace}", "--wait=false")
    kill_operator_when(harness, "the StatefulSet is gone", lambda: harness.stateful_set() is None)
    kill_operator_when(harness, "one of the topics is gone", lambda: len(harness.topics()) < 4)
    kill_operator_when(harness, "the claim is withdrawn", lambda: not claimed(harness))
    harness.wait(lambda: harness.resource() is None, "the resource is gone")
    wait_until_nothing_is_left(harness)


def end_state(harness: OperatorHarness, name: str) -> Manifest:
    """Returns the state that must not depend on how it was reached, without names, ids, marks and times."""
    status = (harness.resource(name) or {})["status"]
    record = harness.registry().topics[name]
    return {
        "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
        "layout": status["layout"],
        "topics": [(t["role"], t["partitions"], t["replicationFactor"]) for t in status["topics"]],
        "settings": [
            {key: value for key, value in harness.settings(topic).items() if key != MARK_SETTING}
            for topic in TopicNames.of(name).topics
        ],
        "begun": sorted(record.begun.values()),
        "children": sorted(child.split()[0] for child in children(harness, name)),
    }


def claimed(harness: OperatorHarness) -> bool:
    return any(entry.claim.topic == harness.topic for entry in harness.registry().claims.values())


def kill_operator_when(harness: OperatorHarness, what: str, condition: Callable[[], bool]) -> None:
    harness.wait(condition, what)
    harness.operator.kill()
    harness.operator.start()


def wait_until_nothing_is_left(harness: OperatorHarness) -> None:
    def left() -> dict[str, object]:
        found = {"topics": harness.topics(), "children": sorted(children(harness)), "claimed": claimed(harness)}
        return {what: it for what, it in found.items() if it}

    harness.wait(lambda: not left(), "topics, objects and claim are gone", seen=left)
