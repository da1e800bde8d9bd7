"""Transactions that are given up midway. Their outcome is known only when the next producer has begun."""

import os
import time

import pytest
from delayed_topics_devcluster.processes import resident_bytes
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker import clients
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.running import running_relay

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_partition_that_begins_before_a_transaction_is_decided_begins_again(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The committed offset is requested while the call to commit the transaction is in flight."""
    orders = harness.declare((0, 1))
    place = (orders.names.front, 0)
    with running_relay(orders, "ExactlyOnce") as (relay, published):
        wait_until(lambda: published.ready, what="the worker is ready")
        engine = relay._engine
        assert engine is not None
        wire.hold_back_requests(Api.ADD_OFFSETS_TO_TXN, 0.4)
        wire.hold_back_requests(Api.INIT_PRODUCER_ID, 0.8)
        with steady_load(orders, levels=2) as sent:
            for n in range(4):
                time.sleep(1.5 + n * 0.13)  # each time at another moment of a transaction
                engine.forget(*place)
                ((*_, offset, metadata),) = engine.committed([place], 1000)
                topic_id = orders.topics.ids[orders.names.front]
                engine.begin(
                    *place, topic_id=topic_id, delay_seconds=None, offset=offset, metadata=metadata, commit=False
                )
        ready = all_ready(orders, sent)

    assert doubled(ready) == 0


def test_a_producer_that_is_given_up_while_it_begins_shuts_out_no_later_one(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """If two producers with the same id begin at the same time, the call of the earlier one may arrive last."""
    orders = harness.declare((0,))
    worker = harness.start(orders, guarantee="ExactlyOnce")
    orders.produce()
    orders.flush()
    orders.ready(1)
    wire.hold_back_requests(Api.INIT_PRODUCER_ID, 1.5)
    orders.change(compression="zstd")
    time.sleep(1)
    wire._request_seconds.clear()  # for the next producer; the call that is held back stays held back
    orders.change(compression="gzip")
    time.sleep(2)
    orders.produce()
    orders.flush()

    assert len(orders.ready(2)) == 2
    assert "fenced" not in worker.log_path.read_text()


def test_a_client_that_waits_for_kafka_for_ever_takes_no_more_memory(
    harness: WorkerHarness, wire: SlowWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is left behind in its call, and continues to report its statistics."""
    monkeypatch.setitem(clients._ALL, "statistics.interval.ms", 2)
    orders = harness.declare((0,), front_partitions=1)
    with running_relay(orders, "ExactlyOnce") as (relay, published):
        wait_until(lambda: published.ready, what="the worker is ready")
        engine = relay._engine
        assert engine is not None
        wait_until(lambda: engine.state().may_send, what="a transaction is open")
        wire.hold_back_requests(Api.FIND_COORDINATOR, 600, client_id="orders-0")
        orders.produce()
        orders.flush()
        wait_until(
            lambda: "within 6 s" in (engine.state().problem or ""), what="a call is left behind", timeout_seconds=60
        )
        before = resident_bytes(os.getpid())
        time.sleep(6)
        assert resident_bytes(os.getpid()) - before < 10 << 20
        wire.reset()
        assert len(orders.ready(1)) == 1
