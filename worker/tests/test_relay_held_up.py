"""Nothing stays held up, and nothing is passed over: what is refused, given up, stopped or held back goes on."""

from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from delayed_topics_core.reasons import Reason
from delayed_topics_core.window import MAX_SPAN, Window
from delayed_topics_worker.alarms import Standstill
from delayed_topics_worker.brake import Brake
from delayed_topics_worker.intake import Intake
from delayed_topics_worker.owned import MAX_UNCOMMITTED, Stop
from delayed_topics_worker.release import Heads
from delayed_topics_worker_testing.played import NOW_MS, Record, Worker


def test_a_partition_whose_copies_were_given_up_has_room_again() -> None:
    worker = Worker()
    kept, leaving = worker.partition(0), worker.partition(1)
    worker.arrive(kept, range(MAX_UNCOMMITTED))
    while kept.arrived:
        worker.releaser.work(kept, NOW_MS)
    assert kept.room == 0
    worker.kafka.hangs = True
    worker.barrier.settle(worker.consumer, [leaving], timeout_seconds=0)
    worker.kafka.hangs = False

    worker.turns(1, leaving, kept)
    worker.answer()

    assert kept.room == MAX_UNCOMMITTED
    assert kept.rewinding


def test_a_refused_copy_is_not_overtaken_by_what_was_not_sent_yet_and_is_tried_again() -> None:
    worker = Worker()
    owned = worker.partition()
    worker.turns(1, owned)
    worker.answer()
    worker.arrive(owned, range(10))
    worker.kafka.room = 4

    worker.releaser.work(owned, NOW_MS)
    worker.releaser.work(owned, NOW_MS)

    assert [held.offset for held in worker.kafka.sent] == [0, 1, 2, 3]
    assert [held.offset for held in owned.arrived] == [5, 6, 7, 8, 9]
    worker.kafka.room = 100
    worker.turns(3, owned)
    worker.answer()
    worker.turns(3, owned)
    worker.releaser.work(owned, NOW_MS)
    assert [held.offset for held in worker.kafka.sent] == list(range(10))


def test_a_producer_that_has_failed_for_good_is_replaced_and_what_it_had_is_read_again() -> None:
    """The client library raises that out of the calls that serve its callbacks."""
    worker = Worker()
    owned = worker.partition()
    worker.arrive(owned, range(10))
    worker.releaser.work(owned, NOW_MS)
    worker.kafka.failed = True
    worker.outbox.poll()
    worker.kafka.failed = False

    worker.turns(1, owned)

    assert owned.rewinding
    assert not owned.outstanding
    assert worker.outbox.failure is None


def test_a_copy_to_be_tried_again_is_tried_after_a_rebalance() -> None:
    worker = Worker()
    owned = worker.partition()
    worker.turns(1, owned)
    worker.answer()
    worker.arrive(owned, range(1))
    worker.kafka.room = 0
    worker.releaser.work(owned, NOW_MS)
    worker.kafka.room = 10

    worker.barrier.settle(worker.consumer, [], timeout_seconds=0)
    assert not worker.barrier.may_send, "nothing overtakes it"
    worker.turns(2, owned)

    assert [held.offset for held in worker.kafka.sent] == [0]


def test_a_failed_transaction_counts_nothing_as_done_though_a_copy_was_not_sent_alone_before() -> None:
    """That copy was to be sent alone when its partition began to be read again, as it does after an error of the consumer."""
    worker = Worker(exactly_once=True)
    refused, other = worker.partition(0), worker.partition(1)
    worker.arrive(refused, range(1))
    worker.kafka.room = 0
    worker.releaser.work(refused, NOW_MS)
    worker.kafka.room = 100
    refused.rewinding = True
    worker.turns(2, refused, other)
    refused.window, refused.rewinding = Window(0), False
    worker.arrive(refused, range(1))
    worker.arrive(other, range(10))

    for owned in (refused, other):
        worker.releaser.work(owned, NOW_MS)
    worker.kafka.sent[0](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
    worker.kafka.refuses_transactions = True
    worker.turns(2, refused, other)

    assert other.rewinding
    assert other.window is None, "it begins where Kafka says that it is committed"


def test_one_partition_that_cannot_commit_stops_no_other() -> None:
    worker = Worker()
    bad, good = worker.partition(0), worker.partition(1)
    bad.dirty = good.dirty = True
    open_after: list[bool] = []
    tries = 0

    for _ in range(40):
        worker.turns(1, bad, good)
        if worker.kafka.committed:
            tries += any(tp.partition == 0 for tp in worker.kafka.committed)
            worker.answer(refused=lambda tp: tp.partition == 0)
            worker.kafka.committed = []
        open_after.append(not worker.barrier.fenced)

    assert all(open_after)
    assert bad.dirty
    assert tries < 25, "not with every commit"
    assert not good.dirty


def test_with_broker_skew_nothing_is_due_before_it_can_be_released() -> None:
    """Else the loop turns without rest until the skew is over."""
    worker = Worker(broker_skew_ms=5)
    owned = worker.partition()
    worker.arrive(owned, range(1))
    worker.releaser.work(owned, NOW_MS)
    heads = Heads()

    heads.register(owned)

    assert heads.pop(NOW_MS + 4) is None
    assert heads.pop(NOW_MS + 5) is owned
    worker.releaser.work(owned, NOW_MS + 5)
    assert len(worker.kafka.sent) == 1


def test_records_that_come_while_their_partition_is_stopped_are_read_again() -> None:
    worker = Worker()
    owned = worker.partition()
    stop = Stop(reason=Reason.TARGET_UNAVAILABLE, message="", retry_at=0)
    owned.stop = stop
    assignment = worker.assignment()
    assignment.owned["orders", 0] = owned
    assignment.generation = 1
    consumer = SimpleNamespace(poll=lambda _: Record(0), consume=lambda *_: [])

    Intake(assignment, seconds=lambda: worker.seconds).take_in(cast(Consumer, consumer), 0)

    assert owned.rewinding


def test_partitions_that_the_client_fails_to_take_over_are_not_called_served() -> None:
    assignment = Worker().assignment()
    consumer = Mock(spec=Consumer)
    consumer.committed.return_value = []
    consumer.assign.side_effect = KafkaException(KafkaError(KafkaError._STATE))

    assignment.on_assign(consumer, [TopicPartition("orders", 0)])

    assert assignment.failure
    assert not assignment.settled


def test_intake_pauses_at_a_full_window_and_not_for_what_a_former_life_finished() -> None:
    worker = Worker()
    restored, full = worker.partition(0, Window(0, {24_500})), worker.partition(1)
    assert full.window is not None
    for offset in range(MAX_SPAN):
        full.window.take(offset)
    brake = Brake(1 << 30)
    worker.kafka.paused = {0, 1}

    def paused() -> set[int]:
        brake.turn(worker.consumer, [restored, full], NOW_MS)
        return worker.kafka.paused

    assert paused() == {1}
    for offset in range(MAX_SPAN // 8):
        full.window.finish(offset)
    assert paused() == {1}, "it doesn't flutter"
    for offset in range(MAX_SPAN // 8, MAX_SPAN // 2):
        full.window.finish(offset)
    assert paused() == set()


def test_what_waits_long_is_held_back_at_half_the_memory_and_what_nobody_has_looked_at_only_when_all_is_full() -> None:
    worker = Worker()
    partition = worker.partition()
    brake = Brake(8_000)

    def paused(held_bytes: int) -> bool:
        partition.paused = False
        partition.held_bytes = held_bytes
        brake.turn(worker.consumer, [partition], NOW_MS)
        return partition.paused

    worker.arrive(partition, range(1))  # and is not sorted before the broker's time is known
    assert not paused(8_000)
    assert paused(8_001)
    partition.shelf.add(NOW_MS + 3_600_000, partition.arrived.pop())
    assert not paused(4_000)
    assert paused(4_001)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, 5, 0.0), (0, 5, 11.0)], 11.0),
        ([(0, 5, 0.0), (3, 5, 9.0), (3, 5, 11.0)], 2.0),
        ([(0, 5, 0.0), (0, 0, 9.0), (0, 5, 11.0)], 2.0),
        ([(0, 0, 0.0), (0, 0, 60.0)], 0.0),
    ],
)
def test_a_standstill_lasts_from_the_last_release_or_the_last_idle_moment(
    steps: list[tuple[int, int, float]], expected: float
) -> None:
    standstill = Standstill()

    seconds = [standstill.seconds("orders", done=done, lag=lag, now=now) for done, lag, now in steps]

    assert seconds[-1] == expected
