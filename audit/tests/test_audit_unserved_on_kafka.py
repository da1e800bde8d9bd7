"""Records that no worker reads: in partitions that someone else has added, and behind a transaction that stays open."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_audit.account import Result
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.declared import register, whole_window, window_of
from delayed_topics_crds.audit import Window
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.audits import unserved
from delayed_topics_worker_testing.harness import WorkerHarness
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]
EVERYTHING = Window()


def test_records_in_a_partition_that_nobody_serves_make_no_clean_audit(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """A client that hashes keys writes into such a partition. Every audit once reported `Verified`."""
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 1))
        register(orders)
        delays, added = orders.names.delays, orders.record.layout.partition_count

        def judged() -> Result:
            return audit(whole_window(orders), harness.connection, lambda: spark, lambda _: None).result

        harness.admin.create_partitions({delays: added + 1})
        wait_until(
            lambda: len(harness.producer.list_topics(delays).topics[delays].partitions) == added + 1,
            what="the producer knows the new partition",
        )
        assert judged().verdict == "Verified", "the new partition is empty"
        orders.produce(b"by its key", topic=delays, partition=added)
        orders.flush()
        result = judged()
        assert result.verdict == "Unknown", result.message
        assert f"topic {delays} has records in partitions {added}".lower() in result.message.lower()
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        for deleted in client.delete_records([TopicPartition(delays, added, 1)]).values():
            deleted.result(30)
        assert judged().verdict == "Verified", "the new partition is empty again"


def test_records_behind_a_transaction_that_stays_open_make_no_clean_audit(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka can lose track of a transaction. No worker reads beyond it, and every audit once reported `Verified`."""
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 1), front_partitions=2)
        register(orders)

        def judged(asked: Window = EVERYTHING) -> Result:
            return audit(window_of(orders, asked), harness.connection, lambda: spark, lambda _: None).result

        orders.produce(b"before", partition=0)
        orders.flush()
        before = datetime.now(UTC)
        lasting = {"transactional.id": orders.names.front, "transaction.timeout.ms": 900_000}
        app = Producer({**harness.connection.client_config(), **lasting})
        app.init_transactions(60)
        app.begin_transaction()
        app.produce(orders.names.front, b"in the transaction", partition=0)
        assert app.flush(60) == 0
        orders.produce(b"behind", partition=0)
        orders.flush()
        assert judged().verdict == "Verified", "the transaction has not been open for long"
        monkeypatch.setattr(unserved, "OPEN_MS", 0)
        result = judged()
        assert result.verdict == "Unknown", result.message
        assert f"topic {orders.names.front} has records in partitions 0 behind".lower() in result.message.lower()
        assert judged(Window(to=before)).verdict == "Verified", "that window ends before the transaction"
        app.abort_transaction(60)
        assert judged().verdict == "Verified"


@contextmanager
def impatient(spark: SparkSession) -> Iterator[None]:
    """Spark waits three seconds, and not two minutes, for records that it can't read."""
    jvm: Any = spark._jvm
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.network.timeout", "3s")
    try:
        yield
    finally:
        settings.remove("spark.network.timeout")


@pytest.mark.parametrize("which", ["ready", "dead_letter"])
def test_a_transaction_that_stays_open_behind_the_workers_is_named(
    broker: Broker, spark: SparkSession, tmp_path: Path, which: str
) -> None:
    """Every audit once failed, and said that Kafka had perhaps lost data."""
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 1))
        register(orders)
        held = getattr(orders.names, which)

        def judged() -> Result:
            return audit(whole_window(orders), harness.connection, lambda: spark, lambda _: None).result

        lasting = {"transactional.id": held, "transaction.timeout.ms": 900_000}
        app = Producer({**harness.connection.client_config(), **lasting})
        app.init_transactions(60)
        app.begin_transaction()
        app.produce(held, b"in the transaction", partition=1)
        assert app.flush(60) == 0
        behind = (
            f"topic {held} has records in partitions 1 behind a transaction .* In partition 1, they begin at offset 0"
        )
        with impatient(spark), pytest.raises(AuditFailed, match=behind):
            judged()
        app.abort_transaction(60)
        wait_until(lambda: judged().verdict == "Verified", what="the audit reads beyond the transaction")
