import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from delayed_topics_core.events import Event
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_core.registry import Claim, LayoutRecord, Owner, RegistryRecord, TopicsRecord, encode
from delayed_topics_core_testing.served import OWNER, serving
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaUnreachable, RegistryLost, TopicMissing, WriterFenced
from delayed_topics_kafka.events import EventFollower, EventWriter
from delayed_topics_kafka.registry import RegistryChange, RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("system_topics")]
Fresh = Callable[[str], str]


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
    return serving(topic, initial(LayoutSpec(delay_seconds=delay_seconds, partitions=4)))


def poll_for(follower: RegistryFollower, seconds: float) -> list[RegistryChange]:
    """Returns the first changes that are read within this time, none if there are none."""
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
    follower.catch_up(120)
    writer.write(records)
    changes: list[RegistryChange] = []
    while len(changes) < len(records):
        changes += poll_for(follower, 120)
    assert [c.record for c in changes] == records
    assert [c.key for c in changes] == [r.key for r in records]
    assert follower.state.layouts[topic] == records[1]
    assert follower.state.holder(topic) == records[0]
    assert follower.state.next_offset == changes[-1].offset + 1


def test_removal_is_followed(writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh) -> None:
    topic = fresh("orders")
    claim = Claim(topic=topic, owner=OWNER)
    writer.write([claim])
    follower.catch_up(120)
    assert follower.state.holder(topic) == claim
    writer.remove([claim.key])
    assert [(change.key, change.record) for change in poll_for(follower, 120)] == [(claim.key, None)]
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
        # the other operator also reads back the records that were written before its own
        RegistryWriter(others, connection).write([second])
        assert [entry.claim for entry in others.state.claims.values()][-2:] == [first, second]
        assert others.state.holder(topic) == first
    follower.catch_up(120)
    assert follower.state.holder(topic) == first


def test_what_a_writer_had_begun_before_its_successor_opened_is_never_read_and_it_can_not_go_on(
    connection: Connection, fresh: Fresh
) -> None:
    topic, writers = fresh("orders"), fresh("operator")
    frozen = Producer({**connection.client_config(), "transactional.id": writers, "transaction.timeout.ms": 600_000})
    frozen.init_transactions(120)
    frozen.begin_transaction()
    begun = layout_record(topic, 600)
    frozen.produce(REGISTRY_TOPIC, key=begun.key, value=encode(begun), partition=0)
    assert frozen.flush(120) == 0
    with RegistryFollower(connection) as follower:
        successor = RegistryWriter(follower, connection, transactional_id=writers, timeout_seconds=120)
        successor.open()
        follower.catch_up(120)
        assert topic not in follower.state.layouts
        successor.write([layout_record(topic, 5)])
        with pytest.raises(KafkaException) as raised:
            frozen.commit_transaction(120)
        assert raised.value.args[0].code() == KafkaError._FENCED
        successor.write([layout_record(topic, 10)])
        assert follower.state.layouts[topic].layout.delay_seconds == (10,)


def test_a_writer_whose_successor_has_opened_says_so_for_ever_and_does_not_shut_it_out(
    connection: Connection, follower: RegistryFollower, fresh: Fresh
) -> None:
    topic, writers = fresh("orders"), fresh("operator")
    with RegistryFollower(connection) as others:
        former = RegistryWriter(others, connection, transactional_id=writers, timeout_seconds=120)
        former.open()
        former.write([layout_record(topic, 5)])
        successor = RegistryWriter(follower, connection, transactional_id=writers, timeout_seconds=120)
        successor.open()
        follower.catch_up(120)
        assert follower.state.layouts[topic].layout.delay_seconds == (5,)
        for delay_seconds in (20, 30):
            with pytest.raises(WriterFenced, match=f"{writers}.* Another process has taken over from this writer"):
                former.write([layout_record(topic, delay_seconds)])
        with pytest.raises(WriterFenced):
            former.open()
        successor.write([layout_record(topic, 10)])
        others.catch_up(120)
        assert others.state.layouts[topic].layout.delay_seconds == (10,)


def test_writers_of_other_ids_and_of_none_go_on_side_by_side(
    connection: Connection, writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh
) -> None:
    topics = [fresh("orders") for _ in range(3)]
    one, other = (
        RegistryWriter(follower, connection, transactional_id=fresh("operator"), timeout_seconds=120) for _ in range(2)
    )
    one.open()
    other.open()
    for _ in range(2):
        for pen, topic in zip((one, other, writer), topics, strict=True):
            pen.write([layout_record(topic, 5)])
            pen.remove([f"layout/{topic}"])
            pen.write([layout_record(topic, 10)])
    follower.catch_up(120)
    assert [follower.state.layouts[topic].layout.delay_seconds for topic in topics] == [(10,)] * 3
    assert follower.poll(0) == []
    follower.catch_up(120)  # the topic ends with a transaction marker


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
        pytest.raises(TopicMissing, match=r"does not exist\. Check that the operator of delayed topics is connected"),
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
        with pytest.raises(RegistryLost, match="does not continue at offset 2"):
            poll_for(follower, 120)
        assert follower.state.layouts["orders"].layout.delay_seconds == (10,)


def test_events_go_on_after_their_topic_was_deleted_and_created_again(
    own_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap)
    admin = KafkaAdmin(connection)
    ensure_system_topics(admin, replication_factor=1)
    read: list[Event] = []
    events = [Event(kind="rebalance", topic="orders", member=f"pod-{n}", at_ms=1, detail={}) for n in range(3)]

    def write(*written: Event) -> None:
        writer = EventWriter(connection, client_id="w-0")
        for event in written:
            writer.write(event)
        writer.close(60)
        assert writer.failed == 0

    with EventFollower(connection) as event_follower:

        def all_are_read() -> bool:
            read.extend(event_follower.poll(0.1))
            return len(read) == len(events)

        write(*events[:2])
        event_follower.catch_up(120, read.append)
        admin.delete_topics([EVENTS_TOPIC])
        ensure_system_topics(admin, replication_factor=1)
        write(events[2])
        wait_until(all_are_read, what="the event of the new topic is read")
    assert read == events
    assert "begins again with the first record" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("transactional_id", [pytest.param(None, marks=pytest.mark.slow), "operator"])
def test_the_follower_outlives_an_outage_and_the_writer_says_it(
    own_broker: Broker, transactional_id: str | None
) -> None:
    connection = Connection(bootstrap_servers=own_broker.bootstrap, further={"log_level": 0})
    ensure_system_topics(KafkaAdmin(connection), replication_factor=1)
    with RegistryFollower(connection) as follower:
        patient = RegistryWriter(follower, connection, timeout_seconds=30, transactional_id=transactional_id)
        patient.open()
        patient.write([layout_record("orders", 5)])
        own_broker.kill()
        with pytest.raises(KafkaUnreachable, match=f"writing {REGISTRY_TOPIC}"):
            RegistryWriter(follower, connection, timeout_seconds=2).write([layout_record("orders", 10)])
        if transactional_id is not None:
            with pytest.raises(KafkaUnreachable, match=f"writing {REGISTRY_TOPIC} as transactional id operator"):
                patient.write([layout_record("orders", 15)])
            with pytest.raises(KafkaUnreachable, match="The operator reads the registry again before it writes"):
                patient.write([layout_record("orders", 15)])
        assert follower.poll(0.1) == []
        with pytest.raises(KafkaUnreachable):
            follower.catch_up(1)
        own_broker.start()

        def written() -> bool:
            """Returns whether a write succeeds. The first write after an outage may fail, and the next one has a new producer."""
            with suppress(KafkaUnreachable):
                patient.open()
                patient.write([layout_record("orders", 20)])
                return True
            return False

        wait_until(written, what="a write after the outage succeeds", timeout_seconds=300)
        assert follower.state.layouts["orders"].layout.delay_seconds == (20,)


def test_what_was_read_before_a_failure_is_not_forgotten(
    writer: RegistryWriter, follower: RegistryFollower, fresh: Fresh
) -> None:
    claims = [Claim(topic=fresh("kept"), owner=OWNER) for _ in range(3)]
    writer.write(claims)
    follower.catch_up(120)
    with pytest.raises(KafkaUnreachable, match="stopped at offset"):
        follower.read_to(follower.state.next_offset + 1, Deadline(1.5))  # one record more than there is
    assert all(follower.state.holder(claim.topic) == claim for claim in claims)
