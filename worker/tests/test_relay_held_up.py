"""Nothing stays held up, and nothing is passed over: what is refused, given up, stopped or held back goes on."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.reasons import Reason
from delayed_topics_core.registry import LayoutRecord, Owner
from delayed_topics_core.window import MAX_SPAN, Window
from delayed_topics_worker.alarms import Standstill
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.barrier import Barrier
from delayed_topics_worker.brake import Brake
from delayed_topics_worker.intake import Intake
from delayed_topics_worker.metrics import Lateness, Metrics
from delayed_topics_worker.outbox import Outbox
from delayed_topics_worker.owned import MAX_UNCOMMITTED, Held, Owned, Stop
from delayed_topics_worker.release import Heads, Releaser
from delayed_topics_worker.served import Served, ServedTopics

NOW_MS = 1_700_000_000_000


class Record:
    """A message, which only the client library can make; `partition` 0 of `orders`."""

    def __init__(self, offset: int, at_ms: int = NOW_MS) -> None:
        self._offset, self._at_ms = offset, at_ms

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, self._at_ms

    def __len__(self) -> int:
        return 1


class Kafka:
    """Stands for producer and consumer: answers when and what the test says, which no broker does."""

    def __init__(self) -> None:
        self.hangs = False
        self.failed = False
        self.room = 10**9
        self.sent: list[Held] = []
        self.committed: list[TopicPartition] = []
        self.paused: set[int] = set()

    def produce(self, *arguments: Any, **named: Any) -> None:
        if not self.room:
            raise BufferError
        self.room -= 1
        self.sent.append(named["on_delivery"] if named else arguments[4])

    def poll(self, _: float) -> int:
        if self.failed:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        return 0

    def purge(self) -> None: ...

    def flush(self, _: float) -> int:
        return int(self.hangs)

    def commit(self, *, offsets: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        self.committed = offsets
        return offsets

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {tp.partition for tp in partitions}

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= {tp.partition for tp in partitions}


class Worker:
    """The parts that send and commit, and a clock."""

    def __init__(self, *, broker_skew_ms: int = 0) -> None:
        self.kafka = Kafka()
        self.consumer = cast(Consumer, self.kafka)
        self.seconds = 100.0
        self.served = Served.of("orders")
        self.served.layout = LayoutRecord(
            topic="orders",
            owner=Owner("c", "n", "o"),
            state="serving",
            layout=initial(LayoutSpec(delay_seconds=(0, 10), partitions=4)),
            retry_cap=3,
            front_partitions=2,
            ready_partitions=2,
            group="g",
            broker_skew_ms=broker_skew_ms,
        )
        self.served.policy = self.served.layout.policy
        self.outbox = Outbox(lambda _: cast(Producer, self.kafka))
        metrics = Metrics(ServedTopics({"orders": self.served}))
        self.barrier = Barrier(self.outbox, metrics, barrier_seconds=0.1, seconds=lambda: self.seconds)
        self.releaser = Releaser(self.outbox, Lateness())

    def partition(self, number: int = 0, window: Window | None = None) -> Owned:
        owned = Owned(self.served, "orders", number, generation=1, assigned_at=0)
        owned.window = window or Window(0)
        return owned

    def arrive(self, owned: Owned, offsets: range, at_ms: int = NOW_MS) -> None:
        assert owned.window is not None
        for offset in offsets:
            owned.window.take(offset)
            owned.arrived.append(Held(owned, offset, cast(Message, Record(offset, at_ms)), ()))

    def turns(self, count: int, *owned: Owned) -> None:
        for _ in range(count):
            self.seconds += 0.2
            self.barrier.turn(self.consumer, owned, NOW_MS, needed=True, hasten=False)

    def answer(self, refused: Callable[[TopicPartition], bool] = lambda _: False) -> None:
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        answers = [
            cast(
                TopicPartition,
                SimpleNamespace(
                    topic=tp.topic, partition=tp.partition, offset=tp.offset, error=error if refused(tp) else None
                ),
            )
            for tp in self.kafka.committed
        ]
        self.barrier.on_commit(error if all(tp.error for tp in answers) else None, answers)


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
    assignment = Assignment(
        [worker.served], "classic", settle=lambda _: None, abandon=lambda: None, seconds=lambda: worker.seconds
    )
    assignment.owned["orders", 0] = owned
    assignment.generation = 1
    consumer = SimpleNamespace(poll=lambda _: Record(0), consume=lambda *_: [])

    Intake(assignment, seconds=lambda: worker.seconds).take_in(cast(Consumer, consumer), 0)

    assert owned.rewinding


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
