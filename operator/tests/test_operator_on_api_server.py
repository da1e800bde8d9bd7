"""The whole operator on a real API server and a real broker, without nodes. What needs workers is told in e2e."""

from typing import Any

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import transactional_id
from delayed_topics_operator.worker_sets import APP, MANAGED_BY
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api


def test_a_manifest_becomes_topics_offsets_a_layout_and_workers(scene: Scene) -> None:
    scene.apply(partitions=4)
    scene.wait_until_served()
    t = scene.topic
    assert scene.topics() == {t: 3, f"{t}.delays": 4, f"{t}.ready": 3, f"{t}.dead": 3}
    (committed,) = scene.kafka.committed_of_groups({f"delayedtopics.{t}": None}).values()
    assert isinstance(committed, dict), committed
    assert len([at for at in committed.values() if at is not None]) == 7
    assert scene.registry().layouts[t].state == "serving"
    for reason in ("Claimed", "TopicsCreated", "LayoutServing", "WorkersCreated"):
        scene.wait_event(reason)


def test_edits_are_followed(scene: Scene) -> None:
    scene.apply(partitions=2)
    scene.wait_until_served()
    scene.apply(partitions=6, delaySeconds=[0, 10, 60], retryCap=9)

    def followed() -> bool:
        record = scene.registry().layouts[scene.topic]
        return record.state == "serving" and record.layout.partition_count == 6 and record.retry_cap == 9

    scene.wait(followed, "the layout is served")
    assert scene.topics()[f"{scene.topic}.ready"] == scene.topics()[scene.topic] == 4
    scene.api.kubectl("scale", "delayedtopic", scene.topic, f"--namespace={scene.namespace}", "--replicas=3")
    scene.wait(lambda: (scene.stateful_set() or {})["spec"]["replicas"] == 3, "three workers are wanted")


@pytest.mark.slow
def test_workers_are_scaled_while_others_are_replaced_first(scene: Scene) -> None:
    """Five rollouts that never end are as many as may be under way."""

    def spec() -> dict[str, Any]:
        return dict((scene.stateful_set() or {})["spec"])

    def rolls(name: str) -> bool:
        status = (scene.api.get("StatefulSet", name, SYSTEM_NAMESPACE) or {})["status"]
        return bool(status.get("currentRevision") != status.get("updateRevision"))

    scene.apply(workers={"replicas": 2})
    scene.wait_until_served()
    before = spec()
    others = [f"{scene.topic}-other-{n}" for n in range(5)]
    for image in ("worker:1", "worker:2"):
        scene.api.apply(*(_replaced_by_hand(name, image) for name in others))
        scene.wait(lambda: all(_seen(scene, name) for name in others), "the other workers are as declared")
    assert all(rolls(name) for name in others)

    scene.apply(workers={"replicas": 2}, rebalance={"protocol": "Consumer"})
    scene.wait_for("WorkersReady", "False", "WorkersStarting")
    scene.wait(lambda: "waits until fewer" in scene.condition("WorkersReady")["message"], "the rollout is held back")
    scene.api.kubectl("scale", "delayedtopic", scene.topic, f"--namespace={scene.namespace}", "--replicas=4")
    scene.wait_event("WorkersScaled", "from 2 to 4")
    assert (spec()["replicas"], spec()["template"]) == (4, before["template"])


def _seen(scene: Scene, name: str) -> bool:
    """Whether Kubernetes has a pod of the StatefulSet, and has seen how it is declared."""
    found = scene.api.get("StatefulSet", name, SYSTEM_NAMESPACE) or {}
    status = found.get("status") or {}
    return status.get("observedGeneration") == found["metadata"]["generation"] and status.get("replicas") == 1


def _replaced_by_hand(name: str, image: str) -> dict[str, Any]:
    """A StatefulSet as the operator's, whose pods stay as they are when it is changed."""
    labels = {"app.kubernetes.io/name": APP, "app.kubernetes.io/managed-by": MANAGED_BY, "other": name}
    pod = {"containers": [{"name": "worker", "image": image}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels},
        "spec": {
            "serviceName": name,
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


@pytest.mark.slow
def test_a_worker_that_was_scaled_away_holds_no_reader_back(scene: Scene) -> None:
    """Its transaction would last for 60 seconds here."""

    def pods() -> int:
        return int(((scene.resource() or {})["status"].get("workers") or {}).get("replicas", 0))

    def stable_end() -> object:
        return scene.kafka.list_offsets([ready], "latest", isolation="read_committed")[ready]

    scene.apply(guarantee="ExactlyOnce", workers={"replicas": 2})
    scene.wait_until_served()
    scene.wait(lambda: pods() == 2, "there are two pods")
    ready = (f"{scene.topic}.ready", 0)
    worker = (scene.stateful_set() or {})["metadata"]["name"] + "-1"
    own_id = transactional_id(f"delayedtopics.{scene.topic}", worker)
    gone = Producer({**scene.connection.client_config(), "transactional.id": own_id})
    gone.init_transactions(120)
    gone.begin_transaction()
    gone.produce(ready[0], b"v", partition=0)
    gone.flush(120)
    assert stable_end() == 0

    scene.api.kubectl("scale", "delayedtopic", scene.topic, f"--namespace={scene.namespace}", "--replicas=1")

    scene.wait(lambda: stable_end() == 2, "the transaction is ended")
    scene.wait(lambda: pods() == 1, "one pod is left")
