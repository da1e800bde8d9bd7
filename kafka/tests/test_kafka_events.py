import json
from dataclasses import asdict

import pytest
from confluent_kafka import Producer
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.events import Event
from delayed_topics_core.names import EVENTS_TOPIC
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka import outbox
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventFollower, EventWriter

NOWHERE = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": 0})


def event(number: int) -> Event:
    return Event(kind="rebalance", topic="orders", member="pod-0", at_ms=1, detail={"generation": number})


@pytest.mark.broker
@pytest.mark.usefixtures("system_topics")
def test_events_arrive_in_order_and_noise_and_what_newer_workers_tell_is_passed_over(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    with EventFollower(connection) as follower:
        follower.catch_up(120, lambda _: None)
        noise = Producer(connection.client_config())
        newer = json.dumps({**asdict(event(0)), "kind": "quota-reached", "region": "eu"}).encode()
        for value in (b"not an event", newer):
            noise.produce(EVENTS_TOPIC, value, partition=0)
        assert noise.flush(120) == 0
        writer = EventWriter(connection, client_id="w-0")
        for number in range(100):
            writer.write(event(number))
        writer.close(20)
        assert writer.failed == 0
        follower.catch_up(120, events.append)
    assert events == [event(number) for number in range(100)]
    warned = [record.message for record in caplog.records if "skipping a record" in record.message]
    assert len(warned) == 1, "an operator must not fill its log with warnings about a newer worker's events"


def test_without_kafka_nothing_waits_and_the_loss_is_counted() -> None:
    writer = EventWriter(NOWHERE, client_id="w-0")
    for number in range(3):
        writer.write(event(number))
    writer.close(0.2)
    assert writer.failed == 3


def test_an_event_that_kafka_does_not_take_is_counted_though_no_other_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This is a worker that reports nothing else."""
    monkeypatch.setattr(outbox, "DELIVERY_TIMEOUT_MS", 100)
    writer = EventWriter(NOWHERE, client_id="w-0")
    writer.write(event(1))
    wait_until(lambda: writer.failed == 1, what="the event is counted as failed", timeout_seconds=30)


def test_each_event_that_kafka_does_not_take_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes events behind the first failure, after which the producer is given up."""
    monkeypatch.setattr(outbox, "DELIVERY_TIMEOUT_MS", 1000)
    writer, written = EventWriter(NOWHERE, client_id="w-0"), 0

    def one_has_failed() -> bool:
        nonlocal written
        writer.write(event(written))
        written += 1
        return writer.failed > 0

    wait_until(one_has_failed, what="the first failure is counted", timeout_seconds=30, poll_seconds=0.05)
    one_has_failed()
    writer.close(0.2)
    assert writer.failed == written


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b'{"kind":"other","topic":"t","member":"m","at_ms":1,"detail":{}}',
        b'{"kind":"alarm","topic":"t","member":"m","at_ms":-1,"detail":{}}',
        b'{"kind":"alarm","topic":"t","member":"m","at_ms":253402300800000,"detail":{}}',
    ],
)
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        Event.decode(value)
