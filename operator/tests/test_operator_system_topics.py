"""Somebody deletes or changes a topic that all workers of a Kafka need, and the operator soon restores it."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer
from delayed_topics_core.names import CLOCK_TOPIC, EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.system_topics import SYSTEM_TOPICS, system_topic_settings
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess

pytestmark = pytest.mark.api

REFUSED = "unclean.leader.election.enable"
CALLS = "delayedtopics_operator_kafka_calls_total"


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """Yields a broker that creates a topic with three partitions when somebody writes to it.

    The broker refuses one of the wanted settings, and has another value for it.
    """
    with Broker(settings={"num.partitions": "3", REFUSED: "true"}, refusing=[REFUSED]) as broker:
        yield broker


@pytest.fixture
def harness(api: KubeApi, own_broker: Broker) -> Iterator[OperatorHarness]:
    """Yields a harness with a usable connection to this broker."""
    with OperatorHarness(api, own_broker, OperatorProcess(api, "--resync-seconds=3")).opened() as made:
        made.wait(lambda: ready(made) == "True", "the connection can be used", seen=made.connection_status)
        yield made


def ready(harness: OperatorHarness) -> str:
    conditions = harness.connection_status().get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == "Ready"), "")


def wrong(harness: OperatorHarness) -> list[str]:
    """Returns the errors of missing topics, and the settings that are not as wanted."""
    found: list[str] = []
    for topic, settings in harness.kafka.topic_configs(SYSTEM_TOPICS).items():
        if not isinstance(settings, dict):
            found.append(str(settings))
            continue
        wanted = system_topic_settings(topic, replication_factor=1)
        found += [f"{topic} {name}" for name in wanted if settings[name] != wanted[name] and name != REFUSED]
    return found


def stamped(harness: OperatorHarness, topic: str) -> bool:
    """Returns whether a record gets the broker's time, which workers need in the clock topic."""
    kinds: list[int] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is None:
            kinds.append(message.timestamp()[0])

    producer = Producer({"bootstrap.servers": harness.broker.bootstrap})
    producer.produce(topic, b"", partition=0, on_delivery=acknowledged)
    assert producer.flush(60) == 0
    return kinds == [TIMESTAMP_LOG_APPEND_TIME]


def test_what_was_deleted_or_changed_is_as_before_after_the_next_look(harness: OperatorHarness) -> None:
    registry_id = harness.connection_status()["registryTopicId"]
    changes = {
        REGISTRY_TOPIC: {"cleanup.policy": "delete", "delete.retention.ms": "1000"},
        EVENTS_TOPIC: {"retention.bytes": "1000"},
    }
    outcomes = harness.kafka.alter_topic_configs(changes)
    assert set(outcomes.values()) == {None}
    harness.kafka.delete_topics([CLOCK_TOPIC])
    harness.wait(
        lambda: wrong(harness) == [], "all system topics are as before", seen=lambda: wrong(harness), seconds=60
    )
    assert stamped(harness, CLOCK_TOPIC)
    assert (ready(harness), harness.connection_status()["registryTopicId"]) == ("True", registry_id)


def test_system_topics_that_the_broker_made_because_a_worker_wrote_to_them_are_repaired_and_used(
    harness: OperatorHarness,
) -> None:
    harness.operator.freeze()
    harness.kafka.delete_topics([CLOCK_TOPIC, EVENTS_TOPIC])
    assert [stamped(harness, topic) for topic in (CLOCK_TOPIC, EVENTS_TOPIC)] == [False, False]
    harness.operator.go_on()
    harness.wait(lambda: stamped(harness, CLOCK_TOPIC), "workers can read the broker's time", seconds=60)
    harness.wait(
        lambda: wrong(harness) == [], "all system topics are as before", seen=lambda: wrong(harness), seconds=60
    )
    harness.apply()
    harness.wait_until_served()


def test_a_look_asks_once_for_their_settings_and_a_refused_one_is_not_tried_each_time(harness: OperatorHarness) -> None:
    def calls(name: str) -> float:
        return harness.operator.counted(CALLS, call=name)

    looks, asked, repaired = calls("describe_cluster"), calls("describe_configs"), calls("ensure_system_topics")
    harness.wait(lambda: calls("describe_cluster") >= looks + 4, "the connection is looked at again")
    assert calls("ensure_system_topics") == repaired
    assert 3 <= calls("describe_configs") - asked <= calls("describe_cluster") - looks + 1
