import uuid

import pytest
from delayed_topics_client_testing import Served, serve
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection


@pytest.fixture(scope="session")
def connection(broker: Broker) -> Connection:
    return Connection(bootstrap_servers=broker.bootstrap)


@pytest.fixture
def served(connection: Connection) -> Served:
    return serve(connection, f"orders-{uuid.uuid4().hex[:8]}")
