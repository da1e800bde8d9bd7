"""Runs a worker inside the test's process, for tests of what a process of its own can't be made to do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_worker.config import Guarantee, WorkerConfig
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.relay import Relay
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot, TopicWatch
from delayed_topics_worker.web import PublishedStatus

from delayed_topics_worker_testing.harness import DeclaredTopic


class ReplicatedWatch:
    """A topic watch that describes all topics with two replicas, which one broker can't give them."""

    def __init__(self, watch: TopicWatch) -> None:
        self._watch = watch

    @property
    def snapshot(self) -> TopicsSnapshot:
        seen = self._watch.snapshot
        topics = {
            topic: replace(info, replication_factor=2) if isinstance(info, TopicInfo) else info
            for topic, info in seen.topics.items()
        }
        return seen._replace(topics=topics)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)


@contextmanager
def running_relay(
    orders: DeclaredTopic, guarantee: Guarantee = "AtLeastOnce", *, replicated: bool = False
) -> Iterator[tuple[Relay, PublishedStatus]]:
    """Runs member `orders-0`. `PublishedStatus` has what its HTTP server would show. `replicated`: with a ReplicatedWatch."""
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
    if replicated:
        relay._watch = cast(TopicWatch, ReplicatedWatch(relay._watch))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay, published
    finally:
        relay.stop()
        thread.join()
