"""Audits of a delayed topic whose records a real worker releases into another ready topic."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.declared import chained, register, whole_window
from delayed_topics_core.headers import Header
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

RECORDS = 60


def judged(orders: DeclaredTopic, spark: SparkSession) -> Result:
    return audit(whole_window(orders), orders.harness.connection, lambda: spark, lambda _: None).result


@pytest.fixture
def served(broker: Broker, tmp_path: Path) -> Iterator[tuple[DeclaredTopic, str, list[Header]]]:
    """A delayed topic, the name of another ready topic with three partitions, and the header that requests this topic."""
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 1))
        invoices = f"{orders.names.front}.invoices"
        harness.create([ready_topic_spec(invoices)])
        register(orders)
        orders.change(ready_topics=(AllowedTopic(invoices, int(time.time() * 1000)),))
        yield orders, invoices, [("dt-target", invoices.encode())]


def ready_topic_spec(topic: str) -> NewTopicSpec:
    config = {"message.timestamp.type": "LogAppendTime"}
    return NewTopicSpec(name=topic, partitions=3, replication_factor=1, config=config)


def test_what_came_out_in_another_ready_topic_is_accounted_for_and_what_is_wrong_there_is_named(
    spark: SparkSession, served: tuple[DeclaredTopic, str, list[Header]]
) -> None:
    orders, invoices, asks = served
    harness = orders.harness
    orders.produce(b"of somebody", topic=invoices)
    worker = harness.start(orders)
    for n in range(RECORDS):
        level: list[Header] = [("dt-delay-level", b"%d" % (n % 4 // 2 + 1))]
        orders.produce(b"%d" % n, headers=[*level, *(asks if n % 2 else [])])
    orders.flush()
    there = harness.read(invoices, RECORDS // 2 + 1)
    orders.ready(RECORDS // 2)
    assert worker.terminate() == 0

    clean = judged(orders, spark)
    assert clean.verdict == "Verified", clean.message
    assert clean.account is not None
    assert (clean.account.released, clean.account.lost) == (RECORDS, 0)

    once = next(record for record in there if record.header("dt-root"))
    orders.produce(once.value, topic=invoices, headers=once.headers, partition=once.partition)
    orders.produce(b"taken", headers=asks, partition=0)
    orders.flush()
    front = (orders.names.front, 0)
    end = harness.admin.list_offsets([front], "latest")[front]
    assert isinstance(end, int)
    harness.commit(orders.record.group, {front: OffsetAndMetadata(end)})

    found = judged(orders, spark)
    assert found.verdict == "Violated", found.message
    (doubled,), (lost,) = found.offenders["doubled"], found.offenders["lost"]
    root = (once.header("dt-root") or b"").decode().rpartition(":")[0]
    assert doubled.startswith(f"{root} {invoices}:{once.partition}:{once.offset} {invoices}:{once.partition}:")
    assert lost == f"f:0:{end - 1}"


def test_a_ready_topic_that_its_owners_create_again_takes_its_records_along_and_nobody_is_blamed(
    spark: SparkSession, served: tuple[DeclaredTopic, str, list[Header]], tmp_path: Path
) -> None:
    """The audit once called the records lost. It also took the table of the former topic for rows of the new one, which is longer."""
    orders, invoices, asks = served
    harness = orders.harness

    def fill(count: int) -> None:
        somebody = Producer(harness.connection.client_config())
        for n in range(count):
            somebody.produce(invoices, b"of somebody", partition=n % 3)
        assert somebody.flush(60) == 0

    def release(so_far: int) -> None:
        for n in range(20):
            orders.produce(b"%d" % n, headers=asks, partition=n % 2)
        orders.flush()
        harness.read(invoices, 300 + so_far)

    fill(300)
    worker = harness.start(orders)
    release(20)
    _, first = chained(orders, spark, tmp_path / "accounts" / "first")
    _, second = chained(orders, spark, tmp_path / "accounts" / "second")
    assert (first.verdict, second.verdict) == ("Verified", "Verified"), (first.message, second.message)
    assert second.account is not None
    assert second.account.offsets_read < 20, "records of other producers are read only once, too"

    release(40)
    assert worker.terminate() == 0
    harness.admin.delete_topics([invoices])
    wait_until(lambda: harness.admin.describe_topics([invoices])[invoices] is None, what="the topic is deleted")
    harness.create([ready_topic_spec(invoices)])
    fill(600)
    _, third = chained(orders, spark, tmp_path / "accounts" / "third")
    assert third.account is not None
    assert (third.account.lost, third.account.doubled) == (20, 0)
    assert third.verdict == "Unknown", third.message
    assert f"topic {invoices} was deleted and created again" in third.message.lower()
    whole = judged(orders, spark)
    assert whole.verdict == "Unknown", whole.message
