"""Rescheduled records come out at the time that was requested last."""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.layout import ladder
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.cancelling import answers, ask, make_control, wait_for_answers
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = pytest.mark.broker

GUARANTEES = pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])


def declare(
    harness: WorkerHarness, delay_seconds: tuple[int, ...] = (0, 8, 60), *, base: int = 2, **further: Any
) -> DeclaredTopic:
    orders = harness.declare(delay_seconds, ladder_seconds=ladder(max_seconds=16, base=base), **further)
    make_control(orders)
    orders.change(control=True)
    return orders


def produce(orders: DeclaredTopic, ids: Iterable[bytes], *, level: int) -> None:
    for of_id in ids:
        orders.produce(of_id, key=of_id, headers=[("dt-id", of_id), ("dt-delay-level", b"%d" % level)])
    orders.flush()


def in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def reschedule(orders: DeclaredTopic, of_id: bytes, at_ms: int) -> None:
    ask(orders, [of_id], b"deliver-at %d" % at_ms)


def wait_until_read(orders: DeclaredTopic) -> None:
    """Waits until the worker has read all earlier requests. Between the front topic and the control topic there is no order."""
    ask(orders, [b"probe"], b"nonsense")
    wait_for_answers(orders, [b"probe"])


def due(orders: DeclaredTopic, count: int) -> dict[bytes, int]:
    """Waits for `count` released records and returns the due time of each, by id. Fails if one is early."""
    found = orders.ready(count)
    assert all(record.late_ms >= 0 for record in found)
    return {record.header("dt-id") or b"": record.due_at_ms for record in found}


@GUARANTEES
def test_a_record_comes_out_later_or_sooner_than_it_was_to(harness: WorkerHarness, guarantee: str) -> None:
    orders = declare(harness)
    harness.start(orders, guarantee=guarantee)
    later, sooner = in_ms(14), in_ms(6)
    ask(orders, [b"o-2"], b"deliver-at %d" % sooner)
    wait_until_read(orders)
    produce(orders, [b"o-1", b"o-2"], level=2)
    reschedule(orders, b"o-1", later)

    found = due(orders, 2)
    assert found == {b"o-1": later, b"o-2": sooner}
    outcomes = wait_for_answers(orders, [b"o-1", b"o-2"])
    assert outcomes == {
        b"o-1": Control(ControlKind.RESCHEDULED, later),
        b"o-2": Control(ControlKind.RESCHEDULED, sooner),
    }


@pytest.mark.slow
def test_the_last_request_counts_and_one_that_is_withdrawn_does_not(harness: WorkerHarness) -> None:
    orders = declare(harness)
    at_ms = in_ms(15)
    for wanted in (in_ms(20), in_ms(30), at_ms):
        ask(orders, [b"o-1", b"o-2", b"o-3"], b"deliver-at %d" % wanted)
    ask(orders, [b"o-2"], None)
    ask(orders, [b"o-3"])
    harness.start(orders)
    produce(orders, [b"o-1", b"o-2", b"o-3"], level=2)

    found = due(orders, 2)
    assert found[b"o-1"] == at_ms
    assert found[b"o-2"] != at_ms
    (dead,) = orders.dead(1)
    assert dead.header("dt-id") == b"o-3"


@pytest.mark.slow
def test_a_retry_waits_as_long_as_the_list_says_whatever_was_asked_for_its_first_attempt(
    harness: WorkerHarness,
) -> None:
    orders = declare(harness, (0, 3))
    harness.start(orders)
    at_ms = in_ms(5)
    reschedule(orders, b"o-1", at_ms)
    # a record without a delay comes out at once, so the request has to be in force; the answer to a later request shows that it is
    reschedule(orders, b"o-0", in_ms(orders.record.max_delay_seconds + 60))
    wait_for_answers(orders, [b"o-0"])
    produce(orders, [b"o-1"], level=1)
    (first,) = orders.ready(1)
    assert first.due_at_ms == at_ms
    orders.produce(first.value, headers=first.headers)
    orders.flush()
    retried = max(orders.ready(2), key=lambda record: record.at_ms)
    assert retried.due_at_ms >= at_ms + 3000


@pytest.mark.slow
def test_without_a_ladder_and_beyond_the_farthest_due_time_it_is_refused(harness: WorkerHarness) -> None:
    orders = declare(harness, (0, 3))
    harness.start(orders)
    too_far, soon = in_ms(orders.record.max_delay_seconds + 60), in_ms(20)
    reschedule(orders, b"o-1", too_far)
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.TOO_FAR, too_far)}
    plain = harness.declare((0, 3))
    make_control(plain)
    plain.change(control=True)
    harness.start(plain, member="plain-0")
    reschedule(plain, b"o-1", soon)
    assert wait_for_answers(plain, [b"o-1"]) == {b"o-1": Control(ControlKind.NO_LADDER, soon)}


@pytest.mark.slow
def test_who_asks_for_a_time_before_the_turn_of_a_record_that_waits_is_told_that_it_is_too_deep(
    harness: WorkerHarness,
) -> None:
    orders = declare(harness, (0, 6))
    worker = harness.start(orders)
    produce(orders, [b"o-1"], level=2)
    wait_until(
        lambda: worker.metric("delayedtopics_hopped_total", topic=orders.names.front) == 1,
        what="the record waits in the delays topic",
    )
    at_ms = in_ms(0.5)
    reschedule(orders, b"o-1", at_ms)
    (record,) = orders.ready(1)
    assert record.late_ms >= 0
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.TOO_DEEP, at_ms)}


@pytest.mark.slow
@GUARANTEES
def test_what_was_rescheduled_while_no_worker_ran_comes_out_then(harness: WorkerHarness, guarantee: str) -> None:
    orders = declare(harness)
    worker = harness.start(orders, guarantee=guarantee)
    ids = [b"o-%03d" % n for n in range(100)]
    produce(orders, ids, level=2)
    worker.kill()
    at_ms = in_ms(15)
    for of_id in ids[::2]:
        ask(orders, [of_id], b"deliver-at %d" % at_ms)
    harness.start(orders, guarantee=guarantee)

    found = due(orders, len(ids))
    assert {of_id for of_id, due_at_ms in found.items() if due_at_ms == at_ms} == set(ids[::2])


@pytest.mark.slow
def test_once_the_ladder_is_taken_away_a_record_waits_as_long_as_the_list_says(harness: WorkerHarness) -> None:
    """Without a ladder, the record would be in a worker's memory until the requested time."""
    orders = declare(harness, (0, 3))
    harness.start(orders)
    far = in_ms(120)
    reschedule(orders, b"o-1", far)
    wait_until_read(orders)
    orders.change(layout=replace(orders.record.layout, ladder_seconds=()))

    def is_refused() -> bool:
        reschedule(orders, b"o-2", far)
        return answers(orders).get(b"o-2") == Control(ControlKind.NO_LADDER, far)

    wait_until(is_refused, what="the worker knows that the ladder is removed")
    produce(orders, [b"o-1"], level=2)
    assert due(orders, 1)[b"o-1"] < far


@pytest.mark.slow
def test_a_record_that_comes_while_its_topic_is_paused_goes_on_to_wait_for_a_time_that_is_far_ahead(
    harness: WorkerHarness,
) -> None:
    """If the worker kept the record in memory until its due time, the record would hold up its partition."""
    orders = declare(harness)
    orders.change(paused=True)
    harness.start(orders)
    reschedule(orders, b"o-1", in_ms(3600))
    wait_until_read(orders)
    produce(orders, [b"o-1"], level=1)
    (hop,) = harness.read(orders.names.delays, 1)
    assert hop.header("dt-id") == b"o-1"
