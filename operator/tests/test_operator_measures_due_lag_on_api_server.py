"""What the operator's metrics tell other autoscalers, while no worker runs that could tell anything."""

from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

DELAYED = 4
"""The partition of the delays topic for the second delay."""


def due_lag(harness: OperatorHarness) -> float:
    return harness.operator.counted(
        "delayed_topics_operator_due_lag_records", resource_namespace=harness.namespace, resource_name=harness.topic
    )


def produce(harness: OperatorHarness, counts: Mapping[tuple[str, int], int]) -> None:
    """Returns when Kafka has them."""
    producer = Producer({"bootstrap.servers": harness.broker.bootstrap})
    for (topic, partition), count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("workers", [{"autoscale": {"max": 3}}])
def test_all_that_is_due_counts_though_no_worker_runs_and_no_record_follows(
    harness: OperatorHarness, workers: dict[str, object]
) -> None:
    harness.apply(delaySeconds=[0, 3], partitions=5, workers={"replicas": 0, **workers})
    harness.wait_until_served()
    names = TopicNames.of(harness.topic)
    produce(harness, {(names.front, 0): 70, (names.front, 1): 1, (names.delays, DELAYED): 30})
    harness.wait(lambda: due_lag(harness) == 101, "all are due", seen=lambda: due_lag(harness), seconds=30)
