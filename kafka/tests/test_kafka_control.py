"""The reader of control topics."""

import time
import uuid
from collections.abc import Sequence
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_devcluster.broker import Broker, Brokers
from delayed_topics_devcluster.pace import repeated
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import MAX_BEHIND_SECONDS, ControlRead, ControlReader
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka_testing.slow_wire import slow_broker

pytestmark = pytest.mark.broker


def make(connection: Connection, *topics: str) -> None:
    config = {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    specs = [NewTopicSpec(name=topic, partitions=1, replication_factor=1, config=config) for topic in topics]
    KafkaAdmin(connection, timeout_seconds=60).create_topics(specs)


def write(connection: Connection, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    producer = Producer(connection.client_config())
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(120) == 0


def read_to_the_end(reader: ControlReader, *topics: str) -> list[ControlRead]:
    found: list[ControlRead] = []

    def all_read() -> bool:
        found.extend(reader.poll(0.1))
        return reader.read >= set(topics)

    wait_until(all_read, what=f"{', '.join(topics)} are read")
    return found


def next_reads(reader: ControlReader) -> list[ControlRead]:
    deadline = Deadline(120)
    while not (found := reader.poll(0.1)):
        assert not deadline.over, "the reader returned no more records"
    return found


def names(number: int) -> list[str]:
    return [f"orders-{uuid.uuid4().hex[:8]}.control" for _ in range(number)]


def test_a_topic_that_was_created_again_after_a_restart_of_kafka_is_read(own_broker: Broker) -> None:
    """A restart raises the leader epoch of the topic, and that of the new topic begins at 0 (librdkafka issue 4898)."""
    connection, (topic,) = Connection(bootstrap_servers=own_broker.bootstrap), names(1)
    make(connection, topic)
    with ControlReader(connection, client_id="test") as reader:
        reader.follow([topic])
        own_broker.restart()
        write(connection, topic, [(b"o-1", b"cancel")])
        assert [read.id for read in next_reads(reader)] == [b"o-1"]
        KafkaAdmin(connection).delete_topics([topic])
        make(connection, topic)
        reader.follow([])
        reader.follow([topic])
        write(connection, topic, [(b"o-2", b"cancel")])
        assert [read.id for read in next_reads(reader)] == [b"o-2"]


def test_each_value_is_read_as_what_it_says(connection: Connection) -> None:
    (topic,) = names(1)
    make(connection, topic)
    longest, too_long = b"o" * 256, b"o" * 257
    written = [
        (b"o-1", b"cancel"),
        (b"o-2", b"too-late"),
        (b"o-3", None),
        (b"o-4", b"Cancel"),
        (b"o-5", b"\xff"),
        (b"", b"cancel"),
        (longest, b"cancel"),
        (too_long, b"cancel"),
        (too_long, b"not-understood"),
        (too_long, None),
    ]
    write(connection, topic, written)
    with ControlReader(connection, client_id="test") as reader:
        reader.follow([topic])
        found = read_to_the_end(reader, topic)
    assert [(read.id, read.control, read.is_understood) for read in found] == [
        (b"o-1", Control(ControlKind.CANCEL), True),
        (b"o-2", Control(ControlKind.TOO_LATE), True),
        (b"o-3", None, True),
        (b"o-4", None, False),
        (b"o-5", None, False),
        (longest, Control(ControlKind.CANCEL), True),
        (too_long, Control(ControlKind.CANCEL), False),
        (too_long, Control(ControlKind.NOT_UNDERSTOOD), True),  # an answer, to which the worker writes no answer
        (too_long, None, True),
    ]


def test_topics_come_and_go_and_one_that_is_made_again_is_read_from_its_beginning(connection: Connection) -> None:
    first, second = names(2)
    make(connection, first)
    write(connection, first, [(b"o-1", b"cancel"), (b"o-2", b"cancel")])
    with ControlReader(connection, client_id="test") as reader:
        reader.follow([first, second])
        assert [read.id for read in read_to_the_end(reader, first)] == [b"o-1", b"o-2"]
        assert second not in reader.read

        make(connection, second)
        write(connection, second, [(b"o-3", b"cancel")])
        assert [(read.topic, read.id) for read in read_to_the_end(reader, first, second)] == [(second, b"o-3")]
        assert not reader.problems

        admin = KafkaAdmin(connection, timeout_seconds=60)
        admin.delete_topics([first])
        wait_until(lambda: admin.describe_topics([first])[first] is None, what="the topic is deleted")
        make(connection, first)
        write(connection, first, [(b"o-4", b"cancel")])
        assert [read.id for read in next_reads(reader)] == [b"o-4"]

        reader.follow([second])
        write(connection, first, [(b"o-5", b"cancel")])
        write(connection, second, [(b"o-6", b"cancel")])
        assert [read.id for read in next_reads(reader)] == [b"o-6"]


def test_a_topic_in_which_a_transaction_is_always_open_counts_as_read(connection: Connection) -> None:
    (topic,) = names(1)
    make(connection, topic)
    write(connection, topic, [(b"o-1", b"cancel")])
    producers = [Producer({**connection.client_config(), "transactional.id": f"{topic}-{n}"}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(60)

    numbers = count()

    def begin_one_and_commit_the_former() -> None:
        number = next(numbers)
        producers[number % 3].begin_transaction()
        producers[number % 3].produce(topic, b"cancel", b"other", partition=0)
        assert producers[number % 3].flush(60) == 0
        if number:
            producers[(number - 1) % 3].commit_transaction(60)
        time.sleep(0.3)

    with repeated(begin_one_and_commit_the_former), ControlReader(connection, client_id="test") as reader:
        time.sleep(1)
        reader.follow([topic])
        assert b"o-1" in [read.id for read in read_to_the_end(reader, topic)]


@pytest.mark.slow
def test_slow_answers_are_no_open_transaction_and_everything_is_read() -> None:
    (topic,) = names(1)
    with slow_broker() as wire:
        connection = Connection(bootstrap_servers=wire.bootstrap)
        make(connection, topic)
        write(connection, topic, [(b"o-%d" % n, b"x" * 400_000) for n in range(6)])
        with ControlReader(connection, client_id="test") as reader:
            reader.follow([topic])
            found = next_reads(reader)
            wire.hold_back(MAX_BEHIND_SECONDS / 8)  # each 64 KiB of answers of 1 MiB
            deadline = Deadline(120)
            while topic not in reader.read:
                assert not deadline.over, f"{len(found)} records are read"
                found += reader.poll(0.1)
                assert not reader.problems
    assert [read.id for read in found] == [b"o-%d" % n for n in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("session_seconds", [30, 6], ids=["for-this-client", "for-all"])
def test_a_topic_whose_leader_is_out_of_reach_is_a_problem_until_the_leader_is_back(session_seconds: int) -> None:
    """The cluster keeps the dead broker as the leader until its session is over. For a client, that is like a broken network between it
    and this broker."""
    with Brokers(settings={"broker.session.timeout.ms": f"{session_seconds * 1000}"}) as brokers:
        connection = Connection(bootstrap_servers=brokers.bootstrap, further={"log_level": 0})
        topics = names(6)
        make(connection, *topics)
        described = AdminClient(connection.client_config()).list_topics(timeout=60).topics
        leaders = {topic: described[topic].partitions[0].leader for topic in topics}
        leader = next(member for member in brokers.members if member.node_id == leaders[topics[0]])
        away = {topic for topic in topics if leaders[topic] == leader.node_id}
        with ControlReader(connection, client_id="test") as reader:
            reader.follow(topics)
            read_to_the_end(reader, *topics)
            leader.kill()

            def are_problems() -> bool:
                reader.poll(0.1)
                return away <= reader.problems.keys()

            wait_until(are_problems, what="the topics that can't be read are problems")
            assert reader.problems.keys() == away
            assert reader.read == set(topics) - away
            leader.start()
            write(connection, topics[0], [(b"o-1", b"cancel")])
            assert [read.id for read in read_to_the_end(reader, *topics)] == [b"o-1"]
            assert not reader.problems
