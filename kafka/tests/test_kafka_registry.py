import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import Claim, LayoutRecord, Owner, RegistryRecord, TopicsRecord
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaUnreachable, RegistryLost, TopicMissing
from delayed_topics_kafka.registry import RegistryChange, RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("system_topics")]
Fresh = Callable[[str], str]
OWNER = Owner("cluster", "shop", "orders")


@pytest.fixture
def follower(connection: Connection) -> Iterator[RegistryFollower]:
    with RegistryFollower(connection) as follower:
        yield follower


@pytest.fixture
def writer(connection: Connection) -> Iterator[RegistryWriter]:
    with RegistryFollower(connection) as follower:
        follower.catch_up(120)
        yield RegistryWriter(follower, connection, timeout_seconds=120)


def layout_record(topic: str, *delay_seconds: int) -> LayoutRecord:
    layout = initial(LayoutSpec(delay_seconds=delay_seconds, partitions=4))
    return LayoutRecord(
        topic=topic,
        owner=OWNER,
        state="serving",
        layout=layout,
        retry_cap=3,
        front_partitions=2,
        ready_partitions=2,
        group=f"delayedtopics.{topic}",
    )


def poll_for(follower: RegistryFollower, seconds: float) -> list[RegistryChange]:
    """The first changes that come within the time."""
    deadline = Deadline(seconds)
    changes: list[RegistryChange] = []
    while not changes and not deadline.over:
        changes = follower.poll(0.1)
    return changes


def test_what_is_written_is_read_back_at_once_and_seen_by_others(
    writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh
) -> None:
    topic = fresh("orders")
    records: list[RegistryRecord] = [
        Claim(topic=topic, owner=OWNER),
        layout_record(topic, 0, 10),
        TopicsRecord(topic=topic),
    ]
    changes = writer.write(records)
    assert [c.record for c in changes] == records
    assert [c.key for c in changes] == [r.key for r in records]
    follower.catch_up(120)
    assert follower.state.layouts[topic] == records[1]
    assert follower.state.holder(topic) == records[0]
    assert follower.state.next_offset == changes[-1].offset + 1


def test_removal_is_followed(writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh) -> None:
    topic = fresh("orders")
    claim = Claim(topic=topic, owner=OWNER)
    writer.write([claim])
    follower.catch_up(120)
    assert follower.state.holder(topic) == claim
    removed = writer.remove([claim.key])
    assert removed == [RegistryChange(removed[0].offset, claim.key, None)]
    follower.catch_up(120)
    assert follower.state.holder(topic) is None


def test_an_edit_is_followed_live(writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh) -> None:
    topic = fresh("orders")
    first = layout_record(topic, 0, 10)
    writer.write([first])
    follower.catch_up(120)
    layout = evolve(first.layout, LayoutSpec(delay_seconds=(0, 10, 60), partitions=5))
    writer.write([replace(first, layout=layout)])
    assert [change.record for change in poll_for(follower, 120)] == [replace(first, layout=layout)]
    assert follower.state.layouts[topic].layout.generation == first.layout.generation + 1


def test_of_two_claims_the_first_holds_for_everybody(
    connection: Connection, writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh
) -> None:
    topic = fresh("orders")
    first = Claim(topic=topic, owner=OWNER)
    second = Claim(topic=topic, owner=Owner("cluster", "attic", "orders"))
    with RegistryFollower(connection) as others:
        others.catch_up(120)
        writer.write([first])
        # the other operator reads back what was written before its own record, too
        assert [c.record for c in RegistryWriter(others, connection).write([second])] == [first, second]
        assert others.state.holder(topic) == first
    follower.catch_up(120)
    assert follower.state.holder(topic) == first


def test_a_record_that_does_not_parse_stops_nobody(
    connection: Connection,
    writer: RegistryWriter,
    follower: RegistryFollower,
    fresh: Fresh,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = fresh("orders")
    producer = Producer(connection.client_config())
    for key, value in ((f"layout/{topic}", b"{"), ("later/kind", b"{}"), (b"", b"{}"), (b"\xff/x", b"{}")):
        producer.produce(REGISTRY_TOPIC, key=key, value=value, partition=0)
    assert producer.flush(120) == 0
    writer.write([layout_record(topic, 5)])
    with caplog.at_level(logging.WARNING):
        follower.catch_up(120)
    assert follower.state.layouts[topic].layout.delay_seconds == (5,)
    assert f"layout/{topic}" in caplog.text
    assert "later/kind" in caplog.text


def test_a_cluster_without_a_registry_is_said(own_broker: Broker) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap)
    KafkaAdmin(connection).delete_topics([REGISTRY_TOPIC])
    with (
        RegistryFollower(connection) as follower,
        pytest.raises(TopicMissing, match="doesn't exist: is the operator of delayed topics connected to it"),
    ):
        follower.catch_up(120)


def test_a_registry_that_was_made_again_is_not_taken_for_the_old_one(own_broker: Broker, fresh: Fresh) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap)
    admin = KafkaAdmin(connection)
    admin.delete_topics([REGISTRY_TOPIC])
    ensure_system_topics(admin, replication_factor=1)
    with RegistryFollower(connection) as follower:
        writer = RegistryWriter(follower, connection)
        writer.write([layout_record("orders", 5), layout_record("orders", 10)])
        admin.delete_topics([REGISTRY_TOPIC])
        ensure_system_topics(admin, replication_factor=1)
        with pytest.raises(RegistryLost, match="doesn't continue at offset 2"):
            poll_for(follower, 120)
        assert follower.state.layouts["orders"].layout.delay_seconds == (10,)


def test_the_follower_outlives_an_outage_and_the_writer_says_it(own_broker: Broker) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap, further={"log_level": 0})
    ensure_system_topics(KafkaAdmin(connection), replication_factor=1)
    with RegistryFollower(connection) as follower:
        patient = RegistryWriter(follower, connection, timeout_seconds=30)
        patient.write([layout_record("orders", 5)])
        own_broker.kill()
        with pytest.raises(KafkaUnreachable, match=f"writing {REGISTRY_TOPIC}"):
            RegistryWriter(follower, connection, timeout_seconds=2).write([layout_record("orders", 10)])
        assert follower.poll(0.1) == []
        with pytest.raises(KafkaUnreachable):
            follower.catch_up(1)
        own_broker.start()

        def written() -> bool:
            """The first write after an outage may fail: the next one has a producer of its own."""
            with suppress(KafkaUnreachable):
                patient.write([layout_record("orders", 20)])
                return True
            return False

        wait_until(written, what="what is written after the outage is there", timeout_seconds=300)
        assert follower.state.layouts["orders"].layout.delay_seconds == (20,)


def test_what_was_read_before_a_failure_is_not_forgotten(
    writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh
) -> None:
    claims = [Claim(topic=fresh("kept"), owner=OWNER) for _ in range(3)]
    last = writer.write(claims)[-1].offset
    with pytest.raises(KafkaUnreachable, match="got to offset"):
        follower.read_to(last + 2, Deadline(1.5))  # one more than there is
    assert {change.key for change in follower.catch_up(120)} >= {claim.key for claim in claims}
    assert all(follower.state.holder(claim.topic) == claim for claim in claims)
