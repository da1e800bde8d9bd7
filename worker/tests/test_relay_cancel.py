"""Records that are cancelled before they are due are not released, and the application that cancels them gets an answer."""

import time
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.reasons import DeadLetterReason, Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.cancelling import answers, ask, make_control, wait_for_answers
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness
from delayed_topics_worker_testing.transactions import open_transaction

pytestmark = pytest.mark.broker

GUARANTEES = pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])


def declare(harness: WorkerHarness, delay_seconds: tuple[int, ...] = (0, 3), **further: Any) -> DeclaredTopic:
    orders = harness.declare(delay_seconds, **further)
    make_control(orders)
    orders.change(control=True)
    return orders


def produce(orders: DeclaredTopic, ids: Iterable[bytes], *, level: int = 1) -> None:
    for of_id in ids:
        orders.produce(of_id, key=of_id, headers=[("dt-id", of_id), ("dt-delay-level", b"%d" % level)])
    orders.flush()


def ids_of(records: Iterable[Seen]) -> list[bytes]:
    return sorted(record.header("dt-id") or b"" for record in records)


def some_ids(name: str, count: int) -> list[bytes]:
    return [b"%s-%04d" % (name.encode(), n) for n in range(count)]


@GUARANTEES
def test_a_cancelled_record_is_a_dead_letter_and_the_others_come_out(harness: WorkerHarness, guarantee: str) -> None:
    orders = declare(harness)
    harness.start(orders, guarantee=guarantee)
    ids = some_ids("o", 40)
    produce(orders, ids, level=2)
    ask(orders, ids[::2])

    assert ids_of(orders.ready(20)) == ids[1::2]
    dead = orders.dead(20)
    assert ids_of(dead) == ids[::2]
    for record in dead:
        assert (record.key, record.value) == (record.header("dt-id"), record.header("dt-id"))
        assert record.header("dt-reason") == DeadLetterReason.CANCELLED.encode()
    assert set(wait_for_answers(orders, ids[::2]).values()) == {Control(ControlKind.CANCELLED)}


@pytest.mark.slow
def test_a_request_that_comes_before_its_record_is_honoured_until_it_is_withdrawn(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    ask(orders, [b"o-1", b"o-2"])
    ask(orders, [b"o-2"], None)
    # once a later request of the control topic is answered, a worker has read these two as well
    produce(orders, [b"o-0"], level=2)
    ask(orders, [b"o-0"])
    wait_for_answers(orders, [b"o-0"])
    produce(orders, [b"o-1", b"o-2"])

    assert ids_of(orders.ready(1)) == [b"o-2"]
    assert ids_of(orders.dead(2)) == [b"o-0", b"o-1"]


@pytest.mark.slow
def test_a_record_without_an_id_is_cancelled_by_its_root(harness: WorkerHarness) -> None:
    orders = declare(harness, front_partitions=1)
    harness.start(orders)
    orders.produce(b"first", headers=[("dt-delay-level", b"2")])
    orders.flush()
    root = f"f:0:0:{orders.topics.ids[orders.names.front]}".encode()
    ask(orders, [root])
    (dead,) = orders.dead(1)
    assert (dead.value, dead.header("dt-id")) == (b"first", root)


@pytest.mark.slow
def test_who_cancels_a_record_that_came_out_is_told_and_its_retry_is_cancelled(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    produce(orders, [b"o-1"])
    (first,) = orders.ready(1)
    ask(orders, [b"o-1"])
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.TOO_LATE)}

    orders.produce(first.value, headers=first.headers)  # as a consumer that copies all headers does
    orders.flush()
    (dead,) = orders.dead(1)
    assert (dead.header("dt-id"), dead.header("dt-attempt")) == (b"o-1", b"1")
    assert len(orders.ready(1)) == 1


@pytest.mark.slow
def test_who_cancels_twice_is_told_the_same_twice(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    produce(orders, [b"o-1"], level=2)
    ask(orders, [b"o-1"])
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.CANCELLED)}
    ask(orders, [b"o-1"])
    assert wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.CANCELLED)}
    assert len(orders.dead(1)) == 1


@pytest.mark.slow
def test_a_request_that_no_worker_can_read_is_answered(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    too_long = b"o" * 257
    ask(orders, [b"o-1"], b"Cancel!")
    ask(orders, [too_long])
    assert set(wait_for_answers(orders, [b"o-1", too_long]).values()) == {Control(ControlKind.NOT_UNDERSTOOD)}
    produce(orders, [b"o-1"])
    assert ids_of(orders.ready(1)) == [b"o-1"]


@pytest.mark.slow
def test_who_cancels_what_does_not_come_is_told_and_it_stays_cancelled(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    ask(orders, [b"o-1"])
    assert wait_for_answers(orders, [b"o-1"], timeout_seconds=120) == {b"o-1": Control(ControlKind.NOT_FOUND)}
    produce(orders, [b"o-1"])
    assert ids_of(orders.dead(1)) == [b"o-1"]
    wait_until(
        lambda: wait_for_answers(orders, [b"o-1"]) == {b"o-1": Control(ControlKind.CANCELLED)},
        what="the last answer is that the record is cancelled",
    )


@GUARANTEES
def test_at_the_due_time_each_record_has_one_end_and_the_answer_says_which(
    harness: WorkerHarness, guarantee: str
) -> None:
    orders = declare(harness, (1,), front_partitions=4)
    harness.start(orders, guarantee=guarantee)
    ids = some_ids("o", 600)
    produce(orders, ids)
    due_at = time.time() + 1
    for n, of_id in enumerate(ids):  # from 150 ms before to 150 ms after most of the records are due
        while time.time() < due_at + (n - 300) / 2000:
            pass
        orders.produce(b"cancel", key=of_id, topic=orders.names.control)
    orders.flush()

    answered = wait_for_answers(orders, ids)
    by_answer = {answer: sorted(of_id for of_id in ids if answered[of_id].kind is answer) for answer in ControlKind}
    assert by_answer[ControlKind.CANCELLED] == ids_of(orders.dead(len(by_answer[ControlKind.CANCELLED])))
    assert by_answer[ControlKind.TOO_LATE] == ids_of(orders.ready(len(by_answer[ControlKind.TOO_LATE])))
    assert len(by_answer[ControlKind.CANCELLED]) + len(by_answer[ControlKind.TOO_LATE]) == len(ids)


@pytest.mark.slow
@GUARANTEES
def test_what_was_cancelled_while_no_worker_ran_does_not_come_out(harness: WorkerHarness, guarantee: str) -> None:
    orders = declare(harness)
    worker = harness.start(orders, guarantee=guarantee)
    ids = some_ids("o", 200)
    produce(orders, ids, level=2)
    front = orders.names.front
    wait_until(
        lambda: sum(at.offset for (topic, _), at in orders.committed().items() if topic == front) == len(ids),
        what="all records wait in the delays topic, and the offsets of the front topic are committed",
    )
    worker.kill()
    ask(orders, ids[::2])
    produce(orders, ids_between := some_ids("p", 20))
    ask(orders, ids_between[::2])
    harness.start(orders, guarantee=guarantee)

    assert ids_of(orders.ready(110)) == sorted(ids[1::2] + ids_between[1::2])
    assert ids_of(orders.dead(110)) == sorted(ids[::2] + ids_between[::2])


@pytest.mark.slow
def test_a_worker_that_takes_partitions_over_knows_what_was_cancelled_before_it_came(harness: WorkerHarness) -> None:
    orders = declare(harness, (0, 8), front_partitions=2)
    harness.start(orders, member="orders-0")
    ids = some_ids("o", 200)
    produce(orders, ids, level=2)
    ask(orders, ids[::2])
    second = harness.start(orders, member="orders-1")
    owned = second.metric("delayedtopics_partitions", topic=orders.names.front)
    assert owned > 0

    assert ids_of(orders.ready(100)) == ids[1::2]
    assert ids_of(orders.dead(100)) == ids[::2]
    assert set(wait_for_answers(orders, ids[::2]).values()) == {Control(ControlKind.CANCELLED)}


def test_what_was_accepted_holds_when_a_worker_starts_that_more_topics_share(harness: WorkerHarness) -> None:
    orders, beside = harness.declare_many(2, (0, 3), group=f"shared-{uuid.uuid4().hex[:8]}")
    for declared in (orders, beside):
        make_control(declared)
        declared.change(control=True)
    ask(orders, [b"%d" % n for n in range(60_000)])  # more than half of the requests that a worker accepts
    produce(orders, [b"59999", b"o-1"], level=2)
    worker = harness.start(orders, beside)

    assert ids_of(orders.dead(1, timeout_seconds=30)) == [b"59999"]
    assert ids_of(orders.ready(1)) == [b"o-1"]
    assert "60000 requests are in force" in str(worker.status()["alarms"])
    ask(orders, [b"o-2"])
    assert wait_for_answers(orders, [b"59999", b"o-2"]) == {
        b"59999": Control(ControlKind.CANCELLED),
        b"o-2": Control(ControlKind.NO_ROOM),
    }
    written = harness.read(orders.names.control, 60_003)  # all requests, and the two answers
    assert [seen.key for seen in written if seen.value == b"no-room"] == [b"o-2"]


def test_nothing_is_served_before_the_control_topic_is_read_and_an_alarm_says_why(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    orders.change(control=True)
    worker = harness.start(orders, ready=False)
    produce(orders, [b"o-1", b"o-2"])
    wait_until(lambda: Reason.CONTROL_UNREADABLE in worker.alarm_reasons(), what="an alarm says why nothing is served")
    assert f"{orders.names.control} does not exist" in str(worker.status()["alarms"])
    assert orders.released() == 0

    make_control(orders)
    ask(orders, [b"o-1"])
    worker.ready()
    wait_until(lambda: not worker.alarm_reasons(), what="the alarm is cleared")
    produce(orders, [b"o-3"])
    assert ids_of(orders.ready(2))[-1] == b"o-3"


def test_requests_that_an_open_transaction_hides_are_an_alarm_and_no_worker_begins_without_them(
    harness: WorkerHarness,
) -> None:
    """Consumers of committed records see nothing from the first record of an open transaction on, whoever wrote what follows."""
    orders = declare(harness)
    first = harness.start(orders)
    with open_transaction(orders, orders.names.control, b"other", b"cancel"):
        ask(orders, [b"o-1"])
        wait_until(lambda: Reason.CONTROL_UNREADABLE in first.alarm_reasons(), what="an alarm of the worker that reads")
        first.kill()
        produce(orders, [b"o-1"])
        second = harness.start(orders, ready=False)
        wait_until(lambda: Reason.CONTROL_UNREADABLE in second.alarm_reasons(), what="an alarm of the one that begins")
        assert orders.released() == 0

    assert ids_of(orders.dead(1)) == [b"o-1"]
    wait_until(lambda: not second.alarm_reasons(), what="the alarm is cleared")


@pytest.mark.slow
def test_a_delayed_topic_can_be_given_a_control_topic_while_it_is_served(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 3))
    harness.start(orders)
    produce(orders, [b"o-1", b"o-2"], level=2)
    make_control(orders)
    orders.change(control=True)
    ask(orders, [b"o-1"])
    assert ids_of(orders.dead(1)) == [b"o-1"]
    assert ids_of(orders.ready(1)) == [b"o-2"]


def test_what_was_cancelled_in_a_control_topic_that_is_gone_does_not_hold_for_the_next_one(
    harness: WorkerHarness,
) -> None:
    """This happens if a delayed topic is deleted and another one gets its name. The ids of one owner mean nothing to the next."""
    orders = declare(harness)
    harness.start(orders)
    produce(orders, [b"o-1"])
    orders.ready(1)
    ask(orders, [b"o-2"])
    produce(orders, [b"o-0"], level=2)
    ask(orders, [b"o-0"])  # a worker that has read this request has read those before it
    wait_for_answers(orders, [b"o-0"])
    harness.admin.delete_topics([orders.names.control])
    make_control(orders)
    produce(orders, [b"o-3"], level=2)
    ask(orders, [b"o-3", b"o-1"])
    assert wait_for_answers(orders, [b"o-3"]) == {b"o-3": Control(ControlKind.CANCELLED)}, (
        "the new topic is read from its start"
    )

    produce(orders, [b"o-2"])

    assert ids_of(orders.ready(2)) == [b"o-1", b"o-2"]
    assert b"o-1" not in answers(orders), "a release for the former owner is no answer for the next"


@pytest.mark.slow
def test_without_a_control_topic_what_was_cancelled_there_comes_out(harness: WorkerHarness) -> None:
    orders = declare(harness)
    harness.start(orders)
    produce(orders, [b"o-1"], level=2)
    ask(orders, [b"o-1"])
    assert ids_of(orders.dead(1)) == [b"o-1"]
    orders.change(control=False)

    def comes_out() -> bool:
        produce(orders, [b"o-1"])
        return orders.released() > 0

    wait_until(comes_out, what="the worker has read that there is no control topic any more")
