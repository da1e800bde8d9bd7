"""Kafka removes old committed offsets, but workers renew those of their partitions, even if few records arrive there."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RETENTION_SECONDS = 60
"""The shortest `offsets.retention.minutes` that Kafka accepts."""
FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[WorkerHarness]:
    with (
        Broker(settings={**PATIENT, **FORGETFUL}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made,
    ):
        yield made


def has_no_members(orders: DeclaredTopic) -> bool:
    group = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return isinstance(group, GroupInfo) and not group.members


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_partition_that_was_quiet_for_long_goes_on_when_its_worker_was_replaced(
    forgetful: WorkerHarness, guarantee: str
) -> None:
    orders = forgetful.declare((0, 1), partitions=2, front_partitions=2)
    worker = forgetful.start(orders, protocol="consumer", guarantee=guarantee, renew_commits_seconds=10)
    for partition in range(2):
        orders.produce(b"before", partition=partition)
    orders.flush()
    assert len(orders.ready(2)) == 2
    quiet_until, produced = time.monotonic() + RETENTION_SECONDS + 5, count(3)

    def was_quiet() -> bool:
        orders.produce(b"meanwhile", partition=0)
        orders.flush()
        return len(orders.ready(next(produced))) > 0 and time.monotonic() > quiet_until

    wait_until(was_quiet, what="partition 1 was quiet for long", poll_seconds=2, timeout_seconds=180)
    assert worker.terminate() == 0
    wait_until(lambda: has_no_members(orders), what="the group has no members")
    time.sleep(3)  # Kafka looks every second for expired offsets

    again = forgetful.start(orders, protocol="consumer", guarantee=guarantee)

    orders.produce(b"after", partition=1)
    orders.flush()
    released = orders.ready(next(produced), timeout_seconds=60)
    assert [record.value for record in released if record.partition == 1] == [b"before", b"after"]
    assert not again.alarms()
