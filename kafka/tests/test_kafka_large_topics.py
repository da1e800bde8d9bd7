"""System topics that someone has filled are read in pieces, within a bound on memory."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest
from confluent_kafka import Producer
from delayed_topics_core.events import Event
from delayed_topics_core.names import EVENTS_TOPIC, REGISTRY_TOPIC
from delayed_topics_core.registry import Claim, Owner, encode
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing import measured

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MIB = 2**20
EVENTS = 200_000
"""As Python objects, these take 150 MiB."""
CLAIMS = 60_000
"""These have 14 MiB of keys and values."""


@pytest.fixture
def connection(own_broker: Broker) -> Connection:
    """Returns a connection to a broker whose topics a test may fill."""
    found = Connection(bootstrap_servers=own_broker.bootstrap)
    ensure_system_topics(KafkaAdmin(found), replication_factor=1)
    return found


@pytest.fixture
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """Yields an executor with a new process, because a process can measure only one peak of its memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def fill(connection: Connection, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
    producer = Producer({**connection.client_config(), "linger.ms": 50})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=0)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(120) == 0


def test_events_are_read_in_pieces(connection: Connection, elsewhere: ProcessPoolExecutor) -> None:
    event = Event(kind="rebalance", topic="orders", member="pod-0", at_ms=1, detail={"change": "assigned"}).encode()
    fill(connection, EVENTS_TOPIC, (("orders", event) for _ in range(EVENTS)))
    read, grown_bytes = elsewhere.submit(measured.reading_events, connection).result()
    assert read == EVENTS
    assert grown_bytes < 32 * MIB


def test_of_a_registry_with_more_than_may_be_held_no_more_is_held_and_it_is_said(
    connection: Connection, elsewhere: ProcessPoolExecutor, record_property: Callable[[str, object], None]
) -> None:
    claims = (Claim(topic=f"orders-{n}", owner=Owner("cluster", "shop", f"orders-{n}")) for n in range(CLAIMS))
    fill(connection, REGISTRY_TOPIC, ((claim.key, encode(claim)) for claim in claims))
    message, grown_bytes = elsewhere.submit(measured.reading_registry, connection, 8 * MIB).result()
    assert "more than 8 MiB of keys and values" in message
    record_property("grown_mebibytes", grown_bytes / MIB)
    assert grown_bytes < 80 * MIB
