"""Quotas on a real API server and a real broker: nothing passes them, nothing that is there is taken away, and the connection shows it."""

from typing import Any

import pytest
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api

Manifest = dict[str, Any]


def grant(**fields: Any) -> list[Manifest]:
    return [{"namespaceSelector": {}, "topicPrefixes": [""], **fields}]


def shown(scene: Scene) -> Manifest:
    """What the connection says of the test's namespace."""
    listed = scene.connection_status().get("namespaces", [])
    return next((entry for entry in listed if entry["namespace"] == scene.namespace), {})


def wait_shown(scene: Scene, hard: Manifest, **used: int) -> None:
    wanted = {"namespace": scene.namespace, "hard": hard, "used": {"executors": 0, **used}}
    scene.wait(lambda: shown(scene) == wanted, f"the connection shows {wanted}", seen=lambda: shown(scene))


def replicas(scene: Scene, name: str = "") -> int:
    return int((scene.stateful_set(name) or {"spec": {"replicas": -1}})["spec"]["replicas"])


def scale(scene: Scene, count: int, name: str = "") -> None:
    where = f"--namespace={scene.namespace}"
    scene.api.kubectl("scale", "delayedtopic", name or scene.topic, where, f"--replicas={count}")


def test_of_two_that_are_made_at_once_for_a_quota_of_one_exactly_one_is(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection(allow=grant(quota={"delayedTopics": 1})))
    names = [f"{scene.topic}-{letter}" for letter in "ab"]
    scene.api.apply(*(scene.delayed_topic(name, deletionPolicy="Delete") for name in names))

    def claimed() -> dict[str, str]:
        return {name: scene.condition("Claimed", name).get("reason", "") for name in names}

    scene.wait(lambda: sorted(claimed().values()) == ["ClaimHeld", "GrantExceeded"], "one is served", seen=claimed)
    served, refused = sorted(names, key=lambda name: claimed()[name])
    scene.wait_until_served(served)
    assert scene.topics(refused) == {}
    assert "spec.allow[].quota.delayedTopics" in scene.condition("Claimed", refused)["message"]
    scene.wait_event("GrantExceeded", "1 in sum")
    wait_shown(scene, {"delayedTopics": 1}, delayedTopics=1, partitions=sum(scene.topics(served).values()), workers=1)
    scene.delete(served)
    scene.wait_until_served(refused)


@pytest.mark.slow
def test_kubectl_scale_beyond_the_grant_gets_what_is_granted_and_everything_is_repaired_on(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection(allow=grant(maxWorkers=2, quota={"workers": 9})))
    scene.apply()
    scene.wait_until_served()
    scale(scene, 8)
    scene.wait(lambda: replicas(scene) == 2, "two workers", seen=scene.stateful_set)
    scene.wait_until_ready()
    for kind in ("WorkersReady", "Ready"):
        scene.wait_for(kind, "True", "GrantExceeded")
        assert "spec.workers.replicas is 8, and there are 2" in scene.condition(kind)["message"]
    status = (scene.resource() or {})["status"]
    assert status["workers"]["replicas"] == 2
    wait_shown(scene, {"workers": 9}, delayedTopics=1, partitions=sum(scene.topics().values()), workers=2)

    (service,) = scene.made("Service")
    scene.api.kubectl(
        "delete", "service", service["metadata"]["name"], f"--namespace={service['metadata']['namespace']}"
    )
    scene.wait(lambda: bool(scene.made("Service")), "the Service is made again")
    scene.kafka.alter_topic_configs({scene.topic: {"retention.bytes": "1000"}})
    scene.wait(lambda: scene.settings(scene.topic)["retention.bytes"] == "-1", "the setting is repaired")

    scene.api.apply(scene.cluster_connection(allow=grant(quota={"workers": 5})))
    scene.wait(lambda: replicas(scene) == 5, "as many as the quota allows", seen=scene.stateful_set)
    scale(scene, 1)
    scene.wait(lambda: replicas(scene) == 1, "one worker", seen=scene.stateful_set)


@pytest.mark.slow
def test_a_quota_lowered_below_what_there_is_takes_nothing_away_and_refuses_growth(scene: Scene) -> None:
    scene.apply(partitions=4, workers={"replicas": 2})
    scene.wait_until_served()
    before = scene.topics()
    lowered = {"delayedTopics": 0, "partitions": 1, "workers": 1}
    scene.api.apply(scene.cluster_connection(allow=grant(quota=lowered)))
    there = {"delayedTopics": 1, "partitions": sum(before.values())}
    wait_shown(scene, lowered, **there, workers=2)
    scene.wait_until_ready()
    scene.operator.kill()  # what it has let through is not only in its memory
    scene.operator.start()

    scene.apply(partitions=9, workers={"replicas": 3}, retryCap=7)
    scene.wait_for("TopicsReady", "False", "GrantExceeded")
    scene.wait_for("LayoutClamped", "True", "GrantExceeded")
    scene.wait_for("Claimed", "True")
    scene.wait(lambda: scene.registry().layouts[scene.topic].retry_cap == 7, "what needs no room is followed")
    assert (scene.topics(), replicas(scene)) == (before, 2)
    scene.apply(partitions=9, workers={"replicas": 1}, retryCap=7)
    scene.wait(lambda: replicas(scene) == 1, "one worker", seen=scene.stateful_set)
    wait_shown(scene, lowered, **there, workers=1)

    scene.api.apply(scene.cluster_connection(allow=grant()))
    scene.wait_for("TopicsReady", "True")
    scene.wait(lambda: scene.topics()[f"{scene.topic}.delays"] == 9, "the topics have grown", seen=scene.topics)


@pytest.mark.slow
def test_topics_that_were_kept_count_and_the_connection_names_their_namespace(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection(allow=grant(quota={"delayedTopics": 1})))
    scene.apply()
    scene.wait_until_served()
    kept = sum(scene.topics().values())
    scene.delete()
    wait_shown(scene, {"delayedTopics": 1}, delayedTopics=1, partitions=kept, workers=0)
    other = f"{scene.topic}-other"
    scene.api.apply(scene.delayed_topic(other))
    scene.wait_for("Claimed", "False", "GrantExceeded", name=other)
    scene.apply()
    scene.wait_until_served()
    written = scene.connection_status()
    assert written["namespaceCount"] == len(written["namespaces"])
