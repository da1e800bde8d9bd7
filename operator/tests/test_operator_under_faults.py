"""API server, Kafka, rights and the operator itself go away and come back."""

import time
from collections.abc import Iterator

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess
from delayed_topics_operator_testing.scene import Scene

pytestmark = pytest.mark.api

HEALED_SECONDS = 300


@pytest.fixture
def impatient(api: KubeApi) -> Iterator[Scene]:
    """A scene with a broker of its own, whose operator waits for seconds where it should wait for minutes."""
    with Broker() as broker:
        made = Scene(api, broker, OperatorProcess(api, "--resync-seconds=3", "--gone-after-seconds=6"))
        try:
            made.open()
            yield made
        finally:
            made.close()


@pytest.mark.slow
def test_an_api_server_that_was_away_is_caught_up_with(scene: Scene) -> None:
    scene.apply()
    scene.wait_until_served()
    scene.api.server.stop_server()
    scene.kafka.alter_topic_configs({scene.topic: {"message.timestamp.type": "CreateTime"}})
    scene.api.server.start_server_again()
    scene.apply(retryCap=9)
    scene.wait(
        lambda: scene.registry().layouts[scene.topic].retry_cap == 9, "the edit is followed", seconds=HEALED_SECONDS
    )


@pytest.mark.slow
def test_an_api_server_that_hangs_is_caught_up_with(scene: Scene) -> None:
    scene.apply()
    scene.wait_until_served()
    before = scene.operator.counted("delayed_topics_operator_kube_calls_total", status="none")
    scene.api.server.pause_server()
    try:
        scene.wait(
            lambda: scene.operator.counted("delayed_topics_operator_kube_calls_total", status="none") > before,
            "a call is given up",
            seconds=HEALED_SECONDS,
        )
    finally:
        scene.api.server.resume_server()
    scene.apply(retryCap=9)
    scene.wait(
        lambda: scene.registry().layouts[scene.topic].retry_cap == 9, "the edit is followed", seconds=HEALED_SECONDS
    )


@pytest.mark.slow
def test_a_connection_that_does_not_answer_does_not_hold_up_others(scene: Scene) -> None:
    scene.api.apply(scene.cluster_connection("dead", bootstrap="127.0.0.1:1"))
    for n in range(5):
        reference = {"kind": "ClusterKafkaConnection", "name": "dead"}
        scene.api.apply(scene.delayed_topic(f"dead-{n}", connectionRef=reference))
    scene.apply()
    scene.wait_until_served()
    scene.wait_for("Ready", "False", "KafkaUnreachable", name="dead-0", seconds=HEALED_SECONDS)


@pytest.mark.slow
def test_deleting_with_kafka_gone_leaves_the_topics_with_a_warning(impatient: Scene) -> None:
    scene = impatient
    scene.apply(deletionPolicy="Delete")
    scene.wait_until_served()
    scene.broker.stop()
    scene.wait_for("Ready", "False", "KafkaUnreachable", seconds=HEALED_SECONDS)
    scene.delete()
    scene.wait(lambda: scene.stateful_set() is None, "the workers are gone")
    scene.wait_event("KafkaUnreachable", "deletionPolicy Retain")


@pytest.mark.slow
def test_deleting_after_the_connection_was_deleted_is_not_held_up_for_ever(impatient: Scene) -> None:
    scene = impatient
    scene.apply()
    scene.wait_until_served()
    scene.api.kubectl("delete", "clusterkafkaconnection", "default", "--wait=false")
    scene.patch("ClusterKafkaConnection", "default", {"metadata": {"finalizers": None}})  # by hand, although it is used
    scene.wait_for("Ready", "False", "ConnectionMissing")
    scene.delete()
    assert len(scene.topics()) == 4


def test_two_operators_at_once_make_one_of_everything(scene: Scene) -> None:
    second = OperatorProcess(scene.api, "--resync-seconds=3")
    try:
        second.start()
        scene.apply(partitions=4)
        scene.wait_until_served()
        scene.apply(partitions=7)
        scene.wait(lambda: scene.topics()[f"{scene.topic}.delays"] == 7, "the topic has grown")
        scene.wait_for("TopicsReady", "True")
        claims = [e for e in scene.registry().claims.values() if e.claim.topic == scene.topic]
        assert len(claims) == 1
        assert len(scene.registry().layouts[scene.topic].layout.partition_delays) == 7
    finally:
        second.close()


@pytest.mark.slow
def test_somebody_who_fights_over_the_workers_is_answered_at_most_once_a_second(scene: Scene) -> None:
    scene.apply()
    scene.wait_until_served()
    workers = scene.stateful_set()
    assert workers is not None
    name = workers["metadata"]["name"]
    before = scene.operator.counted("delayed_topics_operator_kube_calls_total", verb="APPLY", kind="StatefulSet")
    began = time.monotonic()
    for replicas in range(3, 23):
        scene.patch("StatefulSet", name, {"spec": {"replicas": replicas}}, namespace=SYSTEM_NAMESPACE)
    scene.wait(lambda: (scene.stateful_set() or {})["spec"]["replicas"] == 1, "the last word is the operator's")
    writes = (
        scene.operator.counted("delayed_topics_operator_kube_calls_total", verb="APPLY", kind="StatefulSet") - before
    )
    assert writes <= time.monotonic() - began + 2
