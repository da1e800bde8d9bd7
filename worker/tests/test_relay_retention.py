"""A worker raises RetentionAtRisk while the records that retention is about to remove are still there."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.headers import Header
from delayed_topics_core.settings import TopicRole
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

DAY_MS = 86_400_000
AS_PRODUCED: dict[TopicRole, dict[str, str]] = {"front": {"message.timestamp.type": "CreateTime"}}
"""Producers choose the age of a record. The topics of these tests keep records for three days and two seconds."""


def days_ago_ms(days: float) -> int:
    return int(time.time() * 1000 - days * DAY_MS)


def produce_old(orders: DeclaredTopic, days: float) -> None:
    orders.harness.producer.produce(orders.names.front, b"old", partition=0, timestamp=days_ago_ms(days))
    orders.flush()


@contextmanager
def paused(orders: DeclaredTopic) -> Iterator[None]:
    orders.change(paused=True)
    produce_old(orders, 2.5)
    yield
    orders.change(paused=False)


@contextmanager
def stopped(orders: DeclaredTopic) -> Iterator[None]:
    produce_old(orders, 2.5)
    orders.harness.admin.delete_topics([orders.names.ready])
    yield
    orders.note_id(orders.make("ready", 2))


@contextmanager
def unread(orders: DeclaredTopic) -> Iterator[None]:
    config = {"transactional.id": orders.names.front, "transaction.timeout.ms": 600_000}
    producer = Producer({**orders.harness.connection.client_config(), **config})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(orders.names.front, b"old", partition=0, timestamp=days_ago_ms(2.5))
    assert producer.flush(60) == 0
    yield
    producer.commit_transaction(60)


def message_of(worker: WorkerProcess, orders: DeclaredTopic) -> str:
    """Returns the message of the alarm RetentionAtRisk, empty while it is not raised."""
    alarms = worker.status().get("alarms", [])
    found = [a["message"] for a in alarms if (a["topic"], a["reason"]) == (orders.names.front, "RetentionAtRisk")]
    return str(found[0]) if found else ""


def raised(worker: WorkerProcess, orders: DeclaredTopic) -> str:
    wait_until(lambda: message_of(worker, orders) != "", what="the alarm RetentionAtRisk", evidence=worker.evidence)
    return message_of(worker, orders)


def cleared(worker: WorkerProcess, orders: DeclaredTopic) -> None:
    wait_until(lambda: message_of(worker, orders) == "", what="the alarm is cleared", evidence=worker.evidence)


@pytest.mark.parametrize(
    "held", [stopped, *(pytest.param(other, marks=pytest.mark.slow) for other in (paused, unread))]
)
def test_unreleased_records_near_the_end_of_retention_are_an_alarm_until_they_are_out(
    harness: WorkerHarness, held: Callable[[DeclaredTopic], AbstractContextManager[None]]
) -> None:
    orders, calm = (harness.declare((0, 2), group=f"g-{held.__name__}", config=AS_PRODUCED) for _ in range(2))
    calm.change(paused=True)
    produce_old(calm, 2)  # a third of its retention is left
    with held(orders):
        worker = harness.start(orders, calm)

        message = raised(worker, orders)

        assert f"{orders.names.front} [0]" in message
        assert "offset 0 " in message
        assert "in 12 h" in message
        assert "outageBudgetSeconds" in message
        assert ("spec.paused" in message) == (held is paused)
        assert harness.admin.list_offsets([(orders.names.front, 0)], "earliest") == {(orders.names.front, 0): 0}
        assert message_of(worker, calm) == ""
    assert len(orders.ready(1)) == 1
    cleared(worker, orders)
    assert message_of(worker, calm) == ""


@pytest.mark.slow
def test_records_whose_commit_is_gone_are_an_alarm_too_when_retention_comes_near(harness: WorkerHarness) -> None:
    """It is not known which of the records are released, so all count."""
    orders = harness.declare((0, 2), config=AS_PRODUCED)
    harness.admin.delete_groups([orders.record.group])
    produce_old(orders, 2.5)
    worker = harness.start(orders)

    message = raised(worker, orders)

    assert "CommitMissing" in worker.alarm_reasons()
    assert f"{orders.names.front} [0]" in message
    assert "offset 0 " in message


def hopped(orders: DeclaredTopic, due_in_ms: int) -> list[Header]:
    """Returns the headers of a copy that a worker writes to a delays partition."""
    due = b"%d" % (int(time.time() * 1000) + due_in_ms)
    own = {"dt-root": b"f:0:0:x", "dt-origin": b"f:0:0", "dt-hops": b"1", "dt-id": b"a", "dt-attempt": b"0"}
    return [*own.items(), ("dt-due-at", due)]


def test_a_retention_that_somebody_made_shorter_than_the_delay_is_an_alarm_before_anything_is_late(
    harness: WorkerHarness,
) -> None:
    orders = harness.declare((0, 3600), partitions=2, config={"delays": {"retention.ms": "1800000"}})
    orders.produce(headers=hopped(orders, 3_600_000), partition=1, topic=orders.names.delays)
    orders.flush()

    message = raised(harness.start(orders), orders)

    assert f"{orders.names.delays} [1]" in message
    assert re.search(r"in (30|29) min", message)
    assert "wait here for 60 min" in message


@pytest.mark.slow
def test_without_the_right_to_read_settings_the_least_that_the_operator_sets_is_taken_and_said(tmp_path: Path) -> None:
    """The least retention is two days and two seconds, to which the operator adds the outage budget."""
    with (
        Broker(settings={**AUTHORIZER, **PATIENT}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness,
    ):
        orders = harness.declare((0, 2), config=AS_PRODUCED)
        orders.change(paused=True)
        produce_old(orders, 1.75)
        deny_only(harness.connection, ResourceType.TOPIC, orders.names.front, AclOperation.DESCRIBE_CONFIGS)

        message = raised(harness.start(orders), orders)

        assert re.search(r"in (6|5\.9) h", message)
        assert "DescribeConfigs" in message


@pytest.mark.slow
def test_the_alarm_comes_before_retention_removes_the_records_and_never_after_the_time_it_says(tmp_path: Path) -> None:
    hour_ms, left_ms = 3_600_000, 60_000
    often = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
    with (
        Broker(settings={**PATIENT, **often}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness,
    ):
        settings = {**AS_PRODUCED["front"], "retention.ms": str(hour_ms), "file.delete.delay.ms": "1000"}
        orders = harness.declare((0,), front_partitions=1, config={"front": settings})
        orders.change(paused=True)
        place = (orders.names.front, 0)
        removed_at_ms = time.time() * 1000 + left_ms
        produce_old(orders, (hour_ms - left_ms) / DAY_MS)
        worker = harness.start(orders)

        message = raised(worker, orders)

        assert time.time() * 1000 < removed_at_ms
        assert harness.admin.list_offsets([place], "earliest") == {place: 0}
        assert re.search(r"in [1-6]\d s", message)
        wait_until(
            lambda: harness.admin.list_offsets([place], "earliest") == {place: 1}, what="retention removes the record"
        )
        assert time.time() * 1000 >= removed_at_ms - 1000
        assert worker.terminate() == 0
        worker = harness.start(orders)
        wait_until(lambda: "RecordsRemoved" in worker.alarm_reasons(), what="the alarm that records were removed")


@pytest.mark.slow
def test_the_alarm_ends_when_retention_is_made_longer(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 2), config=AS_PRODUCED)
    orders.change(paused=True)
    produce_old(orders, 2.5)
    worker = harness.start(orders)
    raised(worker, orders)

    harness.admin.alter_topic_configs({orders.names.front: {"retention.ms": "-1"}})

    cleared(worker, orders)
