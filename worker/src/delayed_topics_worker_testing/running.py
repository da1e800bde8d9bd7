"""Runs a worker inside the test's process, for tests of what a process of its own can't be made to do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_worker.config import Guarantee, WorkerConfig
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.relay import Relay
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.web import PublishedStatus

from delayed_topics_worker_testing.harness import DeclaredTopic


@contextmanager
def running_relay(
    orders: DeclaredTopic, guarantee: Guarantee = "AtLeastOnce"
) -> Iterator[tuple[Relay, PublishedStatus]]:
    """Runs member `orders-0`. `PublishedStatus` has what its HTTP server would show."""
    config = WorkerConfig(topics=(orders.names.front,), http_port=free_ports(1)[0], guarantee=guarantee)
    served = ServedTopics(config)
    published = PublishedStatus(boot_seconds)
    relay = Relay(
        config,
        orders.harness.connection,
        served,
        member="orders-0",
        metrics=Metrics(),
        published=published,
    )
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay, published
    finally:
        relay.stop()
        thread.join()
