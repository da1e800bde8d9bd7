"""The registry changes which topics a worker reads while an earlier change still waits for Kafka. The latest counts."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import Engine
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker.clients import (
    Fetching,
    Properties,
    clock_properties,
    consumer_properties,
    librdkafka,
    producer_properties,
)
from delayed_topics_worker_testing.generations import members_now
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load

pytestmark = pytest.mark.broker

MEMBER = "shared-0"
WITHOUT_WORKER = "no worker has"
"""A worker logs this when partitions have had no worker for six seconds. It then joins the group again."""


def register(*topics: DeclaredTopic) -> None:
    for declared in topics:
        declared.harness.write(declared.topics, declared.record)


@contextmanager
def another_member(orders: DeclaredTopic) -> Iterator[None]:
    """A member of the group that is no worker, until the block ends."""
    config = orders.harness.connection.client_config()
    assignor = {"partition.assignment.strategy": "range"}
    client = Consumer({**config, **assignor, "group.id": orders.record.group, "client.id": "another"})
    client.subscribe([orders.names.front])
    wait_until(lambda: client.poll(0) is None and "another" in members_now(orders), what="a rebalance begins")
    try:
        yield
    finally:
        client.close()


@pytest.mark.slow
def test_a_topic_that_comes_while_a_worker_has_given_up_its_partitions_for_another_is_served_at_once(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """With `Range`, a worker subscribes when its copies are settled. Before that, the group begins a rebalance."""
    group = f"shared-{uuid.uuid4().hex[:8]}"
    orders, second, third = harness.declare_many(3, group=group, begun=False)
    second.remove()
    third.remove()
    worker = harness.start(member=MEMBER, group=group, assignor="Range")
    with steady_load(orders, per_second=100, levels=1) as sent:
        wait_until(lambda: orders.released() > 0, what="the worker releases records", evidence=worker.evidence)
        wire.hold_back_requests(Api.PRODUCE, 60, client_id=MEMBER)
        wire.hold_back_requests(Api.JOIN_GROUP, 60, client_id=MEMBER)
        with another_member(orders):
            # A heartbeat, sent every 0.5 s, reports the rebalance. The worker then waits up to 4 s for its copies.
            time.sleep(1)
            register(second)
            wait_until(
                lambda: worker.status()["rebalance"]["last"]["change"] == "revoked",
                what="the worker has no partitions",
                evidence=worker.evidence,
            )
            register(third)
            time.sleep(1)  # the worker reads the registry ten times a second
        wire.hold_back_requests(Api.JOIN_GROUP, 0, client_id=MEMBER)
        wire.hold_back_requests(Api.PRODUCE, 0, client_id=MEMBER)
    third.produce(b"0")
    third.flush()

    all_ready(third, [0])
    all_ready(orders, sent)
    assert WITHOUT_WORKER not in worker.log_path.read_text()


@pytest.mark.slow
def test_a_topic_that_comes_while_others_grow_is_served_at_once(harness: WorkerHarness, wire: SlowWire) -> None:
    """A worker joins again for new partitions when its client knows them, or has waited for a second for each topic."""
    group = f"shared-{uuid.uuid4().hex[:8]}"
    *growing, later = harness.declare_many(4, group=group, begun=False)
    later.remove()
    worker = harness.start(member=MEMBER, group=group, assignor="Sticky")
    worker.signal(signal.SIGSTOP)  # so that it sees all topics grow at the same time
    for declared in growing:
        declared.grow((0, 1, 2, 3))
    wire.hold_back_requests(Api.METADATA, 60, client_id=MEMBER)
    worker.signal(signal.SIGCONT)
    time.sleep(1)  # the worker reads the registry ten times a second
    register(later)
    time.sleep(4)
    wire.hold_back_requests(Api.METADATA, 0, client_id=MEMBER)
    for declared in (*growing, later):
        declared.produce(b"0")
        declared.flush()
        assert doubled(all_ready(declared, [0])) == 0
    assert WITHOUT_WORKER not in worker.log_path.read_text()


def member_of(orders: DeclaredTopic) -> tuple[Engine, Properties]:
    """Returns an engine without a worker, and the properties of its consumer, which is cooperative."""
    connection = orders.harness.connection
    engine = Engine(
        library=librdkafka(),
        producer=producer_properties(connection, member=MEMBER, transactional_id=None),
        clock=clock_properties(connection, member=MEMBER),
        clock_topic=CLOCK_TOPIC,
        window_bytes=1 << 20,
        commit_interval_ms=100,
        renew_seconds=3600,
        exactly_once=False,
    )
    names = orders.names
    engine.add_topic(names.front, names.delays, names.ready, names.dead_letter)
    consumer = consumer_properties(
        connection,
        group=orders.record.group,
        member=MEMBER,
        protocol="classic",
        assignor="cooperative-sticky",
        fetching=Fetching(hurried=True, partitions=6),
    )
    return engine, consumer


def test_a_client_that_can_not_give_up_partitions_is_replaced_and_does_not_hold_up_the_group(
    harness: WorkerHarness,
) -> None:
    """The client waits for ever for the call that gives up the partitions. It refuses this call if it never took them over."""
    orders = harness.declare()
    engine, consumer = member_of(orders)

    def wait_for(name: str) -> None:
        wait_until(lambda: any(event[0] == name for event in engine.wait(0.1)), what=name, timeout_seconds=30)

    engine.subscribe([orders.names.front, orders.names.delays], consumer, grown=[])
    wait_for("Assigned")
    engine.assign([])
    engine.subscribe([orders.names.front], consumer, grown=[])
    wait_for("AssignmentFailed")
    engine.leave_at_once()
