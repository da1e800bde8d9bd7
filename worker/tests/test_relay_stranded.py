"""A Kafka client that knows no broker any more is replaced, and what it held is neither lost nor early."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_worker.config import Guarantee, WorkerConfig
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.relay import Relay
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.web import Board
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.world import Declared, World

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_stranded_client_is_replaced_and_everything_comes_out(world: World, guarantee: Guarantee) -> None:
    """No broker can be made to strand a client at will: one outage in fifty does."""
    orders = world.declare((0, 1, 2))
    with running_relay(orders, guarantee) as relay:
        wait_until(lambda: relay._assignment.settled, what="the relay serves")
        consumer, producers = relay._consumer, list(relay._outbox._producers.values())
        with steady_load(orders) as sent:
            time.sleep(2)  # in the middle of the flow
            relay._stranded.set()
            wait_until(lambda: relay._consumer not in (None, consumer), what="a new consumer")
            time.sleep(1)
        ready = all_ready(orders, sent)

        assert not set(producers) & set(relay._outbox._producers.values())
    if guarantee == "ExactlyOnce":
        assert doubled(ready) == 0


@contextmanager
def running_relay(orders: Declared, guarantee: Guarantee) -> Iterator[Relay]:
    config = WorkerConfig(topics=(orders.names.front,), http_port=free_ports(1)[0], guarantee=guarantee)
    served = ServedTopics.of(config.topics)
    relay = Relay(
        config,
        orders.world.connection,
        served,
        member="orders-0",
        metrics=Metrics(served),
        board=Board(boot_seconds),
    )
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join()
