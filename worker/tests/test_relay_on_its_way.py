"""Requests for a record, and its original due time, stay known on its way through the delays topic."""

import time

import pytest
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.layout import ladder
from delayed_topics_worker_testing.cancelling import ask, make_control, wait_for_answers
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = pytest.mark.broker


def declare(harness: WorkerHarness) -> DeclaredTopic:
    orders = harness.declare((0, 1, 3), front_partitions=1, ladder_seconds=ladder(max_seconds=4, base=2))
    make_control(orders)
    orders.change(control=True)
    return orders


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def test_a_request_for_now_counts_though_its_record_has_hopped_since(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    due_at_ms = in_ms(8)
    orders.produce(headers=[("dt-id", b"o-1"), ("dt-deliver-at", b"%d" % due_at_ms)])
    orders.flush()
    (hop,), (came_in,) = harness.read(orders.names.delays, 1), harness.read(orders.names.front, 1)
    assert hop.at_ms > came_in.at_ms
    ask(orders, [b"o-1"], b"deliver-at %d" % came_in.at_ms)

    (record,) = orders.ready(1)

    assert record.due_at_ms == came_in.at_ms
    assert record.at_ms < due_at_ms
    assert record.header("dt-appended-at") is None
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.RESCHEDULED, came_in.at_ms)}


def test_a_dead_letter_says_when_its_record_was_to_come_out(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    due_at_ms = in_ms(4)
    orders.produce(b"by time", headers=[("dt-id", b"o-1"), ("dt-deliver-at", b"%d" % due_at_ms)])
    orders.produce(b"by level", headers=[("dt-id", b"o-2"), ("dt-delay-level", b"3")])
    orders.flush()
    assert len(harness.read(orders.names.delays, 2)) == 2
    ask(orders, [b"o-1", b"o-2"])

    by_time, by_level = sorted(orders.dead(2), key=lambda dead: dead.header("dt-id") or b"")

    assert (by_time.value, by_time.header("dt-deliver-at"), by_time.due_at_ms) == (
        b"by time",
        b"%d" % due_at_ms,
        due_at_ms,
    )
    (came_in,) = (r for r in harness.read(orders.names.front, 2) if r.value == b"by level")
    assert (by_level.header("dt-delay-level"), by_level.due_at_ms) == (b"3", came_in.at_ms + 3000)
