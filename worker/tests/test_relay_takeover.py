"""Partitions of a worker that died in the middle of a transaction, and those of others meanwhile."""

from typing import Any

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.transactions import left_open

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_an_open_transaction_holds_up_only_the_partition_that_it_is_about(
    harness: WorkerHarness, protocol: Any
) -> None:
    orders = harness.declare((0,), front_partitions=2)
    dead = left_open(orders, 1)
    worker = harness.start(orders, guarantee="ExactlyOnce", protocol=protocol, ready=False)
    for n in range(20):
        orders.produce(b"%d" % n, partition=n % 2)
    orders.flush()

    assert {r.partition for r in orders.ready(10, timeout_seconds=30)} == {0}

    dead.abort_transaction(60)
    assert len(orders.ready(20)) == 20
    worker.ready()
    wait_until(
        lambda: [orders.committed()[orders.names.front, p].offset for p in range(2)] == [10, 10],
        what="everything is committed",
    )
