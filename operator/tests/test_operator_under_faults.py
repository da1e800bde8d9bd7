"""The API server, Kafka, rights and the operator itself go away and come back."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from delayed_topics_devcluster.broker import Broker, Brokers
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import SYSTEM_NAMESPACE, OperatorProcess

pytestmark = pytest.mark.api

HEALED_SECONDS = 300


@pytest.fixture
def impatient(api: KubeApi) -> Iterator[OperatorHarness]:
    """Yields a harness with a broker of its own, whose operator waits for seconds where it would wait for minutes."""
    with (
        Broker() as broker,
        OperatorHarness(
            api, broker, OperatorProcess(api, "--resync-seconds=3", "--gone-after-seconds=6")
        ).opened() as made,
    ):
        yield made


@pytest.mark.slow
def test_an_api_server_that_was_away_is_caught_up_with(harness: OperatorHarness) -> None:
    harness.apply()
    harness.wait_until_served()
    harness.api.server.stop_server()
    harness.kafka.alter_topic_configs({harness.topic: {"message.timestamp.type": "CreateTime"}})
    harness.api.server.start_server_again()
    harness.apply(retryCap=9)
    harness.wait(
        lambda: harness.registry().layouts[harness.topic].retry_cap == 9, "the edit is followed", seconds=HEALED_SECONDS
    )


@pytest.mark.slow
def test_an_api_server_that_hangs_is_caught_up_with(harness: OperatorHarness) -> None:
    harness.apply()
    harness.wait_until_served()
    before = harness.operator.counted("delayedtopics_operator_kube_calls_total", status="none")
    harness.api.server.pause_server()
    try:
        harness.wait(
            lambda: harness.operator.counted("delayedtopics_operator_kube_calls_total", status="none") > before,
            "a call is given up",
            seconds=HEALED_SECONDS,
        )
    finally:
        harness.api.server.resume_server()
    harness.apply(retryCap=9)
    harness.wait(
        lambda: harness.registry().layouts[harness.topic].retry_cap == 9, "the edit is followed", seconds=HEALED_SECONDS
    )


@pytest.mark.slow
def test_a_connection_that_does_not_answer_does_not_hold_up_others(harness: OperatorHarness) -> None:
    harness.api.apply(harness.cluster_connection("dead", bootstrap="127.0.0.1:1"))
    for n in range(5):
        reference = {"kind": "ClusterKafkaConnection", "name": "dead"}
        harness.api.apply(harness.delayed_topic(f"dead-{n}", connectionRef=reference))
    harness.apply()
    harness.wait_until_served()
    harness.wait_for("Ready", "False", "KafkaUnreachable", name="dead-0", seconds=HEALED_SECONDS)


@pytest.mark.slow
def test_deleting_with_kafka_gone_leaves_the_topics_with_a_warning(impatient: OperatorHarness) -> None:
    harness = impatient
    harness.apply(deletionPolicy="Delete")
    harness.wait_until_served()
    harness.broker.stop()
    harness.wait_for("Ready", "False", "KafkaUnreachable", seconds=HEALED_SECONDS)
    harness.delete()
    harness.wait(lambda: harness.stateful_set() is None, "the workers are gone")
    harness.wait_event("KafkaUnreachable", "deletionPolicy Retain")


@pytest.mark.slow
def test_deleting_after_the_connection_was_deleted_is_not_held_up_for_ever(impatient: OperatorHarness) -> None:
    harness = impatient
    harness.apply()
    harness.wait_until_served()
    harness.api.kubectl("delete", "clusterkafkaconnection", "default", "--wait=false")
    harness.patch(
        "ClusterKafkaConnection", "default", {"metadata": {"finalizers": None}}
    )  # by hand, although the connection is used
    harness.wait_for("Ready", "False", "ConnectionMissing")
    harness.delete()
    assert len(harness.topics()) == 4


def test_two_operators_at_once_make_one_of_everything(harness: OperatorHarness) -> None:
    second = OperatorProcess(harness.api, "--resync-seconds=3")
    try:
        second.start()
        harness.apply(partitions=4)
        harness.wait_until_served()
        harness.apply(partitions=7)
        harness.wait(lambda: harness.topics()[f"{harness.topic}.delays"] == 7, "the topic has grown")
        harness.wait_for("TopicsReady", "True")
        claims = [e for e in harness.registry().claims.values() if e.claim.topic == harness.topic]
        assert len(claims) == 1
        assert len(harness.registry().layouts[harness.topic].layout.partition_delays) == 7
    finally:
        second.close()


@pytest.mark.slow
def test_somebody_who_fights_over_the_workers_is_answered_at_most_once_a_second(harness: OperatorHarness) -> None:
    harness.apply()
    harness.wait_until_served()
    workers = harness.stateful_set()
    assert workers is not None
    name = workers["metadata"]["name"]
    before = harness.operator.counted("delayedtopics_operator_kube_calls_total", verb="APPLY", kind="StatefulSet")
    began = time.monotonic()
    for replicas in range(3, 23):
        harness.patch("StatefulSet", name, {"spec": {"replicas": replicas}}, namespace=SYSTEM_NAMESPACE)
    harness.wait(lambda: (harness.stateful_set() or {})["spec"]["replicas"] == 1, "the operator has the last word")
    writes = (
        harness.operator.counted("delayedtopics_operator_kube_calls_total", verb="APPLY", kind="StatefulSet") - before
    )
    assert writes <= time.monotonic() - began + 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [{"replicas": 1}, {"autoscale": {"max": 3}}])
def test_a_topic_some_partitions_of_which_have_no_leader_is_paused_and_resumed(
    api: KubeApi, workers: dict[str, Any]
) -> None:
    with (
        Brokers() as brokers,
        OperatorHarness(api, brokers.members[0], OperatorProcess(api, "--resync-seconds=3")).opened() as harness,
    ):
        harness.apply(partitions=6, replicationFactor=1, workers=workers)
        harness.wait_until_served()
        brokers.members[1].kill()
        harness.wait(
            lambda: "no leader" in harness.condition("TopicsReady").get("message", ""),
            "the condition says that partitions have no leader",
            seen=lambda: harness.condition("TopicsReady"),
        )
        for number, paused in enumerate((True, False)):
            spec = {"paused": paused, "retryCap": number}
            harness.apply(partitions=6, replicationFactor=1, workers=workers, **spec)
            wait_for_layout(harness, paused=paused, retry_cap=number)


def wait_for_layout(harness: OperatorHarness, *, paused: bool, retry_cap: int) -> None:
    def followed() -> bool:
        layout = harness.registry().layouts[harness.topic]
        return (layout.paused, layout.retry_cap) == (paused, retry_cap)

    harness.wait(followed, "the edit is followed", seen=lambda: harness.condition("Ready"))
