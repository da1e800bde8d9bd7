"""A broker with the system's topics, and delayed topics without an operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster.broker import Broker
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.world import World


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> Iterator[World]:
    """Its workers are ended with the test."""
    with World(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made:
        yield made
