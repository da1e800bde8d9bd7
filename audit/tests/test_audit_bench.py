"""The benchmark of audits measures what it says."""

import pytest
from delayed_topics_audit_testing.bench import measure
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def test_the_benchmark_audits_a_flawless_window_and_reads_each_row_of_it(spark: SparkSession, broker: Broker) -> None:
    audited, reading, plain = measure(
        spark, Connection(bootstrap_servers=broker.bootstrap), records=8_000, say=lambda _: None
    )
    assert [audited["what"], reading["what"], plain["what"]] == ["audit", "reading alone", "plain Python consumer"]
    assert audited["rows"] == reading["rows"] == plain["rows"] > 2 * 8_000
