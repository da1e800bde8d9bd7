"""Kafka loses the end of a partition, as after an unclean leader election, or if the only replica's last writes did not reach its disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from delayed_topics_core.events import Event
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_kafka_testing.slow_wire import LOOPBACK, Api, SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import doubled
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

KEEPS_PARTITIONS: dict[str, Any] = {"protocol": "consumer", "assignor": "Uniform"}
"""With the protocol `classic`, a member would give up its partitions when the broker is away for ten seconds."""


@contextmanager
def down(broker: Broker) -> Iterator[None]:
    """Stops the broker during the block. It starts as after a power failure, without Kafka's mark of a clean shutdown."""
    broker.stop()
    (broker.directory / "data" / ".kafka_cleanshutdown").unlink()
    yield
    broker.start()


def cut_last_batch(broker: Broker, topic: str, partition: int) -> int:
    """Removes the last batch from the log of a stopped broker. Returns the first offset that is lost."""
    (log,) = (broker.directory / "data" / f"{topic}-{partition}").glob("*.log")
    whole = log.read_bytes()
    start = end = 0
    while end < len(whole):  # a batch begins with its offset and the length of what follows these twelve bytes
        start, end = end, end + 12 + int.from_bytes(whole[end + 8 : end + 12])
    log.write_bytes(whole[:start])
    return int.from_bytes(whole[start : start + 8])


def is_empty(admin: KafkaAdmin, group: str) -> bool:
    found = admin.describe_groups([group])[group]
    return isinstance(found, GroupInfo) and found.state == "Empty"


def is_stranded(worker: WorkerProcess) -> bool:
    """In one outage of fifty, the client loses the addresses of its brokers. The client that replaces it does not know the former end."""
    return "lost the addresses of all brokers" in worker.log_path.read_text()


def knows_of_the_refusal(worker: WorkerProcess, offset: int) -> bool:
    """That Kafka has answered does not suffice, because the client drops an answer that comes after a pause of the partition."""
    return f"Kafka refused offset {offset}: " in worker.log_path.read_text()


def release_three(orders: DeclaredTopic) -> None:
    """Produces three records, each in a batch of its own, and waits until the worker has released them."""
    producer = Producer(orders.harness.connection.client_config())
    for n in range(3):
        producer.produce(orders.names.front, b"before %d" % n, partition=0)
        assert producer.flush(60) == 0
    orders.ready(3)


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_lost_records_are_an_alarm_and_those_that_get_their_offsets_come_out_when_somebody_has_decided(
    tmp_path: Path, guarantee: str
) -> None:
    with Broker() as broker, WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        while True:
            orders = harness.declare((0,), front_partitions=1, partitions=1)
            worker = harness.start(orders, guarantee=guarantee, **KEEPS_PARTITIONS)
            release_three(orders)
            with down(broker):
                end = cut_last_batch(broker, orders.names.front, 0)
            for n in range(10):
                orders.produce(b"after %d" % n)
            orders.flush()
            wait_until(
                lambda: Reason.RECORDS_REMOVED in worker.alarm_reasons() or is_stranded(worker),  # noqa: B023
                what="the alarm",
                evidence=worker.evidence,
            )
            if not is_stranded(worker):
                break
            worker.kill()  # and try again with another topic

        (message,) = (a["message"] for a in worker.status()["alarms"] if a["reason"] == Reason.RECORDS_REMOVED)
        assert f"{orders.names.front} [0] at offset 3 " in message
        assert f"broker end offset is {end} " in message
        assert "Kafka has lost the last records of the partition" in message
        assert worker.terminate() == 0
        admin = KafkaAdmin(harness.connection, timeout_seconds=60)
        wait_until(lambda: is_empty(admin, orders.record.group), what="the worker has left")
        assert admin.commit(orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(end)}) == {
            (orders.names.front, 0): None
        }
        harness.start(orders, guarantee=guarantee, **KEEPS_PARTITIONS)
        assert {f"after {n}".encode() for n in range(10)} <= {r.value for r in orders.ready(13)}


@pytest.mark.slow
def test_records_that_got_the_offsets_of_lost_ones_while_kafka_was_slow_are_an_alarm_and_not_passed_over(
    tmp_path: Path,
) -> None:
    """A worker that has just started knows only an offset, and no leader epoch. Kafka refuses this offset. When Kafka says which offsets
    it has, other records have been produced up to this offset and beyond."""
    (port,) = free_ports(1)
    with (
        Broker(settings={"advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}"}) as broker,
        SlowWire(port, int(broker.bootstrap.rpartition(":")[2])) as wire,
        WorkerHarness(Connection(bootstrap_servers=wire.bootstrap), tmp_path) as harness,
    ):
        orders = harness.declare((0,), front_partitions=1, partitions=1)
        place = (orders.names.front, 0)
        worker = harness.start(orders, **KEEPS_PARTITIONS)
        release_three(orders)
        assert worker.terminate() == 0
        with down(broker):
            end = cut_last_batch(broker, orders.names.front, 0)
        wire.hold_back_requests(Api.LIST_OFFSETS, 600, client_id="orders-0-watch")
        worker = harness.start(orders, ready=False, **KEEPS_PARTITIONS)
        wait_until(
            lambda: knows_of_the_refusal(worker, 3), what="the refusal", evidence=worker.evidence, poll_seconds=0.01
        )
        for n in range(5):
            orders.produce(b"after %d" % n)
        orders.flush()
        wire.hold_back_requests(Api.LIST_OFFSETS, 0, client_id="orders-0-watch")
        wait_until(
            lambda: Reason.RECORDS_REMOVED in worker.alarm_reasons(),
            what="the alarm",
            evidence=worker.evidence,
            timeout_seconds=30,
        )
        (message,) = (a["message"] for a in worker.status()["alarms"] if a["reason"] == Reason.RECORDS_REMOVED)
        assert f"{orders.names.front} [0] at offset 3 " in message
        assert "it had lost the last records of the partition" in message
        assert worker.terminate() == 0
        wait_until(lambda: is_empty(harness.admin, orders.record.group), what="the worker has left")
        harness.commit(orders.record.group, {place: OffsetAndMetadata(end)})
        harness.start(orders, **KEEPS_PARTITIONS)
        assert {f"after {n}".encode() for n in range(5)} <= {r.value for r in orders.ready(8)}


def replaced(orders: DeclaredTopic) -> int:
    """Returns how often the producers of this topic's workers were replaced, according to events."""
    events: list[Event] = []
    with EventFollower(orders.harness.connection) as follower:
        follower.catch_up(60, events.append)
    return sum(event.kind == "producers-replaced" and event.topic == orders.names.front for event in events)


def test_a_producer_that_fails_for_good_is_replaced_and_what_it_had_comes_out(tmp_path: Path) -> None:
    """A broker that has lost the last records of a producer accepts no more records from it."""
    partitions, count = 8, 4000
    with Broker() as broker, WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0,), front_partitions=partitions, partitions=1)
        worker = harness.start(orders, **KEEPS_PARTITIONS)
        for n in range(count):
            orders.produce(b"%d" % n, key=b"%d" % n)
        orders.flush()
        places = {(r.partition, r.offset): int(r.value or b"") for r in orders.ready(count)}
        with down(broker):
            ends = [cut_last_batch(broker, orders.names.ready, partition) for partition in range(partitions)]
        lost = {number for (partition, offset), number in places.items() if offset >= ends[partition]}
        for n in range(count, 2 * count):
            orders.produce(b"%d" % n, key=b"%d" % n)
        orders.flush()

        ready = orders.ready(2 * count - len(lost))

        assert {int(r.value or b"") for r in ready} >= set(range(2 * count)) - lost
        assert doubled(ready) == 0
        wait_until(lambda: replaced(orders) == 1, what="the event")
        assert worker.running
        wait_until(lambda: not worker.alarm_reasons(), what="no alarm", evidence=worker.evidence)
