"""The whole operator on a real API server and a real broker, without nodes. Tests that need workers are in e2e."""

from typing import Any

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import transactional_id
from delayed_topics_operator.values.labels import APP, MANAGED_BY
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE

pytestmark = pytest.mark.api


def test_a_manifest_becomes_topics_offsets_a_layout_and_workers(harness: OperatorHarness) -> None:
    harness.apply(partitions=4)
    harness.wait_until_served()
    t = harness.topic
    assert harness.topics() == {t: 3, f"{t}.delays": 4, f"{t}.ready": 3, f"{t}.dead": 3}
    (committed,) = harness.kafka.committed_of_groups({f"delayedtopics.{t}": None}).values()
    assert isinstance(committed, dict), committed
    assert len([at for at in committed.values() if at is not None]) == 7
    assert harness.registry().layouts[t].state == "serving"
    for reason in ("Claimed", "TopicsCreated", "LayoutServing", "WorkersCreated"):
        harness.wait_event(reason)


def test_edits_are_followed(harness: OperatorHarness) -> None:
    harness.apply(partitions=2)
    harness.wait_until_served()
    harness.apply(partitions=6, delaySeconds=[0, 10, 60], retryCap=9)

    def followed() -> bool:
        record = harness.registry().layouts[harness.topic]
        return record.state == "serving" and record.layout.partition_count == 6 and record.retry_cap == 9

    harness.wait(followed, "the layout is served")
    assert harness.topics()[f"{harness.topic}.ready"] == harness.topics()[harness.topic] == 4
    harness.api.kubectl("scale", "delayedtopic", harness.topic, f"--namespace={harness.namespace}", "--replicas=3")
    harness.wait(lambda: (harness.stateful_set() or {})["spec"]["replicas"] == 3, "three workers are wanted")


@pytest.mark.slow
def test_workers_are_scaled_while_others_are_replaced_first(harness: OperatorHarness) -> None:
    """Five rollouts may be under way at a time, and here five never end."""

    def spec() -> dict[str, Any]:
        return dict((harness.stateful_set() or {})["spec"])

    def rolls(name: str) -> bool:
        status = (harness.api.get("StatefulSet", name, SYSTEM_NAMESPACE) or {})["status"]
        return bool(status.get("currentRevision") != status.get("updateRevision"))

    harness.apply(workers={"replicas": 2})
    harness.wait_until_served()
    before = spec()
    others = [f"{harness.topic}-other-{n}" for n in range(5)]
    for image in ("worker:1", "worker:2"):
        harness.api.apply(*(_replaced_by_hand(name, image) for name in others))
        harness.wait(lambda: all(_seen(harness, name) for name in others), "the other workers are as declared")
    assert all(rolls(name) for name in others)

    harness.apply(workers={"replicas": 2}, rebalance={"protocol": "Consumer"})
    harness.wait_for("WorkersReady", "False", "WorkersStarting")
    harness.wait(
        lambda: "waits until fewer" in harness.condition("WorkersReady")["message"], "the rollout is held back"
    )
    harness.api.kubectl("scale", "delayedtopic", harness.topic, f"--namespace={harness.namespace}", "--replicas=4")
    harness.wait_event("WorkersScaled", "from 2 to 4")
    assert (spec()["replicas"], spec()["template"]) == (4, before["template"])


def _seen(harness: OperatorHarness, name: str) -> bool:
    """Returns whether the StatefulSet has a pod and Kubernetes has observed its latest spec."""
    found = harness.api.get("StatefulSet", name, SYSTEM_NAMESPACE) or {}
    status = found.get("status") or {}
    return status.get("observedGeneration") == found["metadata"]["generation"] and status.get("replicas") == 1


def _replaced_by_hand(name: str, image: str) -> dict[str, Any]:
    """Returns a StatefulSet like the operator's, whose pods stay as they are when its template changes."""
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


def test_a_delayed_topic_that_is_not_ready_has_a_series_of_its_own(harness: OperatorHarness) -> None:
    def not_ready(**labels: str) -> float:
        of_it = {"resource_namespace": harness.namespace, "resource_name": harness.topic}
        return harness.operator.counted("delayedtopics_operator_not_ready", **of_it, **labels)

    harness.apply()
    harness.wait_for("Ready", "False", "WorkersStarting")
    harness.wait(lambda: not_ready(reason="WorkersStarting") == not_ready() == 1, "the DelayedTopic is counted")
    harness.wait_until_ready()
    harness.wait(lambda: not_ready() == 0, "the DelayedTopic is no longer counted")


def test_that_there_are_no_workers_is_told_with_what_becomes_of_the_records(harness: OperatorHarness) -> None:
    harness.apply(workers={"replicas": 0})
    harness.wait_for("Ready", "False", "ScaledToZero")
    harness.wait_event("ScaledToZero", "Kafka removes each record when it is older than the retention.ms of its topic")


@pytest.mark.slow
def test_its_own_workers_stay_as_they_are_until_shared_ones_are_ready(harness: OperatorHarness) -> None:
    """This includes what the API server makes of the declared spec, such as `cpu: 500m` for `0.5`."""
    template = {
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "resources": {"requests": {"cpu": "0.5"}, "limits": {"cpu": 1, "memory": "1024Mi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "k"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    }
    granted = {
        "labels": ["team"],
        "annotations": ["note"],
        "nodeSelectors": ["disk"],
        "tolerations": ["k"],
        "affinity": True,
    }
    connection = harness.cluster_connection(
        allow=[{"namespaceSelector": {}, "topicPrefixes": [""], "template": granted}]
    )
    harness.api.apply(connection)
    harness.apply(workers={"replicas": 3, "template": template})
    harness.wait_until_served()
    before = (harness.stateful_set() or {})["spec"]
    connection["spec"]["sharedWorkers"] = {"replicas": 1}
    harness.api.apply(connection)
    shared = "default-cluster-shared"
    harness.wait(
        lambda: harness.api.get("StatefulSet", shared, SYSTEM_NAMESPACE) is not None, "there are shared workers"
    )

    harness.apply()

    def followed() -> bool:
        found = harness.resource() or {}
        return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])

    harness.wait(followed, "the edit is followed")
    assert "workers" not in (harness.resource() or {})["spec"]
    assert (harness.stateful_set() or {})["spec"] == before
    harness.wait_until_ready()
    harness.wait(lambda: harness.stateful_set() is None, "the shared workers have its topics")


@pytest.mark.slow
def test_a_worker_that_was_scaled_away_holds_no_reader_back(harness: OperatorHarness) -> None:
    """Its open transaction would hold readers back for 60 seconds here."""

    def pods() -> int:
        return int(((harness.resource() or {})["status"].get("workers") or {}).get("replicas", 0))

    def stable_end() -> object:
        return harness.kafka.list_offsets([ready], "latest", isolation="read_committed")[ready]

    harness.apply(guarantee="ExactlyOnce", workers={"replicas": 2})
    harness.wait_until_served()
    harness.wait(lambda: pods() == 2, "there are two pods")
    ready = (f"{harness.topic}.ready", 0)
    worker = (harness.stateful_set() or {})["metadata"]["name"] + "-1"
    own_id = transactional_id(f"delayedtopics.{harness.topic}", worker)
    gone = Producer({**harness.connection.client_config(), "transactional.id": own_id})
    gone.init_transactions(120)
    gone.begin_transaction()
    gone.produce(ready[0], b"v", partition=0)
    gone.flush(120)
    assert stable_end() == 0

    harness.api.kubectl("scale", "delayedtopic", harness.topic, f"--namespace={harness.namespace}", "--replicas=1")

    harness.wait(lambda: stable_end() == 2, "the transaction is ended")
    harness.wait(lambda: pods() == 1, "one pod is left")
