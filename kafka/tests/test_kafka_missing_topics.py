"""A Kafka whose system topics are gone: said, and nobody who writes to them ends by it."""

import time
from collections.abc import Iterator

import pytest
from delayed_topics_core.events import Event
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.clock import BrokerClock
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventWriter

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Broker]:
    """It makes no topics because somebody writes to them."""
    with Broker(settings={**PATIENT, "auto.create.topics.enable": "false"}) as broker:
        yield broker


def test_without_the_clock_topic_there_is_no_time_and_the_reason_is_said(strict_broker: Broker) -> None:
    clock = BrokerClock(Connection(bootstrap_servers=strict_broker.bootstrap))

    def told() -> bool:
        clock.probe()
        clock.poll()
        return clock.problem is not None

    wait_until(told, what="the clock says what is wrong")
    refused_at_once = time.monotonic() + 2
    while time.monotonic() < refused_at_once:
        assert told()
    assert clock.now_lower_bound_ms() is None
    assert "delayedtopics.clock" in str(clock.problem)
    clock.close()


def test_without_the_events_topic_events_are_counted_as_failed(strict_broker: Broker) -> None:
    events = EventWriter(Connection(bootstrap_servers=strict_broker.bootstrap))

    def failed() -> bool:
        events.write(Event(kind="worker-started", topic="orders", member="w-0", at_ms=1, detail={}))
        return events.failed > 3

    wait_until(failed, what="events fail")
    events.close()
