"""A source topic that was deleted and made again: nothing of it is served before the operator says so, and then all of it."""

import time
from dataclasses import replace

import pytest
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import encode_metadata
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

NEW = {b"new%d" % n for n in range(30)}


def served_old_ones(harness: WorkerHarness) -> tuple[DeclaredTopic, WorkerProcess]:
    orders = harness.declare((0, 1), front_partitions=1)
    worker = harness.start(orders)
    for n in range(10):
        orders.produce(b"old%d" % n, partition=0)
    orders.flush()
    orders.ready(10)
    return orders, worker


def make_again(orders: DeclaredTopic) -> TopicInfo:
    """With more records than the old topic had, before anybody sees what happened."""
    orders.harness.admin.delete_topics([orders.names.front])
    return made_again(orders)


def made_again(orders: DeclaredTopic) -> TopicInfo:
    info = orders.make("front", 1)
    for value in sorted(NEW):
        orders.produce(value, partition=0)
    orders.flush()
    return info


def alarmed(worker: WorkerProcess, reason: Reason) -> None:
    wait_until(lambda: reason in worker.alarm_reasons(), what=f"the alarm {reason}")


def all_new_ones_come(orders: DeclaredTopic) -> None:
    with orders.harness.reader(orders.names.ready) as read:
        wait_until(
            lambda: {r.value for r in read()} >= NEW,
            what="every record of the new topic is released",
        )


@pytest.mark.slow
def test_all_records_of_one_that_was_away_for_long_come_out_within_seconds(harness: WorkerHarness) -> None:
    orders, worker = served_old_ones(harness)
    harness.admin.delete_topics([orders.names.front])
    alarmed(worker, Reason.TOPIC_MISSING)
    time.sleep(45)
    info = made_again(orders)
    alarmed(worker, Reason.TOPIC_RECREATED)
    orders.accept(info, begun=0)
    accepted_at = time.monotonic()
    all_new_ones_come(orders)
    assert time.monotonic() - accepted_at < 20


@pytest.mark.parametrize("begun", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_all_records_of_a_front_topic_made_again_come_out_once_it_is_accepted(
    harness: WorkerHarness, begun: int
) -> None:
    orders, worker = served_old_ones(harness)
    info = make_again(orders)
    alarmed(worker, Reason.TOPIC_RECREATED)

    orders.accept(info, begun=begun)

    all_new_ones_come(orders)
    wait_until(lambda: not worker.alarm_reasons(), what="no alarm")
    expected = OffsetAndMetadata(30, encode_metadata(30, (), info.id))
    wait_until(lambda: orders.committed().get((orders.names.front, 0)) == expected, what="the commit follows")


def test_a_commit_that_a_dying_worker_left_for_the_topic_that_is_gone_skips_nothing(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    old_id = orders.topics.ids[orders.names.front]
    info = make_again(orders)
    stale = OffsetAndMetadata(10, encode_metadata(10, [12], old_id))
    harness.commit(orders.record.group, {(orders.names.front, 0): stale})
    orders.accept(info, begun=1)

    harness.start(orders)

    all_new_ones_come(orders)


def test_topics_that_were_mirrored_with_their_committed_offsets_go_on_there(harness: WorkerHarness) -> None:
    """MirrorMaker translates an offset, and copies its metadata as it is: with the former topic's id, and other finished offsets."""
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
    info = make_again(orders)
    harness.commit(orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(25)})
    orders.accept(info, begun=1)

    harness.start(orders)

    assert {r.value for r in orders.ready(5)} == set(sorted(NEW)[25:])


@pytest.mark.slow
def test_also_with_a_worker_that_was_started_after_the_topic_was_made_again(harness: WorkerHarness) -> None:
    orders, worker = served_old_ones(harness)
    info = make_again(orders)
    alarmed(worker, Reason.TOPIC_RECREATED)
    time.sleep(0.5)
    worker.terminate()
    orders.accept(info, begun=1)

    harness.start(orders)

    all_new_ones_come(orders)


@pytest.mark.slow
def test_a_shorter_topic_made_again_is_served_once_it_is_accepted(harness: WorkerHarness) -> None:
    """The worker's offset is out of its range, which looks as if records were removed."""
    orders, worker = served_old_ones(harness)
    harness.admin.delete_topics([orders.names.front])
    info = orders.make("front", 1)
    alarmed(worker, Reason.TOPIC_RECREATED)
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
    alarmed(worker, Reason.TOPIC_RECREATED)
    (waited,) = orders.ready(1)
    assert waited.late_ms < 10_000
