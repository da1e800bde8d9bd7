"""Fixtures: connections to the shared broker, a broker that tests may break, and names that no other test uses."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.system_topics import ensure_system_topics


@pytest.fixture(scope="session")
def connection(broker: Broker) -> Connection:
    return Connection(bootstrap_servers=broker.bootstrap)


@pytest.fixture(scope="session")
def admin(connection: Connection) -> KafkaAdmin:
    return KafkaAdmin(connection, timeout_seconds=60)


@pytest.fixture(scope="session")
def system_topics(admin: KafkaAdmin) -> None:
    ensure_system_topics(admin, replication_factor=1)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    return lambda word: f"{word}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """Yields a broker for the tests of one module that break the broker or its system topics."""
    with Broker() as broker:
        yield broker
