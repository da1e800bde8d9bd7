"""Kafka goes away and comes back, and clients get answers again."""

import json

import pytest
from confluent_kafka import Producer
from delayed_topics_core.events import Event
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaUnreachable
from delayed_topics_kafka.events import EventFollower, EventWriter
from delayed_topics_kafka.stranded import when_stranded


@pytest.mark.process
def test_after_a_call_without_an_answer_the_next_one_is_made_by_a_new_client() -> None:
    """Real brokers strand a client in only one outage of ten."""
    nowhere = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "2"})
    admin = KafkaAdmin(nowhere, timeout_seconds=0.5)
    first = admin._client

    assert isinstance(admin.describe_topics(["orders"])["orders"], KafkaUnreachable)
    assert admin._client is first

    deadline = Deadline(120)
    # a client is replaced only if it is as old as a call may last, which the first call can miss by a millisecond
    while admin._client is first:
        assert not deadline.over
        assert isinstance(admin.describe_topics(["orders"])["orders"], KafkaUnreachable)


@pytest.mark.broker
def test_a_client_is_stranded_when_its_statistics_know_no_broker_twice(connection: Connection) -> None:
    reported: list[str] = []
    client = Producer({**connection.client_config(), "statistics.interval.ms": 50, "stats_cb": reported.append})
    client.list_topics(timeout=120)
    reported.clear()
    deadline = Deadline(120)
    while not reported:
        assert not deadline.over
        client.poll(0.1)
    stranded = json.dumps({**json.loads(reported[0]), "brokers": {}}, separators=(",", ":"))
    calls: list[None] = []
    look = when_stranded(lambda: calls.append(None))["stats_cb"]

    for statistics in (reported[0], reported[0], stranded, reported[0], stranded):
        look(statistics)
    assert not calls
    look(stranded)
    assert calls


@pytest.mark.broker
@pytest.mark.usefixtures("system_topics")
def test_a_stranded_reader_goes_on_with_a_new_client(connection: Connection) -> None:
    event = Event(kind="rebalance", topic="orders", member="stranded", at_ms=1, detail={})
    events: list[Event] = []
    with EventFollower(connection) as reader:
        reader.catch_up(120, lambda _: None)
        consumer = reader._reader._consumer

        reader._reader._stranded.set()
        writer = EventWriter(connection, client_id="w-0")
        writer.write(event)
        writer.close(20)

        reader.catch_up(120, events.append)
        assert [read for read in events if read.member == "stranded"] == [event]
        assert reader._reader._consumer is not consumer
