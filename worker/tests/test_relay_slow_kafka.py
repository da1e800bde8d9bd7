"""Guarantee ExactlyOnce while Kafka is slow, and a transaction is given up: nothing comes twice, nothing is lost."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.slow_wire import (
    ADD_OFFSETS_TO_TXN,
    INIT_PRODUCER_ID,
    LOOPBACK,
    OFFSET_FETCH,
    PRODUCE,
    SlowWire,
)
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.world import World

pytestmark = pytest.mark.broker

EXACTLY: Any = {"guarantee": "ExactlyOnce"}


@pytest.fixture
def wire() -> Iterator[SlowWire]:
    """The only way to a broker of its own."""
    (port,) = free_ports(1)
    settings = {**PATIENT, "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}"}
    with Broker(settings=settings) as broker, SlowWire(port, int(broker.bootstrap.rpartition(":")[2])) as wire:
        yield wire


@pytest.fixture
def world(wire: SlowWire, tmp_path: Path) -> Iterator[World]:
    made = World(Connection(bootstrap_servers=wire.bootstrap), tmp_path)
    yield made
    made.close()


def test_a_transaction_that_is_committed_while_it_is_given_up_is_not_done_again(world: World, wire: SlowWire) -> None:
    """The call to commit it is on its way, and arrives before the next producer of its id."""
    orders = world.declare((0, 1))
    world.start(orders, **EXACTLY)
    wire.hold_back_requests(ADD_OFFSETS_TO_TXN, 0.15)
    wire.hold_back_requests(INIT_PRODUCER_ID, 0.4)
    with steady_load(orders) as sent:
        for codec in ("zstd", "none", "gzip", "lz4"):
            time.sleep(1.5)
            orders.change(compression=codec)

    assert doubled(all_ready(orders, sent)) == 0


def test_a_worker_that_ends_while_it_asks_what_is_committed_commits_nothing_of_a_transaction_that_was_given_up(
    world: World, wire: SlowWire
) -> None:
    orders = world.declare((0, 1))
    worker = world.start(orders, **EXACTLY)
    with steady_load(orders) as sent:
        for codec in ("zstd", "none", "gzip"):
            time.sleep(1)
            wire.hold_back_requests(OFFSET_FETCH, 2)
            orders.change(compression=codec)
            time.sleep(0.3)
            worker.terminate()
            wire.hold_back_requests(OFFSET_FETCH, 0)
            worker = world.start(orders, **EXACTLY)

    assert doubled(all_ready(orders, sent, timeout_seconds=60)) == 0


def test_a_worker_that_ends_while_a_transaction_fails_commits_nothing_of_it(world: World, wire: SlowWire) -> None:
    """Of its copies one is refused, after the others were acknowledged."""
    orders = world.declare((1,), config={"ready": {"max.message.bytes": "5000"}})
    worker = world.start(orders, **EXACTLY)
    for n in range(100):
        orders.produce(b"%d" % n, partition=0)
    orders.produce(os.urandom(6000), partition=1)
    orders.flush()
    wire.hold_back_requests(PRODUCE, 1)
    time.sleep(1.5)
    worker.terminate()
    wire.hold_back_requests(PRODUCE, 0)
    world.start(orders, **EXACTLY)

    assert [r.header("dt-reason") for r in orders.dead(1)] == [b"TooLarge"]
    assert len(orders.ready(100)) == 100
