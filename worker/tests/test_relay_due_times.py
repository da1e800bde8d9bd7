"""Records that set their own due time."""

import random
import time

import pytest
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import ladder, most_hops
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = pytest.mark.broker

LADDER = ladder(max_seconds=4, base=2)
RECORDS = 2000
SPAN_MS = 8_000


def now_ms() -> int:
    return int(time.time() * 1000)


def deliver_at(at_ms: int) -> Header:
    return ("dt-deliver-at", b"%d" % at_ms)


def send_many(orders: DeclaredTopic) -> dict[bytes, int]:
    """Produces records with due times from two seconds ago to eight seconds from now. Returns the requested due times by value."""
    start_ms = now_ms()
    requested = {b"%d" % n: start_ms + random.randrange(-2_000, SPAN_MS) for n in range(RECORDS)}
    for value, at_ms in requested.items():
        orders.produce(value, key=value, headers=[deliver_at(at_ms)])
    orders.flush()
    return requested


def promised(orders: DeclaredTopic, requested: dict[bytes, int]) -> dict[bytes | None, int]:
    """Returns the promised due times by value. A record that requests a time before its append is due when it is appended."""
    came_in_ms = {record.value: record.at_ms for record in orders.harness.read(orders.names.front, RECORDS)}
    return {value: max(at_ms, came_in_ms[value]) for value, at_ms in requested.items()}


def test_records_come_out_at_any_due_time_never_early_never_lost_never_doubled(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=2, ladder_seconds=LADDER)
    harness.start(orders)
    requested = send_many(orders)

    ready = orders.ready(RECORDS)

    assert sorted(record.value or b"" for record in ready) == sorted(requested)
    assert min(record.late_ms for record in ready) >= 0
    assert {record.value: record.due_at_ms for record in ready} == promised(orders, requested)
    assert all(record.header("dt-deliver-at") is None for record in ready)
    most = most_hops(LADDER, max_delay_seconds=SPAN_MS // 1000)
    assert max(int(record.header("dt-hops") or b"") for record in ready) <= most


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_due_times_outlive_workers_that_are_killed(harness: WorkerHarness, guarantee: Guarantee) -> None:
    orders = harness.declare((0,), front_partitions=2, ladder_seconds=LADDER)
    requested = send_many(orders)
    for sixths in range(2, 6):
        worker = harness.start(orders, guarantee=guarantee)
        orders.ready(sixths * RECORDS // 6)
        worker.kill()
    harness.start(orders, guarantee=guarantee)
    with harness.reader(orders.names.ready) as read:
        wait_until(lambda: {record.value for record in read()} == requested.keys(), what="all records are released")
        ready = read()

    assert min(record.late_ms for record in ready) >= 0
    assert {record.value: record.due_at_ms for record in ready} == promised(orders, requested)
    if guarantee == "ExactlyOnce":
        assert len(ready) == RECORDS


def test_a_due_time_that_is_too_far_ahead_is_a_dead_letter_that_keeps_it(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1, ladder_seconds=LADDER)
    harness.start(orders)
    far = deliver_at(now_ms() + 2 * 86_400_000)
    orders.produce(b"far", headers=[far], partition=0)
    orders.produce(b"now", headers=[deliver_at(0)], partition=0)
    orders.flush()

    (ready,), (dead,) = orders.ready(1), orders.dead(1)

    assert ready.value == b"now"
    assert (dead.value, dead.header("dt-reason"), dead.header("dt-deliver-at")) == (b"far", b"MaxDelayExceeded", far[1])
