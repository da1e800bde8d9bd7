"""The registry was deleted and restored. Workers go on, and follow it again once an operator has written a record that serves a topic."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import RegistryRecord
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[WorkerHarness]:
    """Yields a harness with a broker of its own."""
    with Broker() as broker, WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        yield harness


def restore(harness: WorkerHarness, *records: RegistryRecord) -> None:
    with RegistryFollower(harness.connection) as follower:
        follower.catch_up(60)
        RegistryWriter(follower, harness.connection).write(records)


def test_workers_follow_a_restored_registry_once_an_operator_says_what_is_served(alone: WorkerHarness) -> None:
    orders = alone.declare((0,))
    worker = alone.start(orders)
    alone.admin.delete_topics([REGISTRY_TOPIC])
    ensure_system_topics(alone.admin, replication_factor=1)
    restore(alone, orders.topics, replace(orders.record, state="retired"))
    wait_until(lambda: "KafkaRefused" in worker.alarm_reasons(), what="the alarm that the registry is lost")
    orders.produce(b"meanwhile")
    orders.flush()
    assert [r.value for r in orders.ready(1)] == [b"meanwhile"]

    restore(alone, replace(orders.record, paused=True))

    def paused() -> bool:
        return bool(worker.status()["topics"][orders.names.front]["paused"])

    wait_until(paused, what="the worker follows the new registry")
    assert worker.alarm_reasons() == set()
    restore(alone, orders.record)
    wait_until(lambda: not paused(), what="the worker follows the next change too")
