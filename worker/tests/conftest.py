"""Fixtures with a real broker. A harness creates the system topics and the delayed topics, in place of an operator."""

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
    """Uses the broker of `wire` if the test requests that fixture. The workers end with the test."""
    kafka: Broker | SlowWire = request.getfixturevalue("wire" if "wire" in request.fixturenames else "broker")
    with WorkerHarness(Connection(bootstrap_servers=kafka.bootstrap), tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def slow_kafka() -> Iterator[SlowWire]:
    with slow_broker() as made:
        yield made


@pytest.fixture
def wire(slow_kafka: SlowWire) -> Iterator[SlowWire]:
    """Passes requests and answers at full speed when a test begins, whatever the previous test has set."""
    yield slow_kafka
    slow_kafka.reset()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[WorkerHarness]:
    """Uses a broker with ACLs."""
    with (
        Broker(settings={**AUTHORIZER, **PATIENT}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as made,
    ):
        yield made
