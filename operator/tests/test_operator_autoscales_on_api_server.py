"""spec.workers.autoscale on a real API server and a real broker. The test plays workers that have a fixed speed."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from delayed_topics_core.names import TopicNames
from delayed_topics_devcluster.pace import paced
from delayed_topics_operator_testing.operator_harness import OperatorHarness

pytestmark = pytest.mark.api

WORKER_PER_SECOND = 1000
TICK_SECONDS = 0.1


class PlayedWorkers:
    """Plays the workers: the group has a member for each pod, which reads and commits `WORKER_PER_SECOND` records a second."""

    def __init__(self, harness: OperatorHarness) -> None:
        self._harness = harness
        self._names = TopicNames.of(harness.topic)
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def as_many_as_pods(self) -> int:
        """Makes all pods ready, starts a member of the group for each, and returns how many there are."""
        self._harness.play_kubelet()
        live = self._harness.stateful_set()
        wanted = live["spec"]["replicas"] if live is not None else 0
        while len(self._threads) < wanted:
            self._threads.append(threading.Thread(target=self._work))
            self._threads[-1].start()
        return int(wanted)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._harness.broker.bootstrap,
                "group.id": self._names.group,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "range",
            }
        )
        consumer.subscribe([self._names.front, self._names.delays])
        while not self._ended.is_set():
            ends_at = time.monotonic() + TICK_SECONDS
            if consumer.consume(int(WORKER_PER_SECOND * TICK_SECONDS), timeout=TICK_SECONDS):
                consumer.commit(asynchronous=True)
            self._ended.wait(max(0.0, ends_at - time.monotonic()))
        consumer.close()


@contextmanager
def played_workers(harness: OperatorHarness) -> Iterator[PlayedWorkers]:
    workers = PlayedWorkers(harness)
    try:
        yield workers
    finally:
        workers.end()


@contextmanager
def produced(harness: OperatorHarness, topic: str, partitions: range, per_second: int) -> Iterator[None]:
    """Produces records all the time, spread evenly over the partitions."""
    producer = Producer({"bootstrap.servers": harness.broker.bootstrap, "linger.ms": 20})

    def produce(number: int) -> None:
        producer.produce(topic, b"x", partition=partitions[number % len(partitions)])
        producer.poll(0)

    with paced(produce, lambda: per_second):
        yield
    producer.flush(30)


def due_lag(harness: OperatorHarness) -> float:
    return harness.operator.counted(
        "delayedtopics_operator_due_lag_records", resource_namespace=harness.namespace, resource_name=harness.topic
    )


def end_of(harness: OperatorHarness, topic: str, partition: int) -> int:
    found = harness.kafka.list_offsets([(topic, partition)], "latest")[topic, partition]
    assert isinstance(found, int), found
    return found


def offset_lookups(harness: OperatorHarness) -> float:
    return harness.operator.counted("delayedtopics_operator_kafka_calls_total", call="offsets_for_times")


@pytest.mark.slow
def test_workers_that_do_not_catch_up_with_what_is_due_become_more_and_what_waits_brings_none(
    harness: OperatorHarness,
) -> None:
    harness.apply(delaySeconds=[0, 3600], partitions=5, workers={"autoscale": {"min": 1, "max": 3}})
    harness.wait_until_served()
    names = TopicNames.of(harness.topic)
    with played_workers(harness) as workers:
        harness.wait(lambda: workers.as_many_as_pods() == 1, "there is one worker")
        harness.wait_for("Ready", "True")

        with produced(harness, names.delays, range(4, 5), 10 * WORKER_PER_SECOND):
            harness.wait(
                lambda: end_of(harness, names.delays, 4) > 10 * WORKER_PER_SECOND,
                "there are records that are due in an hour",
            )
            lookups = offset_lookups(harness)
            harness.wait(
                lambda: offset_lookups(harness) > lookups + 2, "the operator has looked at the offsets three times"
            )
        assert (due_lag(harness), workers.as_many_as_pods()) == (0, 1)

        with produced(harness, names.front, range(4), 3 * WORKER_PER_SECOND):
            harness.wait(lambda: workers.as_many_as_pods() > 1, "there are more workers", seconds=60)
            harness.wait_event("WorkersScaled", "scaled from 1 to", "1 worker released")
            harness.wait(lambda: workers.as_many_as_pods() == 3, "there are as many workers as allowed", seconds=90)
            assert due_lag(harness) > 0
        harness.wait(lambda: due_lag(harness) == 0, "all due records are released", seen=lambda: due_lag(harness))
    workers_status = (harness.resource() or {})["status"]["workers"]
    assert (workers_status["wantedReplicas"], workers_status["lastScaled"]["toReplicas"]) == (3, 3)


def test_a_ready_topic_that_was_deleted_is_made_again_though_the_load_can_not_be_looked_at(
    harness: OperatorHarness,
) -> None:
    harness.apply(workers={"autoscale": {"min": 1, "max": 3}})
    harness.wait_until_served()
    ready = TopicNames.of(harness.topic).ready
    former = harness.topic_ids()[ready]
    harness.operator.kill()
    harness.kafka.delete_topics([ready])
    harness.operator.start()
    harness.wait(lambda: harness.topic_ids().get(ready, former) != former, "there is a new ready topic", seconds=60)
    harness.wait_for("TopicsReady", "True")
