"""A worker that authenticates with tokens of a few seconds outlives a token endpoint that gives none for a while."""

from pathlib import Path

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_kafka_testing.oauth import oauth_kafka
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_worker_outlives_its_token_endpoint(tmp_path: Path) -> None:
    with (
        oauth_kafka(tmp_path) as kafka,
        WorkerHarness(Connection(bootstrap_servers=kafka.broker.bootstrap), tmp_path) as harness,
    ):
        orders = harness.declare((0,), front_partitions=1, partitions=1)
        harness.connection = kafka.connection  # for the worker only, as the test itself needs no token
        worker = harness.start(orders)
        kafka.tokens.away = True

        def members() -> int:
            group = harness.admin.describe_groups([orders.record.group])[orders.record.group]
            assert isinstance(group, GroupInfo), group
            return len(group.members)

        wait_until(lambda: members() == 0, what="Kafka has removed the worker from its group")
        harness.connection = Connection(bootstrap_servers=kafka.broker.bootstrap)
        orders.produce(b"late")
        orders.flush()
        kafka.tokens.away = False
        assert [record.value for record in orders.ready(1)] == [b"late"]
        assert worker.running
