"""An audit of a delayed topic whose records come out in another ready topic, after a real worker."""

import time
from pathlib import Path

import pytest
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.declared import register, whole_window
from delayed_topics_core.headers import Header
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import CommittedOffset, NewTopicSpec
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

RECORDS = 60


def judged(orders: DeclaredTopic, spark: SparkSession) -> Result:
    return audit(whole_window(orders), orders.harness.connection, lambda: spark, lambda _: None).result


def test_what_came_out_in_another_ready_topic_is_accounted_for_and_what_is_wrong_there_is_named(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 1))
        invoices = f"{orders.names.front}.invoices"
        config = {"message.timestamp.type": "LogAppendTime"}
        harness.create([NewTopicSpec(name=invoices, partitions=3, replication_factor=1, config=config)])
        register(orders)
        orders.change(ready_topics=(AllowedTopic(invoices, int(time.time() * 1000)),))
        asks: list[Header] = [("dt-target", invoices.encode())]
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
        harness.commit(orders.record.group, {front: CommittedOffset(end)})

        found = judged(orders, spark)
        assert found.verdict == "Violated", found.message
        (doubled,), (lost,) = found.offenders["doubled"], found.offenders["lost"]
        root = (once.header("dt-root") or b"").decode().rpartition(":")[0]
        assert doubled.startswith(f"{root} {invoices}:{once.partition}:{once.offset} {invoices}:{once.partition}:")
        assert lost == f"f:0:{end - 1}"
