from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import GroupActive, KafkaCallError, KafkaRefused, TopicMissing
from delayed_topics_kafka.groups import Committed
from delayed_topics_kafka.model import GroupInfo, NewTopicSpec

pytestmark = pytest.mark.broker
Fresh = Callable[[str], str]


@pytest.fixture
def topic(admin: KafkaAdmin, fresh: Fresh) -> str:
    name = fresh("groups")
    admin.create_topics([NewTopicSpec(name=name, partitions=4, replication_factor=1)])
    return name


def committed(
    admin: KafkaAdmin, group: str, partitions: Sequence[TopicPartitionKey] | None = None
) -> Committed | KafkaCallError:
    return admin.committed_of_groups({group: partitions})[group]


@contextmanager
def member(connection: Connection, group: str, topic: str, **settings: str) -> Iterator[None]:
    """Keeps a live member in the group during the block. The member has been assigned its partitions."""
    config = {**connection.client_config(), "group.id": group, "client.id": "pod-0", "enable.auto.commit": False}
    consumer = Consumer({**config, **{name.replace("_", "."): value for name, value in settings.items()}})
    consumer.subscribe([topic])
    deadline = Deadline(120)
    while not consumer.assignment() and not deadline.over:
        consumer.poll(0.1)
    try:
        yield
    finally:
        consumer.close()


def test_offsets_are_committed_before_the_group_exists(
    admin: KafkaAdmin, connection: Connection, topic: str, fresh: Fresh
) -> None:
    group = fresh("group")
    metadata = "m" * 3000
    outcomes = admin.commit(
        group,
        {
            (topic, 0): OffsetAndMetadata(7, metadata),
            (topic, 1): OffsetAndMetadata(0),
            ("absent", 0): OffsetAndMetadata(0),
        },
    )
    assert outcomes[topic, 0] is None
    assert outcomes[topic, 1] is None
    assert isinstance(outcomes["absent", 0], TopicMissing)
    assert committed(admin, group) == {(topic, 0): OffsetAndMetadata(7, metadata), (topic, 1): OffsetAndMetadata(0)}
    assert committed_offsets(connection, group, [(topic, 0), (topic, 2)]) == {
        (topic, 0): OffsetAndMetadata(7, metadata)
    }
    assert committed(admin, group, [(topic, 1), (topic, 2)]) == {(topic, 1): OffsetAndMetadata(0), (topic, 2): None}


def test_metadata_that_is_too_long_is_refused(admin: KafkaAdmin, topic: str, fresh: Fresh) -> None:
    group = fresh("group")
    outcome = admin.commit(group, {(topic, 0): OffsetAndMetadata(1, "m" * 4097)})[topic, 0]
    assert isinstance(outcome, KafkaRefused)
    assert outcome.code == "OFFSET_METADATA_TOO_LARGE"
    assert committed(admin, group, [(topic, 0)]) == {(topic, 0): None}


def test_many_groups_are_asked_at_once(admin: KafkaAdmin, topic: str, fresh: Fresh) -> None:
    groups = [fresh("group") for _ in range(10)]
    for number, group in enumerate(groups):
        admin.commit(group, {(topic, 0): OffsetAndMetadata(number)})
    found = admin.committed_of_groups({**{group: [(topic, 0)] for group in groups}, "absent": None})
    assert found == {**{g: {(topic, 0): OffsetAndMetadata(n)} for n, g in enumerate(groups)}, "absent": {}}


def test_offsets_in_an_open_transaction_neither_count_nor_hold_up(
    admin: KafkaAdmin, connection: Connection, topic: str, fresh: Fresh
) -> None:
    group = fresh("group")
    admin.commit(group, {(topic, 0): OffsetAndMetadata(3)})
    producer = Producer({**connection.client_config(), "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    consumer = Consumer({**connection.client_config(), "group.id": group})
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], consumer.consumer_group_metadata(), 30)
    consumer.close()
    assert committed(admin, group) == {(topic, 0): OffsetAndMetadata(3)}
    producer.commit_transaction(30)
    assert until_true(lambda: committed(admin, group) == {(topic, 0): OffsetAndMetadata(9)}, Deadline(120))


def test_nobody_commits_for_a_live_group(admin: KafkaAdmin, connection: Connection, topic: str, fresh: Fresh) -> None:
    group = fresh("group")
    admin.commit(group, {(topic, 0): OffsetAndMetadata(3)})
    with member(connection, group, topic):
        outcome = admin.commit(group, {(topic, 0): OffsetAndMetadata(9)})[topic, 0]
        assert isinstance(outcome, GroupActive)
        assert "Stop the group's members first" in str(outcome)
        assert isinstance(admin.delete_groups([group])[group], GroupActive)
    assert committed(admin, group) == {(topic, 0): OffsetAndMetadata(3)}
    assert admin.delete_groups([group, "absent"]) == {group: None, "absent": None}
    assert committed(admin, group) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_their_partitions_are_seen(
    admin: KafkaAdmin, connection: Connection, topic: str, fresh: Fresh, protocol: str
) -> None:
    group = fresh("group")
    static = {"group_instance_id": "pod-0"} if protocol == "classic" else {}
    with member(connection, group, topic, group_protocol=protocol, **static):
        described = admin.describe_groups([group, "absent"])
        info, absent = described[group], described["absent"]
        assert isinstance(info, GroupInfo)
        assert (info.state, info.protocol, info.settled) == ("Stable", protocol, True)
        assert [m.client_id for m in info.members] == ["pod-0"]
        assert info.members[0].assignment == tuple((topic, p) for p in range(4))
        assert isinstance(absent, GroupInfo)
        assert (absent.state, absent.members) == ("Dead", ())
