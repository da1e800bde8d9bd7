"""Records that request another ready topic come out there, and wait for the topic if it is missing."""

import os
import time
from typing import Any

import pytest
from delayed_topics_core.headers import Header
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = pytest.mark.broker

GUARANTEES = pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
CONFIG = {"message.timestamp.type": "LogAppendTime"}


def make(harness: WorkerHarness, name: str, partitions: int = 3, *, config: dict[str, str] = CONFIG) -> TopicInfo:
    spec = NewTopicSpec(name=name, partitions=partitions, replication_factor=1, config=config)
    return harness.create([spec])[name]


def declare(harness: WorkerHarness, *topics: str, **further: Any) -> tuple[DeclaredTopic, list[str]]:
    """Declares a delayed topic with delays of 0 s, 1 s and 2 s. Returns the topic and the names of other ready topics that it allows."""
    orders = harness.declare(**further)
    names = [f"{orders.names.front}.{topic}" for topic in topics]
    allow(orders, *names)
    orders.change(outage_budget_seconds=3600)
    return orders, names


def allow(orders: DeclaredTopic, *topics: str) -> None:
    orders.change(ready_topics=tuple(AllowedTopic(topic, 0) for topic in topics))


def delete(harness: WorkerHarness, broker: Broker, topic: str) -> None:
    """Deletes the topic. Returns when the broker accepts no more records for it, which is a moment after Kafka has answered."""
    assert harness.admin.delete_topics([topic]) == {topic: None}
    data = broker.directory / "data"
    wait_until(lambda: not any(data.glob(f"{topic}-[0-9]")), what=f"the broker has removed {topic}")


def asks(topic: str, *, level: int = 1) -> list[Header]:
    return [("dt-target", topic.encode()), ("dt-delay-level", b"%d" % level)]


def test_a_topic_that_keeps_the_time_of_its_producer_has_the_brokers_time_and_not_that_of_a_workers_machine(
    harness: WorkerHarness,
) -> None:
    """Kafka refuses a time far ahead, and removes records by their time."""
    orders, (invoices,) = declare(harness, "invoices")
    make(harness, invoices, config={"message.timestamp.type": "CreateTime"})
    harness.start(orders)
    for n in range(20):
        orders.produce(b"%d" % n, headers=asks(invoices))
        time.sleep(0.02)
    orders.flush()

    found = harness.read(invoices, 20)
    assert [b"0:%d" % r.at_ms for r in found] == [r.header("dt-released") for r in found]


@GUARANTEES
def test_each_record_comes_out_in_the_topic_that_it_asks_for(harness: WorkerHarness, guarantee: str) -> None:
    orders, (invoices, shipments) = declare(harness, "invoices", "shipments")
    make(harness, invoices)
    make(harness, shipments, 1)
    harness.start(orders, guarantee=guarantee)
    for n in range(90):
        topic = (invoices, shipments, None)[n % 3]
        level: list[Header] = [("dt-delay-level", b"%d" % (n % 2 + 1))]
        orders.produce(b"%d" % n, key=b"%d" % n, headers=[*level, *(asks(topic)[:1] if topic else [])])
    orders.flush()

    for at, topic in enumerate((invoices, shipments, orders.names.ready)):
        found = harness.read(topic, 30)
        assert sorted(int(r.value or b"") for r in found) == list(range(at, 90, 3))
        assert all(r.late_ms >= 0 for r in found)
        assert {r.header("dt-target") for r in found} == {topic.encode() if topic != orders.names.ready else None}


@GUARANTEES
def test_only_records_that_are_too_large_for_the_topic_that_they_ask_for_are_dead_letters(
    harness: WorkerHarness, guarantee: str
) -> None:
    """Kafka refuses a whole batch if one of its records is too large, and a batch may have copies from all front partitions. When the
    worker sends a record alone, nothing else may be in its batch."""
    orders, (invoices,) = declare(harness, "invoices", front_partitions=4)
    spec = NewTopicSpec(
        name=invoices, partitions=1, replication_factor=1, config={**CONFIG, "max.message.bytes": "100000"}
    )
    harness.create([spec])
    harness.start(orders, guarantee=guarantee)
    each = 16
    for n in range(each):
        for partition in range(4):
            is_large = (n + partition) % 4 == 0
            value = os.urandom(120_000) if is_large else b"%d of %d" % (n, partition)
            orders.produce(value, partition=partition, headers=asks(f"{invoices}:0"))
    orders.flush()

    released = harness.read(invoices, 3 * each, timeout_seconds=60)
    assert len({r.value for r in released}) == 3 * each
    dead = orders.dead(each)
    assert min(len(r.value or b"") for r in dead) == 120_000


def test_a_record_comes_out_in_the_partition_that_it_asks_for(harness: WorkerHarness) -> None:
    orders, (invoices,) = declare(harness, "invoices")
    make(harness, invoices)
    harness.start(orders)
    for partition in (2, 0, 2):
        orders.produce(b"v", headers=asks(f"{invoices}:{partition}", level=2))
    orders.flush()
    assert sorted(r.partition for r in harness.read(invoices, 3)) == [0, 2, 2]


def test_a_retry_comes_back_into_the_topic_of_its_first_attempt(harness: WorkerHarness) -> None:
    orders, (invoices,) = declare(harness, "invoices")
    make(harness, invoices)
    harness.start(orders)
    orders.produce(b"v", headers=asks(invoices))
    orders.flush()
    (first,) = harness.read(invoices, 1)
    orders.produce(first.value, headers=first.headers)  # as by a consumer that copies all headers
    orders.flush()
    again = max(harness.read(invoices, 2), key=lambda r: r.at_ms)
    assert (again.header("dt-attempt"), again.header("dt-id")) == (b"1", first.header("dt-id"))


@pytest.mark.slow
@GUARANTEES
def test_a_record_waits_for_a_topic_that_is_missing_and_its_neighbours_do_not(
    harness: WorkerHarness, guarantee: str
) -> None:
    orders, (invoices,) = declare(harness, "invoices", front_partitions=1)
    worker = harness.start(orders, guarantee=guarantee)
    orders.produce(b"late", headers=asks(invoices), partition=0)
    for n in range(10):
        orders.produce(b"%d" % n, partition=0)
    orders.flush()
    assert {r.value for r in orders.ready(10)} == {b"%d" % n for n in range(10)}
    wait_until(
        lambda: any(
            alarm["reason"] == Reason.TARGET_UNAVAILABLE and invoices in alarm["message"]
            for alarm in worker.status()["alarms"]
        ),
        what="an alarm names the topic",
    )
    made_at_ms = int(time.time() * 1000)
    make(harness, invoices)

    (late,) = harness.read(invoices, 1)
    assert late.value == b"late"
    assert late.at_ms >= made_at_ms
    wait_until(lambda: not worker.status()["alarms"], what="the alarm is over", timeout_seconds=120)


def test_what_has_waited_for_the_whole_outage_budget_is_a_dead_letter(harness: WorkerHarness) -> None:
    orders, (invoices,) = declare(harness, "invoices")
    orders.change(outage_budget_seconds=3)
    harness.start(orders)
    orders.produce(b"v", headers=asks(invoices))
    orders.produce(b"v", headers=asks(f"{invoices}:3"))
    orders.flush()
    dead = orders.dead(2)
    assert {r.header("dt-reason") for r in dead} == {b"TargetUnavailable"}
    assert all(invoices.encode() in (r.header("dt-error") or b"") for r in dead)


def test_a_topic_that_is_allowed_from_now_on_is_found_at_once(harness: WorkerHarness) -> None:
    orders, (invoices,) = declare(harness, "invoices")
    make(harness, invoices)
    allow(orders)
    harness.start(orders)
    orders.produce(b"before", headers=asks(invoices))
    orders.flush()
    (dead,) = orders.dead(1)
    assert dead.header("dt-reason") == b"TargetNotAllowed"
    allow(orders, invoices)
    wait_until(
        lambda: _is_released(orders, invoices), what="a record comes out in the allowed topic", timeout_seconds=60
    )


def _is_released(orders: DeclaredTopic, topic: str) -> bool:
    orders.produce(b"after", headers=asks(topic))
    orders.flush()
    with orders.harness.reader(topic) as read:
        time.sleep(0.5)
        return any(r.value == b"after" for r in read())


def send_twenty_that_lose_their_topic(orders: DeclaredTopic, broker: Broker, topic: str, guarantee: str) -> None:
    """Produces twenty records for the topic, of which the first comes out before the topic is deleted. Returns when the worker reports
    that the topic is missing."""
    make(orders.harness, topic)
    worker = orders.harness.start(orders, guarantee=guarantee)
    orders.produce(b"0", headers=asks(topic))
    orders.flush()
    orders.harness.read(topic, 1)
    delete(orders.harness, broker, topic)
    for n in range(1, 20):
        orders.produce(b"%d" % n, headers=asks(topic, level=n % 2 + 1))
    orders.flush()
    wait_until(lambda: bool(worker.status()["alarms"]), what="the alarm that the topic is missing")


@GUARANTEES
def test_a_topic_that_goes_away_and_comes_back_loses_nothing(
    harness: WorkerHarness, broker: Broker, guarantee: str
) -> None:
    orders, (invoices,) = declare(harness, "invoices", front_partitions=1)
    send_twenty_that_lose_their_topic(orders, broker, invoices, guarantee)
    make(harness, invoices)
    assert {r.value for r in harness.read(invoices, 19)} == {b"%d" % n for n in range(1, 20)}


@GUARANTEES
def test_while_a_topic_that_was_there_is_missing_other_records_come_out(
    harness: WorkerHarness, broker: Broker, guarantee: str
) -> None:
    orders, (invoices,) = declare(harness, "invoices", front_partitions=1)
    orders.change(outage_budget_seconds=3)
    send_twenty_that_lose_their_topic(orders, broker, invoices, guarantee)
    for n in range(20, 30):
        orders.produce(b"%d" % n)
    orders.flush()

    assert {r.value for r in orders.ready(10, timeout_seconds=30)} == {b"%d" % n for n in range(20, 30)}
    dead = orders.dead(19, timeout_seconds=30)
    assert {(r.value, r.header("dt-reason")) for r in dead} == {(b"%d" % n, b"TargetUnavailable") for n in range(1, 20)}
