"""Kafka does not have a worker's rebalance protocol or assignor. The worker ends at once and says what it needs, and others go on."""

from pathlib import Path

import pytest
from delayed_topics_core.reasons import EXIT_PROTOCOL_REFUSED
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("setting", "assignor"),
    [
        ({"group.coordinator.rebalance.protocols": "classic"}, "Uniform"),
        ({"group.consumer.assignors": "uniform"}, "Range"),
    ],
)
def test_a_worker_ends_where_kafka_has_not_its_protocol_or_assignor(
    setting: dict[str, str], assignor: str, tmp_path: Path
) -> None:
    with (
        Broker(settings={**PATIENT, **setting}) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness,
    ):
        orders = harness.declare((0,))
        serving = harness.start(orders, member="orders-0")

        refused = harness.start(orders, member="orders-1", protocol="consumer", assignor=assignor, ready=False)

        assert refused.wait() == EXIT_PROTOCOL_REFUSED
        *_, last = refused.evidence().splitlines()
        assert last.startswith("Error: Kafka refuses the rebalance protocol consumer")
        assert f"assignor {assignor.lower()}" in last
        orders.produce(b"1")
        orders.flush()
        assert len(orders.ready(1)) == 1
        assert serving.running
