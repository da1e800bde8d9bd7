"""A topic that workers write to was deleted and created again, and another broker leads it now. Its leader epoch begins at 0 again, so
that a Kafka client that knew the former topic ignores who the new leader is (librdkafka issue 4898)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Brokers
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow]

METADATA_SECONDS = 6
"""After this time, all clients have refreshed their metadata."""
CONFIG = {"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers() as started:
        yield started


@pytest.fixture
def harness(brokers: Brokers, tmp_path: Path) -> Iterator[WorkerHarness]:
    with WorkerHarness(Connection(bootstrap_servers=brokers.bootstrap), tmp_path, replication_factor=3) as made:
        yield made


def create(brokers: Brokers, topic: str, *, leader: int) -> None:
    """Creates a topic of one partition, which only this broker has. Waits until Kafka has deleted the former topic."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})

    def creates() -> bool:
        spec = NewTopic(topic, 1, replica_assignment=[[leader]], config=CONFIG)
        try:
            admin.create_topics([spec])[topic].result()
        except KafkaException as e:
            if e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def is_led() -> bool:
        try:
            (partition,) = admin.describe_topics(TopicCollection([topic]))[topic].result().partitions
        except KafkaException:
            return False
        return partition.leader is not None and partition.leader.id == leader

    wait_until(creates, what=f"{topic} is created", poll_seconds=0.01)
    wait_until(is_led, what=f"broker {leader} leads {topic}")


def recreate(harness: WorkerHarness, brokers: Brokers, topic: str, *, leader: int) -> TopicInfo:
    harness.admin.delete_topics([topic])
    create(brokers, topic, leader=leader)
    info = wait_until(lambda: harness.admin.describe_topics([topic])[topic], what=f"all brokers know {topic}")
    assert isinstance(info, TopicInfo)
    return info


def raise_epoch(brokers: Brokers) -> None:
    """Raises the leader epoch of all partitions that only the first broker has, and lets clients see that."""
    brokers.members[0].restart()
    time.sleep(METADATA_SECONDS)


def wait_for(orders: DeclaredTopic, topic: str, prefix: bytes, *, target: str | None = None) -> None:
    """Produces ten records, and waits until they come out in this topic."""
    values = {prefix + b"%d" % n for n in range(10)}
    for value in values:
        orders.produce(value, headers=[("dt-target", target.encode())] if target else [])
    orders.flush()
    with orders.harness.reader(topic) as read:
        wait_until(lambda: {r.value for r in read()} >= values, what=f"{prefix!r} comes out", timeout_seconds=60)


def wait_for_alarm(worker: WorkerProcess, reason: Reason) -> None:
    wait_until(lambda: reason in worker.alarm_reasons(), what=f"the alarm {reason} is raised")


def test_records_come_out_in_a_ready_topic_made_again_on_another_broker(
    harness: WorkerHarness, brokers: Brokers
) -> None:
    orders = harness.declare((0, 1))
    ready = orders.names.ready
    orders.change(ready_partitions=1)
    orders.note_id(recreate(harness, brokers, ready, leader=1))
    worker = harness.start(orders)
    wait_for(orders, ready, b"old")
    raise_epoch(brokers)
    wait_for(orders, ready, b"later")
    info = recreate(harness, brokers, ready, leader=2)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)

    orders.note_id(info)

    wait_for(orders, ready, b"new")


def test_records_come_out_in_another_ready_topic_made_again_on_another_broker(
    harness: WorkerHarness, brokers: Brokers
) -> None:
    orders = harness.declare((0, 1))
    invoices = f"{orders.names.front}.invoices"
    create(brokers, invoices, leader=1)
    orders.change(ready_topics=(AllowedTopic(invoices, 0),), outage_budget_seconds=3600)
    harness.start(orders)
    wait_for(orders, invoices, b"old", target=invoices)
    raise_epoch(brokers)
    wait_for(orders, invoices, b"later", target=invoices)

    recreate(harness, brokers, invoices, leader=2)

    wait_for(orders, invoices, b"new", target=invoices)


def test_records_come_out_when_the_clock_topic_is_made_again_on_another_broker(
    harness: WorkerHarness, brokers: Brokers
) -> None:
    orders = harness.declare((0, 1))
    recreate(harness, brokers, CLOCK_TOPIC, leader=1)
    harness.start(orders)
    wait_for(orders, orders.names.ready, b"old")
    raise_epoch(brokers)
    wait_for(orders, orders.names.ready, b"later")
    time.sleep(
        1
    )  # no probe is sent while the topic is missing, so that nothing but its metadata tells the client of that

    recreate(harness, brokers, CLOCK_TOPIC, leader=2)

    wait_for(orders, orders.names.ready, b"new")
