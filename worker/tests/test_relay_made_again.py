"""A source topic was deleted and created again. Workers serve no record of it until the operator accepts it, and then all records."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import encode_metadata
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

NEW = {b"new%d" % n for n in range(30)}


def serve_old_records(harness: WorkerHarness, protocol: str = "classic") -> tuple[DeclaredTopic, WorkerProcess]:
    orders = harness.declare((0, 1), front_partitions=1)
    worker = harness.start(orders, protocol=protocol)
    for n in range(10):
        orders.produce(b"old%d" % n, partition=0)
    orders.flush()
    orders.ready(10)
    return orders, worker


def recreate(orders: DeclaredTopic) -> TopicInfo:
    """Creates the topic again before anyone sees that it is gone, with more records than the old topic had."""
    orders.harness.admin.delete_topics([orders.names.front])
    return create_again(orders)


def create_again(orders: DeclaredTopic) -> TopicInfo:
    info = orders.make("front", 1)
    for value in sorted(NEW):
        orders.produce(value, partition=0)
    orders.flush()
    return info


def wait_for_alarm(worker: WorkerProcess, reason: Reason) -> None:
    wait_until(lambda: reason in worker.alarm_reasons(), what=f"the alarm {reason} is raised")


def wait_for_new_records(orders: DeclaredTopic) -> None:
    with orders.harness.reader(orders.names.ready) as read:
        wait_until(
            lambda: {r.value for r in read()} >= NEW,
            what="every record of the new topic is released",
        )


@pytest.mark.slow
def test_all_records_of_one_that_was_away_for_long_come_out_within_seconds(harness: WorkerHarness) -> None:
    orders, worker = serve_old_records(harness)
    harness.admin.delete_topics([orders.names.front])
    wait_for_alarm(worker, Reason.TOPIC_MISSING)
    time.sleep(45)
    info = create_again(orders)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)
    orders.accept(info, begun=0)
    accepted_at = time.monotonic()
    wait_for_new_records(orders)
    assert time.monotonic() - accepted_at < 20


@pytest.mark.parametrize("begun", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_all_records_of_a_front_topic_made_again_come_out_once_it_is_accepted(
    harness: WorkerHarness, begun: int
) -> None:
    orders, worker = serve_old_records(harness)
    info = recreate(orders)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)

    orders.accept(info, begun=begun)

    wait_for_new_records(orders)
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared")
    expected = OffsetAndMetadata(30, encode_metadata(30, (), info.id))
    wait_until(lambda: orders.committed().get((orders.names.front, 0)) == expected, what="the commit follows")


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_all_records_of_a_front_topic_made_again_after_a_restart_of_kafka_come_out_once_it_is_accepted(
    tmp_path: Path, protocol: str
) -> None:
    """A restart raises the leader epoch of the topic, and that of the new topic begins at 0. A Kafka client that knew the former topic
    then reads nothing of the new one (librdkafka issue 4898)."""
    with Broker() as broker, WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders, worker = serve_old_records(harness, protocol=protocol)
        broker.restart()
        orders.produce(b"later", partition=0)
        orders.flush()
        orders.ready(11)
        info = recreate(orders)
        wait_for_alarm(worker, Reason.TOPIC_RECREATED)

        orders.accept(info, begun=0)

        wait_for_new_records(orders)


def test_a_commit_that_a_dying_worker_left_for_the_topic_that_is_gone_skips_nothing(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    old_id = orders.topics.ids[orders.names.front]
    info = recreate(orders)
    stale = OffsetAndMetadata(10, encode_metadata(10, [12], old_id))
    harness.commit(orders.record.group, {(orders.names.front, 0): stale})
    orders.accept(info, begun=1)

    harness.start(orders)

    wait_for_new_records(orders)


def test_topics_that_were_mirrored_with_their_committed_offsets_go_on_there(harness: WorkerHarness) -> None:
    """MirrorMaker translates an offset, and copies its metadata unchanged, with the id and the finished offsets of the former topic."""
    orders = harness.declare((0, 1), front_partitions=1)
    front, former = orders.names.front, "AAAAAAAAAAAAAAAAAAAAAA"
    for n in range(20):
        orders.produce(b"%d" % n, partition=0)
    orders.flush()
    mirrored = OffsetAndMetadata(10, encode_metadata(10, [12], former))
    harness.commit(orders.record.group, {(front, 0): mirrored})
    harness.write(replace(orders.topics, mirrored_from={front: former}))

    harness.start(orders)

    assert {r.value for r in orders.ready(10)} == {b"%d" % n for n in range(10, 20)}
    expected = OffsetAndMetadata(20, encode_metadata(20, (), orders.topics.ids[front]))
    wait_until(lambda: orders.committed().get((front, 0)) == expected, what="the commit is one of this topic")


def test_an_offset_that_a_person_has_set_for_a_topic_made_again_counts(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    info = recreate(orders)
    harness.commit(orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(25)})
    orders.accept(info, begun=1)

    harness.start(orders)

    assert {r.value for r in orders.ready(5)} == set(sorted(NEW)[25:])


@pytest.mark.slow
def test_all_records_come_out_also_with_a_worker_that_was_started_after_the_topic_was_made_again(
    harness: WorkerHarness,
) -> None:
    orders, worker = serve_old_records(harness)
    info = recreate(orders)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)
    time.sleep(0.5)
    worker.terminate()
    orders.accept(info, begun=1)

    harness.start(orders)

    wait_for_new_records(orders)


@pytest.mark.slow
def test_a_shorter_topic_made_again_is_served_once_it_is_accepted(harness: WorkerHarness) -> None:
    """The worker's offset is out of the range of the new topic, which looks as if records were removed."""
    orders, worker = serve_old_records(harness)
    harness.admin.delete_topics([orders.names.front])
    info = orders.make("front", 1)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)
    orders.produce(b"new", partition=0)
    orders.flush()

    orders.accept(info, begun=0)

    assert b"new" in {r.value for r in orders.ready(11)}


@pytest.mark.slow
def test_a_front_topic_that_comes_back_with_fewer_partitions_holds_up_no_record_that_waits(
    harness: WorkerHarness,
) -> None:
    """Kafka refuses to commit offsets of the partitions that are gone."""
    orders = harness.declare((0, 8), front_partitions=3)
    worker = harness.start(orders)
    orders.produce(b"waits", headers=[("dt-delay-level", b"2")], partition=0)
    orders.flush()
    harness.read(orders.names.delays, 1)
    harness.admin.delete_topics([orders.names.front])
    orders.make("front", 1)
    wait_for_alarm(worker, Reason.TOPIC_RECREATED)
    (waited,) = orders.ready(1)
    assert waited.late_ms < 10_000
