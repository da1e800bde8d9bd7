"""A broker with a policy, as in managed services. A setting that it refuses does not affect other settings and topics."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from delayed_topics_core.names import CLOCK_TOPIC, REGISTRY_TOPIC
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaRefused, LeadersMissing, SettingsRefused
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka.topics import Known

pytestmark = pytest.mark.broker
Fresh = Callable[[str], str]
DURABILITY = ("min.insync.replicas", "unclean.leader.election.enable")


@pytest.fixture(scope="module")
def strict() -> Iterator[KafkaAdmin]:
    with Broker(refusing=DURABILITY) as broker:
        yield KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)


def settings(admin: KafkaAdmin, topic: str) -> dict[str, str]:
    found = admin.topic_configs([topic])[topic]
    assert isinstance(found, dict), found
    return found


def spec(name: str, **config: str) -> NewTopicSpec:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return NewTopicSpec(name=name, partitions=2, replication_factor=1, config=named)


@pytest.mark.slow
def test_a_topic_is_made_without_the_settings_that_are_refused_and_with_the_others(
    strict: KafkaAdmin, fresh: Fresh
) -> None:
    name, plain = fresh("left-out"), fresh("plain")
    asked = spec(name, retention_ms="60000", min_insync_replicas="1", unclean_leader_election_enable="false")
    made = strict.create_topics([asked, spec(plain, retention_ms="70000")])
    info = made[name]
    assert isinstance(info, TopicInfo)
    assert (info.partitions, info.left_out) == (2, DURABILITY)
    assert settings(strict, name)["retention.ms"] == "60000"
    other = made[plain]
    assert isinstance(other, TopicInfo)
    assert other.left_out == ()


def test_a_topic_whose_leaders_take_too_long_is_told_with_what_it_was_made_without(
    strict: KafkaAdmin, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens while the broker that is to be the leader is down."""
    name = fresh("late")
    describe = KafkaAdmin._describe

    def without_leaders(admin: KafkaAdmin, names: Sequence[str], deadline: Deadline) -> dict[str, Known]:
        found = describe(admin, names, deadline)
        return {name: replace(info, leaders_known=False) for name, info in found.items() if isinstance(info, TopicInfo)}

    monkeypatch.setattr(KafkaAdmin, "_describe", without_leaders)
    monkeypatch.setattr(strict, "_timeout_seconds", 2)
    late = strict.create_topics([spec(name, min_insync_replicas="1")])[name]
    monkeypatch.undo()
    assert isinstance(late, LeadersMissing)
    made = strict.describe_topics([name])[name]
    assert isinstance(made, TopicInfo)
    assert (late.made.id, late.made.left_out) == (made.id, ("min.insync.replicas",))


def test_a_topic_that_is_refused_for_something_else_is_not_made(strict: KafkaAdmin, fresh: Fresh) -> None:
    name = fresh("too-many")
    refused = strict.create_topics(
        [NewTopicSpec(name=name, partitions=1, replication_factor=7, config={"min.insync.replicas": "1"})]
    )[name]
    assert isinstance(refused, KafkaRefused)
    assert strict.describe_topics([name]) == {name: None}


def test_refused_settings_are_told_each_with_kafkas_words_and_the_others_are_set(
    strict: KafkaAdmin, fresh: Fresh
) -> None:
    name = fresh("changed")
    strict.create_topics([spec(name)])
    outcome = strict.alter_topic_configs({name: {"retention.ms": "60000", "min.insync.replicas": "2"}})[name]
    assert isinstance(outcome, SettingsRefused)
    assert outcome.words_of == {
        "min.insync.replicas": "Altering topic config property 'min.insync.replicas' is disallowed"
    }
    wait_until(lambda: settings(strict, name)["retention.ms"] == "60000", what="the broker reports the new setting")


def test_the_systems_own_topics_go_without_what_they_can(strict: KafkaAdmin) -> None:
    for _ in range(2):
        assert set(ensure_system_topics(strict, replication_factor=1)) >= {REGISTRY_TOPIC, CLOCK_TOPIC}
    assert settings(strict, CLOCK_TOPIC)["message.timestamp.type"] == "LogAppendTime"


def test_without_the_brokers_time_nothing_begins_and_it_is_said_why() -> None:
    with Broker(refusing=["message.timestamp.type"]) as broker:
        admin = KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)
        for _ in range(2):
            with pytest.raises(KafkaRefused, match=r"refuses message\.timestamp\.type=LogAppendTime of topic .*clock"):
                ensure_system_topics(admin, replication_factor=1)


@pytest.mark.slow
def test_what_the_systems_topics_lack_is_told() -> None:
    with Broker(refusing=DURABILITY, settings={"min.insync.replicas": "2"}) as broker:
        admin = KafkaAdmin(Connection(bootstrap_servers=broker.bootstrap), timeout_seconds=60)
        for _ in range(2):
            made = ensure_system_topics(admin, replication_factor=1)
            assert made[REGISTRY_TOPIC].left_out == ("min.insync.replicas",)
