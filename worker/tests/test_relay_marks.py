"""Partitions that end in what a reader never sees: transaction markers and aborted records."""

from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.world import Declared, World

pytestmark = pytest.mark.broker


def transact(orders: Declared, values: range, *, commit: bool = True) -> None:
    """As an application does that produces in transactions."""
    producer = Producer({**orders.world.connection.client_config(), "transactional.id": f"app-{orders.names.front}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in values:
        producer.produce(orders.names.front, b"%d" % n, partition=0)
    assert producer.flush(60) == 0
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def ends(orders: Declared) -> dict[tuple[str, int], int]:
    """Of all partitions that the worker reads."""
    places = list(orders.committed())
    found = orders.world.admin.list_offsets(places, "latest")
    return {place: end for place, end in found.items() if isinstance(end, int)}


def commits_all(orders: Declared) -> None:
    wait_until(
        lambda: {place: offset for place, (offset, _) in orders.committed().items()} == ends(orders),
        what="the committed offsets are the ends of all partitions",
        evidence=lambda: f"{orders.committed()}, the ends are {ends(orders)}",
        timeout_seconds=60,
    )


def cut(orders: Declared) -> None:
    """What retention does to a partition that has been idle for long."""
    client = AdminClient(orders.world.connection.client_config())
    wanted = [TopicPartition(*place, end) for place, end in ends(orders).items() if end]
    for deleted in client.delete_records(wanted).values():
        deleted.result(60)


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_an_idle_partition_that_ends_in_markers_goes_on_after_retention_and_a_restart(
    world: World, guarantee: Any
) -> None:
    orders = world.declare((0, 1), front_partitions=1)
    worker = world.start(orders, guarantee=guarantee)
    transact(orders, range(5))
    for n in range(5, 10):
        orders.produce(b"%d" % n, partition=0, headers=[("dt-delay-level", b"2")])
    orders.flush()
    assert len(orders.ready(10)) == 10
    transact(orders, range(100, 105), commit=False)
    commits_all(orders)
    cut(orders)
    assert worker.terminate() == 0

    worker = world.start(orders, guarantee=guarantee)
    transact(orders, range(10, 15))

    assert {int(r.value or b"") for r in orders.ready(15)} == set(range(15))
    assert worker.alarm_reasons() == set()
