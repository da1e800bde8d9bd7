"""Audits of windows that are frozen while records come in and a worker is killed. `make audit-freezes` runs 500 of them."""

import os
from pathlib import Path
from random import Random

import pytest
from delayed_topics_audit_testing.freezes import freeze_and_audit
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

WINDOWS = int(os.environ.get("WINDOWS", "2"))


def test_no_window_frozen_under_traffic_sees_a_loss_that_is_none(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    connection = Connection(bootstrap_servers=broker.bootstrap)
    tally = freeze_and_audit(spark, connection, tmp_path, windows=WINDOWS, per_second=300, rng=Random(), say=print)
    assert tally.verdicts == {"Verified": WINDOWS}, tally.faults
    assert tally.doubled_exactly_once == 0
    assert tally.records > 0
    assert tally.pending > 0
