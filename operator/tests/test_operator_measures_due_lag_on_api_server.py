"""What the operator's metrics tell other autoscalers while no worker runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_operator.engine.installation import INSTALLATION
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.prometheus import scraping

pytestmark = pytest.mark.api

DELAYED = 4
"""The partition of the delays topic for the second delay."""


EXAMPLE = Path(__file__).parents[2] / "examples" / "keda" / "parcels.yaml"
DUE_LAG = "delayedtopics_operator_due_lag_records"


def due_lag(harness: OperatorHarness) -> float:
    return harness.operator.counted(DUE_LAG, resource_namespace=harness.namespace, resource_name=harness.topic)


def has_due_lag(harness: OperatorHarness) -> bool:
    """Returns whether the metric has a value, which may be 0."""
    return f'{DUE_LAG}{{resource_name="{harness.topic}"' in harness.operator.metrics()


def produce(harness: OperatorHarness, counts: Mapping[tuple[str, int], int]) -> None:
    """Produces this many records to each partition, and returns when Kafka has them."""
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
    harness.wait(lambda: due_lag(harness) == 101, "all records are due", seen=lambda: due_lag(harness), seconds=30)


def test_due_lag_has_no_value_while_kafka_can_not_be_asked_and_when_another_operator_serves_it(
    harness: OperatorHarness,
) -> None:
    harness.apply(workers={"replicas": 0, "autoscale": {"max": 3}})
    harness.wait(lambda: has_due_lag(harness), "the due lag is measured")
    harness.api.apply(harness.cluster_connection(bootstrap=f"127.0.0.1:{free_ports(1)[0]}"))
    harness.wait_for("Ready", "False", Reason.KAFKA_UNREACHABLE)
    assert not has_due_lag(harness)
    harness.api.apply(harness.cluster_connection())
    harness.wait(lambda: has_due_lag(harness), "the due lag is measured again")
    installation = {"metadata": {"annotations": {INSTALLATION: "another"}}}
    harness.patch("ClusterKafkaConnection", "default", installation)
    harness.wait(lambda: not has_due_lag(harness), "the due lag is left to another operator")


def example_applied(harness: OperatorHarness) -> tuple[dict[str, Any], dict[str, Any]]:
    """Applies the example with the names of this test, and returns its DelayedTopic and its ScaledObject."""
    text = EXAMPLE.read_text().replace("shop", harness.namespace).replace("parcels", harness.topic)
    harness.api.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", text_in=text)
    topic, scaled = yaml.safe_load_all(text)
    return topic, scaled


@pytest.mark.usefixtures("scaled_objects")
def test_keda_reads_how_many_records_are_due_by_the_query_of_the_example_while_no_worker_runs(
    harness: OperatorHarness, tmp_path: Path
) -> None:
    topic, scaled = example_applied(harness)
    harness.wait_until_served()
    target, (trigger,) = scaled["spec"]["scaleTargetRef"], scaled["spec"]["triggers"]
    assert target == {"apiVersion": topic["apiVersion"], "kind": topic["kind"], "name": harness.topic}
    where = (f"--namespace={harness.namespace}", "--current-replicas=1", "--replicas=0")
    harness.api.kubectl("scale", "delayedtopic", harness.topic, *where)

    # two pods, as while one operator replaces another: KEDA accepts exactly one value
    with scraping(harness.operator.address, tmp_path, pods=["operator-1", "operator-2"]) as prometheus:

        def read() -> list[float]:
            return prometheus.values(trigger["metadata"]["query"])

        harness.wait(lambda: read() == [0], "nothing is due", seen=read, seconds=60)
        names, waits_a_minute = TopicNames.of(harness.topic), topic["spec"]["partitions"] - 1
        produce(harness, {(names.front, 0): 100, (names.front, 1): 1, (names.delays, waits_a_minute): 500})
        harness.wait(lambda: read() == [101], "101 records are due", seen=read, seconds=60)
