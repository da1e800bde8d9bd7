"""If Kafka does not report its time, workers release nothing by another clock, and an alarm gives the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker


@pytest.fixture
def strict_harness(tmp_path: Path) -> Iterator[WorkerHarness]:
    """Uses a broker that creates no topic when a client writes to it."""
    with (
        Broker(settings={**PATIENT, "auto.create.topics.enable": "false"}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made,
    ):
        yield made


def test_without_the_brokers_time_nothing_is_released_and_the_reason_is_said(strict_harness: WorkerHarness) -> None:
    harness = strict_harness
    orders = harness.declare((1,))
    worker = harness.start(orders)
    harness.admin.alter_topic_configs({CLOCK_TOPIC: {"message.timestamp.type": "CreateTime"}})
    stands_still_because(worker, orders, "so set its message.timestamp.type to LogAppendTime")

    ensure_system_topics(harness.admin, replication_factor=1)
    assert min(r.late_ms for r in orders.ready(1)) >= 0
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared")
    harness.admin.delete_topics([CLOCK_TOPIC])
    stands_still_because(worker, orders, "UNKNOWN")

    ensure_system_topics(harness.admin, replication_factor=1)
    assert min(r.late_ms for r in orders.ready(2)) >= 0


def stands_still_because(worker: WorkerProcess, orders: DeclaredTopic, reason: str) -> None:
    """Checks that a due record is not released, that an alarm gives this reason, and that the worker counts as live."""
    before = orders.released()
    orders.produce()
    orders.flush()

    def is_reported() -> bool:
        messages = [a["message"] for a in worker.status()["alarms"] if a["reason"] == Reason.NOT_RELEASING]
        return any(CLOCK_TOPIC in message and reason in message for message in messages)

    wait_until(is_reported, what=f"the worker reports {reason}")
    assert orders.released() == before
    assert worker.get("/livez")[0] == 200
