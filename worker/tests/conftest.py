"""A broker with the system's topics, and delayed topics without an operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.rights import AUTHORIZER
from delayed_topics_kafka_testing.slow_wire import SlowWire, slow_broker
from delayed_topics_worker_testing.harness import WorkerHarness


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerHarness]:
    """Its workers are ended with the test. On the broker of `wire`, if the test asks for that."""
    kafka: Broker | SlowWire = request.getfixturevalue("wire" if "wire" in request.fixturenames else "broker")
    with WorkerHarness(Connection(bootstrap_servers=kafka.bootstrap), tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def slow_kafka() -> Iterator[SlowWire]:
    with slow_broker() as made:
        yield made


@pytest.fixture
def wire(slow_kafka: SlowWire) -> Iterator[SlowWire]:
    """The way to a broker, as fast as it is with each test anew."""
    yield slow_kafka
    slow_kafka.reset()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[WorkerHarness]:
    """On a broker with ACLs."""
    with (
        Broker(settings={**AUTHORIZER, **PATIENT}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made,
    ):
        yield made
