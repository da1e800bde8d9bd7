"""When topics grow while Kafka is slow, every partition is served, and no copy in flight comes out twice."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.generations import members_now, owners_now
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def harness(wire: SlowWire, tmp_path: Path) -> Iterator[WorkerHarness]:
    with WorkerHarness(Connection(bootstrap_servers=wire.bootstrap), tmp_path) as made:
        yield made


def grow(orders: DeclaredTopic, front_partitions: int) -> None:
    """Adds front partitions, and waits until each partition has an owner."""
    orders.grow_front(front_partitions)
    everything = front_partitions + orders.record.layout.partition_count
    wait_until(
        lambda: len(owners_now(orders)) == everything,
        what=f"all {everything} partitions have owners",
        evidence=orders.harness.evidence,
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_grows_while_copies_take_long_to_arrive_and_none_comes_twice(
    harness: WorkerHarness, wire: SlowWire, protocol: str
) -> None:
    orders = harness.declare((0,), front_partitions=4, partitions=1)
    numbers = list(range(20_000))
    for n in numbers:
        orders.produce(b"%d" % n, partition=n % 4, headers=[("padding", random.randbytes(1000))])
    orders.flush()
    wire.limit_requests(500_000, client_id="orders-0")
    harness.start(orders, member="orders-0", protocol=protocol)
    wait_until(lambda: orders.released() > 1_000, what="the worker has released some records", poll_seconds=0.2)
    for partitions in (5, 6, 7):
        grow(orders, partitions)
    assert orders.released() < len(numbers), "copies were in flight all the time"
    wire.limit_requests(100_000_000, client_id="orders-0")

    assert doubled(all_ready(orders, numbers)) == 0


@pytest.mark.parametrize("assignor", ["Range", "Sticky"])
def test_topics_grow_beside_busy_workers_and_nothing_comes_twice(
    harness: WorkerHarness, wire: SlowWire, assignor: str
) -> None:
    """The copies of partitions that are given up take a second to arrive, so that other workers see the growth in the meantime."""
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    for n in range(3):
        harness.start(orders, member=f"orders-{n}", assignor=assignor)
    with steady_load(orders, per_second=300, levels=2) as sent:
        wire.hold_back_requests(Api.PRODUCE, 1)
        for partitions in (5, 6, 7):
            grow(orders, partitions)
            time.sleep(2)
        wire.hold_back_requests(Api.PRODUCE, 0)

    assert doubled(all_ready(orders, sent)) == 0


def test_a_topic_that_grows_while_partitions_are_given_up_is_served_whole(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The client joins again when it sees the new partitions, and gets some of them before it has given up the others."""
    orders = harness.declare((0,), front_partitions=4)
    worker = harness.start(orders, member="orders-0")
    with steady_load(orders, per_second=100, levels=1) as sent:
        wire.hold_back_requests(Api.PRODUCE, 60, client_id="orders-0")
        wait_until(
            lambda: worker.status()["topics"][orders.names.front]["due_lag"] > 20,
            what="copies are in flight",
            evidence=worker.evidence,
        )
        wire.hold_back_requests(Api.METADATA, 60, client_id="orders-0")
        orders.grow_front(8)
        harness.start(orders, member="orders-1", ready=False)
        wait_until(lambda: "orders-1" in members_now(orders), what="a rebalance begins", evidence=worker.evidence)
        # A heartbeat, sent every 0.5 s, reports the rebalance. The worker then waits up to 4 s for its copies.
        time.sleep(2.5)
        wire.hold_back_requests(Api.METADATA, 0, client_id="orders-0")
        wait_until(lambda: len(owners_now(orders)) == 12, what="all partitions have owners", evidence=worker.evidence)
        wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")
        time.sleep(5)

    all_ready(orders, sent, timeout_seconds=60)
