"""What the operator's metrics tell other autoscalers, while no worker runs that could tell anything."""

from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_operator.installation import INSTALLATION
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

DELAYED = 4
"""The partition of the delays topic for the second delay."""


DUE_LAG = "delayed_topics_operator_due_lag_records"


def due_lag(harness: OperatorHarness) -> float:
    return harness.operator.counted(DUE_LAG, resource_namespace=harness.namespace, resource_name=harness.topic)


def has_due_lag(harness: OperatorHarness) -> bool:
    """Whether there is a value, be it 0."""
    return f'{DUE_LAG}{{resource_name="{harness.topic}"' in harness.operator.metrics()


def produce(harness: OperatorHarness, counts: Mapping[tuple[str, int], int]) -> None:
    """Returns when Kafka has them."""
    producer = Producer({"bootstrap.servers": harness.broker.bootstrap})
    for (topic, partition), count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("workers", [{"autoscale": {"max": 3}}, {"measureDueLag": True}])
def test_all_that_is_due_counts_though_no_worker_runs_and_no_record_follows(
    harness: OperatorHarness, workers: dict[str, object]
) -> None:
    harness.apply(delaySeconds=[0, 3], partitions=5, workers={"replicas": 0, **workers})
    harness.wait_until_served()
    names = TopicNames.of(harness.topic)
    produce(harness, {(names.front, 0): 70, (names.front, 1): 1, (names.delays, DELAYED): 30})
    harness.wait(lambda: due_lag(harness) == 101, "all are due", seen=lambda: due_lag(harness), seconds=30)


def test_due_lag_has_no_value_while_kafka_can_not_be_asked_and_when_another_operator_serves_it(
    harness: OperatorHarness,
) -> None:
    harness.apply(workers={"replicas": 0, "autoscale": {"max": 3}})
    harness.wait(lambda: has_due_lag(harness), "it is measured")
    harness.api.apply(harness.cluster_connection(bootstrap=f"127.0.0.1:{free_ports(1)[0]}"))
    harness.wait_for("Ready", "False", Reason.KAFKA_UNREACHABLE)
    assert not has_due_lag(harness)
    harness.api.apply(harness.cluster_connection())
    harness.wait(lambda: has_due_lag(harness), "it is measured again")
    installation = {"metadata": {"annotations": {INSTALLATION: "another"}}}
    harness.patch("ClusterKafkaConnection", "default", installation)
    harness.wait(lambda: not has_due_lag(harness), "another operator measures it")
