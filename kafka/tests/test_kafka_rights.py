"""The errors that a user without rights gets."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from delayed_topics_core.events import Event
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import TopicsRecord
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import ControlReader
from delayed_topics_kafka.errors import KafkaCallError, NotAuthorized
from delayed_topics_kafka.events import EventWriter
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only, lift, rule

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with Broker(settings={**AUTHORIZER, **PATIENT}) as broker:
        yield Connection(bootstrap_servers=broker.bootstrap)


def assert_not_authorized(outcome: object, *words: str) -> None:
    assert isinstance(outcome, NotAuthorized)
    assert all(word in str(outcome) for word in (*words, "Either grant this to the user of the connection"))


def test_the_registry_is_followed_without_rights_on_any_group(connection: Connection) -> None:
    ensure_system_topics(KafkaAdmin(connection), replication_factor=1)
    rule(connection, ResourceType.GROUP, "delayedtopics.readers", [AclOperation.ALL])
    with RegistryFollower(connection) as follower:
        RegistryWriter(follower, connection).write([TopicsRecord(topic="orders")])
        follower.poll(1)
        assert follower.state.topics == {"orders": TopicsRecord(topic="orders")}


def test_for_how_long_offsets_are_kept_is_told_to_whoever_may_read_the_settings_of_the_brokers(
    connection: Connection,
) -> None:
    cluster = (connection, ResourceType.BROKER, "kafka-cluster")
    assert KafkaAdmin(connection).offsets_retention_ms() == 7 * 86_400_000
    deny_only(*cluster, AclOperation.DESCRIBE_CONFIGS)
    assert KafkaAdmin(connection).offsets_retention_ms() is None
    lift(*cluster)


def test_without_the_right_to_write_anything_events_are_counted_and_the_registry_says_why(
    connection: Connection,
) -> None:
    """In this case Kafka refuses the producer itself, and not only its records."""
    ensure_system_topics(KafkaAdmin(connection), replication_factor=1)
    denied = [
        (connection, ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
        (connection, ResourceType.TOPIC, "*", AclOperation.WRITE),
    ]
    for rights in denied:
        deny_only(*rights)
    try:
        writer = EventWriter(replace(connection, further={**connection.further, "log_level": 0}), client_id="w-0")
        event = Event(kind="worker-started", topic="orders", member="pod-0", at_ms=1, detail={})

        def all_counted() -> bool:
            writer.write(event)
            return writer.failed > 0

        wait_until(all_counted, what="events are counted as failed")
        writer.close(20)
        with RegistryFollower(connection) as follower, pytest.raises(KafkaCallError, match="AUTHORIZATION_FAILED"):
            RegistryWriter(follower, connection).write([TopicsRecord(topic="orders")])
    finally:
        for rights in denied:
            lift(*rights[:3])


def test_one_forbidden_topic_is_named_and_hides_no_other(connection: Connection) -> None:
    admin = KafkaAdmin(connection)
    admin.create_topics(
        [NewTopicSpec(name=name, partitions=1, replication_factor=1) for name in ("open", "secret", "read-only")]
    )
    # a user who may delete in the cluster may delete any topic
    rule(connection, ResourceType.BROKER, "kafka-cluster", [AclOperation.ALL], AclPermissionType.ALLOW)
    rule(connection, ResourceType.BROKER, "kafka-cluster", [AclOperation.DELETE])
    rule(connection, ResourceType.TOPIC, "secret", [AclOperation.ALL])
    rule(connection, ResourceType.TOPIC, "read-only", [AclOperation.READ], AclPermissionType.ALLOW)
    rule(connection, ResourceType.GROUP, "theirs", [AclOperation.ALL])
    described = admin.describe_topics(["open", "secret"])
    assert described["open"] is not None
    assert not isinstance(described["open"], KafkaCallError)
    assert_not_authorized(described["secret"], "describing topic secret", "TOPIC_AUTHORIZATION_FAILED")
    assert_not_authorized(admin.topic_configs(["secret"])["secret"])
    assert_not_authorized(admin.list_offsets([("secret", 0)], "latest")["secret", 0], "reading offsets of secret [0]")
    deleted = admin.delete_topics(["read-only", "secret", "open"])
    assert_not_authorized(deleted["read-only"], "deleting topic read-only")
    # Kafka reports a topic as unknown to a user who may not even describe it
    assert_not_authorized(deleted["secret"], "topic secret")
    assert deleted["open"] is None
    assert_not_authorized(admin.describe_groups(["theirs"])["theirs"], "describing group theirs")
    assert_not_authorized(admin.commit("theirs", {("read-only", 0): OffsetAndMetadata(0)})["read-only", 0])
    assert_not_authorized(admin.committed_of_groups({"theirs": None})["theirs"], "reading the offsets of group theirs")
    with pytest.raises(NotAuthorized, match="reading the offsets of group theirs"):
        committed_offsets(connection, "theirs", [("open", 0)], timeout_seconds=5)


def test_a_control_topic_that_may_not_be_read_for_a_while_is_a_problem_as_long(connection: Connection) -> None:
    control = "orders.control"
    KafkaAdmin(connection).create_topics([NewTopicSpec(name=control, partitions=1, replication_factor=1)])
    with ControlReader(connection, client_id="test") as reader:

        def look(found: Callable[[], bool], what: str) -> None:
            wait_until(lambda: not reader.poll(0.1) and found(), what=what)

        reader.follow([control])
        look(lambda: control in reader.read, "the topic is read")
        deny_only(connection, ResourceType.TOPIC, control, AclOperation.READ)
        look(lambda: bool(reader.problems), "the topic can't be read")
        assert_not_authorized(reader.problems[control], f"reading {control}")
        lift(connection, ResourceType.TOPIC, control)
        look(lambda: not reader.problems, "the topic can be read, though it has nothing new")


def test_a_registry_that_may_not_be_read_or_written_is_said(connection: Connection) -> None:
    ensure_system_topics(KafkaAdmin(connection), replication_factor=1)
    with RegistryFollower(connection) as follower:
        follower.catch_up(120)
        rule(connection, ResourceType.TOPIC, REGISTRY_TOPIC, [AclOperation.WRITE])
        with pytest.raises(NotAuthorized, match=f"writing {REGISTRY_TOPIC}"):
            RegistryWriter(follower, connection).write([TopicsRecord(topic="orders")])
    rule(connection, ResourceType.TRANSACTIONAL_ID, "operator-of-nobody", [AclOperation.WRITE])
    with (
        RegistryFollower(connection) as follower,
        pytest.raises(NotAuthorized, match=r"as transactional id operator-of-nobody failed .* grant this"),
    ):
        RegistryWriter(follower, connection, transactional_id="operator-of-nobody").open()
    rule(connection, ResourceType.TOPIC, REGISTRY_TOPIC, [AclOperation.READ])
    with (
        RegistryFollower(connection) as follower,
        pytest.raises(NotAuthorized, match=f"reading {REGISTRY_TOPIC}"),
    ):
        follower.catch_up(120)
