"""A broker whose clock was ahead for a moment: the records that it stamped then wait, and the worker raises an alarm."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_faults.wrong_clock import WrongClock
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = pytest.mark.broker

AHEAD_SECONDS = 600


@pytest.fixture
def clock(tmp_path: Path) -> WrongClock:
    """The clock of the broker."""
    return WrongClock(tmp_path / "clock")


@pytest.fixture
def harness(clock: WrongClock, tmp_path: Path) -> Iterator[WorkerHarness]:
    with (
        Broker(settings=PATIENT, environment=clock.environment) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made,
    ):
        yield made


@pytest.mark.slow
def test_records_that_wait_because_a_brokers_clock_was_ahead_are_an_alarm_until_they_come_out(
    harness: WorkerHarness, clock: WrongClock
) -> None:
    orders = harness.declare((0, 1), partitions=2, front_partitions=1)
    clock.shift(AHEAD_SECONDS)
    orders.produce(b"ahead")
    orders.flush()
    clock.shift(0)
    worker = harness.start(orders)
    orders.produce(b"right")
    orders.flush()
    assert [record.value for record in orders.ready(1)] == [b"right"]

    wait_until(
        lambda: worker.alarm_reasons() == {Reason.NOT_RELEASING}, what="the alarm is raised", evidence=worker.evidence
    )

    (alarm,) = worker.alarms()
    assert re.match(
        rf"records of {orders.names.front} \[0\] from offset 0 on wait, .* (9\.\d|10) min ahead", alarm["message"]
    )
    clock.shift(AHEAD_SECONDS)
    orders.produce(b"later")  # an idle worker asks for the broker's time only once a minute
    orders.flush()
    assert len(orders.ready(3)) == 3
    wait_until(lambda: not worker.alarms(), what="the alarm is cleared", evidence=worker.evidence)
