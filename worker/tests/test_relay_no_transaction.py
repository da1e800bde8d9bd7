"""With `guarantee: ExactlyOnce`, while Kafka commits no transaction: the worker raises an alarm, and reports only what is true."""

import time
from typing import Any

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.cancelling import answers, ask, make_control
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load

pytestmark = pytest.mark.broker

EXACTLY: Any = {"guarantee": "ExactlyOnce"}
MEMBER = "orders-0"


@pytest.mark.slow
@pytest.mark.parametrize("opens", [False, True], ids=["none-opens", "they-open"])
def test_an_alarm_is_raised_all_the_time_while_no_copy_is_acknowledged(
    harness: WorkerHarness, wire: SlowWire, *, opens: bool
) -> None:
    """All partitions take part in the transaction that fails."""
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders, **EXACTLY)
    with steady_load(orders, per_second=100, levels=1) as sent:
        wait_until(lambda: orders.released() > 0, what="records are released")
        wire.hold_back_requests(Api.PRODUCE, 120, client_id=MEMBER)
        if not opens:
            wire.hold_back_requests(Api.INIT_PRODUCER_ID, 120, client_id=MEMBER)
        began = time.monotonic()
        without_alarm: list[float] = []
        while (passed := time.monotonic() - began) < 60:
            if passed > 20 and not worker.alarm_reasons():
                without_alarm.append(passed)
            time.sleep(0.2)
        wire.hold_back_requests(Api.PRODUCE, 0, client_id=MEMBER)
        wire.hold_back_requests(Api.INIT_PRODUCER_ID, 0, client_id=MEMBER)

    assert not without_alarm, worker.evidence()
    assert doubled(all_ready(orders, sent)) == 0
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared", evidence=worker.evidence)


@pytest.mark.slow
def test_records_that_come_near_the_end_of_retention_meanwhile_are_an_alarm(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The topic keeps records for three days and two seconds."""
    orders = harness.declare((0, 2), front_partitions=1, config={"front": {"message.timestamp.type": "CreateTime"}})
    worker = harness.start(orders, **EXACTLY)
    for api in (Api.PRODUCE, Api.INIT_PRODUCER_ID):
        wire.hold_back_requests(api, 300, client_id=MEMBER)
    harness.producer.produce(orders.names.front, b"old", timestamp=int((time.time() - 2.5 * 86_400) * 1000))
    orders.flush()
    wait_until(
        lambda: worker.metric("delayedtopics_failed_commits_total") > 1,
        what="transactions fail to begin",
        evidence=worker.evidence,
    )

    wait_until(
        lambda: Reason.RETENTION_AT_RISK in worker.alarm_reasons(),
        what="the alarm is raised",
        evidence=worker.evidence,
        timeout_seconds=90,
    )


@pytest.mark.slow
def test_records_whose_transactions_fail_are_not_counted_as_released(harness: WorkerHarness, wire: SlowWire) -> None:
    orders = harness.declare((0,))
    worker = harness.start(orders, **EXACTLY)
    wire.hold_back_requests(Api.TXN_OFFSET_COMMIT, 120, client_id=MEMBER)
    for n in range(50):
        orders.produce(b"%d" % n)
    orders.flush()

    wait_until(
        lambda: Reason.NOT_RELEASING in worker.alarm_reasons(),
        what="the alarm is raised",
        evidence=worker.evidence,
        timeout_seconds=30,
    )
    assert worker.metric("delayedtopics_released_total") == 0
    wire.hold_back_requests(Api.TXN_OFFSET_COMMIT, 0, client_id=MEMBER)
    assert doubled(all_ready(orders, list(range(50)))) == 0
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared", evidence=worker.evidence)
    assert worker.metric("delayedtopics_released_total") == 50


def test_a_record_that_comes_out_was_not_said_to_be_cancelled(harness: WorkerHarness, wire: SlowWire) -> None:
    """The transaction in which the record was cancelled fails, and then the request is withdrawn."""
    orders = harness.declare((0, 3))
    make_control(orders)
    orders.change(control=True)
    worker = harness.start(orders, **EXACTLY)
    wire.hold_back_requests(Api.TXN_OFFSET_COMMIT, 60, client_id=MEMBER)
    ask(orders, [b"o-1"])
    wait_until(
        lambda: worker.metric("delayedtopics_control_requests") == 1,
        what="the request is in force",
        evidence=worker.evidence,
    )
    orders.produce(b"v", headers=[("dt-id", b"o-1"), ("dt-delay-level", b"1")])
    orders.flush()
    wait_until(
        lambda: worker.metric("delayedtopics_failed_commits_total") > 0,
        what="the transaction fails",
        evidence=worker.evidence,
    )
    answered = answers(orders)
    ask(orders, [b"o-1"], None)
    wait_until(
        lambda: worker.metric("delayedtopics_control_requests") == 0,
        what="the request is withdrawn",
        evidence=worker.evidence,
    )
    wire.hold_back_requests(Api.TXN_OFFSET_COMMIT, 0, client_id=MEMBER)

    assert [record.header("dt-id") for record in orders.ready(1)] == [b"o-1"]
    assert answered == {}
