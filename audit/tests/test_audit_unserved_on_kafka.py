"""Partitions of the delays topic that someone else has added. No layout assigns them a delay, so no worker serves them."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.declared import register, whole_window
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.harness import WorkerHarness
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


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
