"""Workers are away for longer than Kafka keeps offsets, on a real API server and broker, with workers as processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_operator_testing.kube_api import KubeApi
from delayed_topics_operator_testing.operator_harness import OperatorHarness
from delayed_topics_operator_testing.operator_process import OperatorProcess
from delayed_topics_operator_testing.workers import worker_config
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.api, pytest.mark.slow]

FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
"""The shortest retention that Kafka accepts."""
RECORDS = 20


@pytest.fixture
def forgetful(api: KubeApi) -> Iterator[OperatorHarness]:
    with (
        Broker(settings={**PATIENT, **FORGETFUL}) as broker,
        OperatorHarness(api, broker, OperatorProcess(api, "--resync-seconds=3")).opened() as made,
    ):
        yield made


@contextmanager
def worker(harness: OperatorHarness, directory: Path) -> Iterator[WorkerProcess]:
    """Runs a worker process with the configuration that a pod of the StatefulSet would have."""
    harness.wait_until_served()
    name = (harness.stateful_set() or {})["metadata"]["name"]
    config = worker_config(harness.stateful_set() or {})
    topics, _ = config.pop("topics"), config.pop("http_port")
    made = WorkerProcess(
        directory, harness.connection, topics, port=free_ports(1)[0], member=f"{name}-0", **config
    ).ready()
    try:
        yield made
        assert made.terminate() == 0
    finally:
        if made.running:
            made.kill()


def produce(harness: OperatorHarness) -> None:
    producer = Producer({"bootstrap.servers": harness.broker.bootstrap, **IDEMPOTENT})
    for number in range(RECORDS):
        producer.produce(harness.topic, b"%d" % number)
    assert producer.flush(60) == 0


def released(harness: OperatorHarness) -> int:
    name = TopicNames.of(harness.topic).ready
    places = [(name, partition) for partition in range(harness.topics()[name])]
    return sum(end for end in harness.kafka.list_offsets(places, "latest").values() if isinstance(end, int))


@pytest.mark.parametrize("ended", ["scaled to zero", "deleted"])
def test_records_come_out_after_an_outage_that_is_longer_than_kafka_keeps_offsets(
    forgetful: OperatorHarness, tmp_path: Path, ended: str
) -> None:
    harness, group = forgetful, f"delayedtopics.{forgetful.topic}"
    harness.apply(deletionPolicy="Retain", workers={"replicas": 1})
    with worker(harness, tmp_path):
        produce(harness)
        harness.wait(lambda: released(harness) == RECORDS, "half of the records come out")
    if ended == "deleted":
        harness.delete()
    else:
        harness.apply(deletionPolicy="Retain", workers={"replicas": 0})
    produce(harness)
    harness.wait(
        lambda: harness.kafka.committed_of_groups({group: None}) == {group: {}}, "Kafka has removed the offsets"
    )

    harness.apply(deletionPolicy="Retain", workers={"replicas": 1})
    with worker(harness, tmp_path) as again:
        harness.wait(
            lambda: released(harness) == 2 * RECORDS, "the other half comes out", seen=again.evidence, seconds=60
        )
        assert not again.alarms()
