"""Partitions that end in transaction markers and aborted records, which no reader sees."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_core.headers import Header
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.transactions import produce_in_transaction

pytestmark = pytest.mark.broker


def numbers(first: int, end: int) -> Iterator[tuple[bytes, int, list[Header]]]:
    return ((b"%d" % n, 0, []) for n in range(first, end))


def end_offsets(orders: DeclaredTopic) -> dict[tuple[str, int], int]:
    """Returns the end offsets of all partitions that the worker reads."""
    places = list(orders.committed())
    found = orders.harness.admin.list_offsets(places, "latest")
    return {place: end for place, end in found.items() if isinstance(end, int)}


def wait_until_all_is_committed(orders: DeclaredTopic) -> None:
    wait_until(
        lambda: {place: offset for place, (offset, _) in orders.committed().items()} == end_offsets(orders),
        what="the committed offsets are the ends of all partitions",
        evidence=lambda: f"{orders.committed()}, the ends are {end_offsets(orders)}",
        timeout_seconds=60,
    )


def remove_all_records(orders: DeclaredTopic) -> None:
    """Does what retention does to partitions that have been idle for long."""
    client = AdminClient(orders.harness.connection.client_config())
    wanted = [TopicPartition(*place, end) for place, end in end_offsets(orders).items() if end]
    for deleted in client.delete_records(wanted).values():
        deleted.result(60)


@pytest.mark.parametrize("guarantee", [pytest.param("AtLeastOnce", marks=pytest.mark.slow), "ExactlyOnce"])
def test_an_idle_partition_that_ends_in_markers_goes_on_after_retention_and_a_restart(
    harness: WorkerHarness, guarantee: Any
) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    worker = harness.start(orders, guarantee=guarantee)
    produce_in_transaction(orders, numbers(0, 5))
    for n in range(5, 10):
        orders.produce(b"%d" % n, partition=0, headers=[("dt-delay-level", b"2")])
    orders.flush()
    assert len(orders.ready(10)) == 10
    produce_in_transaction(orders, numbers(100, 105), commit=False)
    wait_until_all_is_committed(orders)
    remove_all_records(orders)
    assert worker.terminate() == 0

    worker = harness.start(orders, guarantee=guarantee)
    produce_in_transaction(orders, numbers(10, 15))

    assert {int(r.value or b"") for r in orders.ready(15)} == set(range(15))
    assert worker.alarm_reasons() == set()
