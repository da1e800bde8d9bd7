"""Audits after crashes of real workers. Doubles that promise 3 allows break no promise, however long Kafka takes to accept a commit."""

import time
from pathlib import Path

import pytest
from delayed_topics_audit.account import Result
from delayed_topics_audit.job import audit
from delayed_topics_audit_testing.declared import register, whole_window
from delayed_topics_core.names import EVENTS_TOPIC
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.slow_wire import Api, slow_broker
from delayed_topics_worker_testing.harness import Seen, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, steady_load
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


def doubled(ready: list[Seen]) -> list[int]:
    """Returns when the first copy of each doubled record was written, in milliseconds, by the worker's estimate."""
    written: dict[bytes | None, list[int]] = {}
    for record in ready:
        at_ms = int((record.header("dt-released") or b"").rpartition(b":")[2])
        written.setdefault(record.header("dt-root"), []).append(at_ms)
    return [min(times) for times in written.values() if len(times) > 1]


def test_what_a_killed_worker_could_not_commit_for_seconds_may_come_again(spark: SparkSession, tmp_path: Path) -> None:
    """Kafka refuses the commits of the front topic and accepts those of other topics. The audit once reported `Violated`, because the first
    copies came out over more than a second."""
    with slow_broker() as wire, WorkerHarness(Connection(bootstrap_servers=wire.bootstrap), tmp_path) as harness:
        orders = harness.declare((0,), front_partitions=1)
        register(orders)
        worker = harness.start(orders)
        front = orders.names.front.encode()
        length = bytes([len(front) + 1])
        with steady_load(orders, per_second=200, levels=1) as sent:
            time.sleep(2)
            wire.change_requests(
                Api.OFFSET_COMMIT, lambda request: request.replace(length + front, length + b"?" * len(front))
            )
            time.sleep(5)
            worker.kill()
            wire.reset()
        worker = harness.start(orders)
        twice = doubled(all_ready(orders, sent))
        assert worker.terminate() == 0
        assert max(twice) - min(twice) > 1_000, "otherwise this test proves nothing"

        window = whole_window(orders)

        def judged() -> Result:
            return audit(window, harness.connection, lambda: spark, lambda _: None).result

        result = judged()
        assert result.account is not None
        assert result.account.doubled == len(twice)
        assert result.verdict == "Verified", result.message

        # without the events of the worker, nothing is known of the crash
        harness.admin.delete_topics([EVENTS_TOPIC])
        wait_until(
            lambda: harness.admin.describe_topics([EVENTS_TOPIC])[EVENTS_TOPIC] is None,
            what="the events topic is deleted",
        )
        ensure_system_topics(harness.admin, replication_factor=1)
        result = judged()
        assert result.verdict == "Unknown", result.message
        assert "doubled at a time for which there are no events of the workers" in result.message
