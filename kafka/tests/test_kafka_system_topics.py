from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import CLOCK_TOPIC, EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import KafkaRefused, RegistryLost
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka.system_topics import drifted_settings, ensure_system_topics, system_topic_settings

pytestmark = pytest.mark.broker
ALL = [REGISTRY_TOPIC, EVENTS_TOPIC, CLOCK_TOPIC]


def settings_of(admin: KafkaAdmin, topic: str) -> dict[str, str]:
    settings = admin.topic_configs([topic])[topic]
    assert isinstance(settings, dict)
    wanted = system_topic_settings(topic, replication_factor=1)
    return {name: settings[name] for name in wanted}


def all_as_wanted(admin: KafkaAdmin) -> bool:
    return all(settings_of(admin, topic) == system_topic_settings(topic, replication_factor=1) for topic in ALL)


def test_system_topics_are_made_repaired_and_left_alone(own_broker: Broker) -> None:
    admin = KafkaAdmin(Connection(bootstrap_servers=own_broker.bootstrap))
    made = ensure_system_topics(admin, replication_factor=1)
    assert {topic: info.partitions for topic, info in made.items()} == dict.fromkeys(ALL, 1)
    assert all_as_wanted(admin)

    wrong = {REGISTRY_TOPIC: {"cleanup.policy": "delete"}, CLOCK_TOPIC: {"message.timestamp.type": "CreateTime"}}
    admin.alter_topic_configs(wrong)
    # a broker learns of changed settings a moment after the controller has accepted them
    deadline = Deadline(120)
    assert until_true(lambda: all(w.items() <= settings_of(admin, t).items() for t, w in wrong.items()), deadline)
    assert ensure_system_topics(admin, replication_factor=1) == made
    assert until_true(lambda: all_as_wanted(admin), deadline)


def test_an_auto_created_clock_is_repaired_and_a_registry_of_three_partitions_refused(own_broker: Broker) -> None:
    admin = KafkaAdmin(Connection(bootstrap_servers=own_broker.bootstrap))
    admin.delete_topics(ALL)
    admin.create_topics([NewTopicSpec(name=CLOCK_TOPIC, partitions=3, replication_factor=1)])
    ensure_system_topics(admin, replication_factor=1)
    assert until_true(
        lambda: settings_of(admin, CLOCK_TOPIC)["message.timestamp.type"] == "LogAppendTime", Deadline(120)
    )
    admin.delete_topics([REGISTRY_TOPIC])
    admin.create_topics([NewTopicSpec(name=REGISTRY_TOPIC, partitions=3, replication_factor=1)])
    with pytest.raises(KafkaRefused, match="must have one partition, but has 3"):
        ensure_system_topics(admin, replication_factor=1)


def test_a_registry_that_was_used_before_is_neither_made_anew_nor_taken_for_another(own_broker: Broker) -> None:
    admin = KafkaAdmin(Connection(bootstrap_servers=own_broker.bootstrap))
    admin.delete_topics(ALL)
    first = ensure_system_topics(admin, replication_factor=1)[REGISTRY_TOPIC].id
    assert ensure_system_topics(admin, replication_factor=1, registry_id=first)[REGISTRY_TOPIC].id == first
    admin.delete_topics([REGISTRY_TOPIC])
    with pytest.raises(RegistryLost, match=f"{first} was deleted, so it is unknown which resource owns which topic"):
        ensure_system_topics(admin, replication_factor=1, registry_id=first)
    assert admin.describe_topics([REGISTRY_TOPIC]) == {REGISTRY_TOPIC: None}
    second = ensure_system_topics(admin, replication_factor=1)[REGISTRY_TOPIC].id
    with pytest.raises(RegistryLost, match=f"{first} was deleted and created again .its id is {second} now"):
        ensure_system_topics(admin, replication_factor=1, registry_id=first)


@pytest.mark.slow
def test_a_registry_whose_cleanup_policy_was_changed_loses_nothing_until_it_is_repaired() -> None:
    """This holds whatever retention the brokers have for topics without a retention of their own."""
    settings = {
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.retention.ms": "1000",
    }
    with Broker(settings=settings) as broker:
        admin = KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)
        ensure_system_topics(admin, replication_factor=1)
        admin.create_topics([NewTopicSpec(name="plain", partitions=1, replication_factor=1)])
        admin.alter_topic_configs({REGISTRY_TOPIC: {"cleanup.policy": "delete"}})
        producer = Producer({"bootstrap.servers": broker.bootstrap})

        def first(topic: str) -> object:
            return admin.list_offsets([(topic, 0)], "earliest")[topic, 0]

        def removed(records: int) -> bool:
            return first("plain") == records

        for written in (1, 2):  # after the first round, retention has checked all topics
            for topic in ("plain", REGISTRY_TOPIC):
                producer.produce(topic, b"{}", key=b"claim/orders", partition=0)
            assert producer.flush(60) == 0
            wait_until(partial(removed, written), what="retention has removed the record of another topic")
        assert settings_of(admin, REGISTRY_TOPIC)["cleanup.policy"] == "delete"
        assert first(REGISTRY_TOPIC) == 0


def test_with_three_replicas_one_may_be_missing_as_soon_as_they_are_in_sync() -> None:
    info = TopicInfo(name=REGISTRY_TOPIC, id="i", partitions=1, replication_factor=3, leaders_known=True)
    of_one = system_topic_settings(REGISTRY_TOPIC, replication_factor=1)
    assert drifted_settings(info, of_one, replication_factor=3) == {"min.insync.replicas": "2"}
    joining = replace(info, lagging=(0,))
    assert drifted_settings(joining, of_one, replication_factor=3) == {}, "otherwise no one could write"
    too_many = {**of_one, "min.insync.replicas": "3"}
    assert drifted_settings(joining, too_many, replication_factor=3) == {"min.insync.replicas": "2"}
