"""If a broker refuses a batch, the worker sends its copies one by one. Nothing else changes for them or for their neighbours."""

import os
import re
import signal
import struct
import time
from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.kafka import limit_producer
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

STILL_ENDING = "another concurrent operation"
"""librdkafka logs this when it begins a transaction before Kafka has ended the previous one. It tries again after 500 ms."""
CLUSTER_AUTHORIZATION_FAILED = struct.pack(">h", 31)
ERROR_CODE = slice(9, 11)
"""The error code in an answer about a producer's id: after the correlation id, an empty list of tags, and the throttle time."""


def alarmed(worker: WorkerProcess, reason: Reason) -> None:
    wait_until(lambda: reason in worker.alarm_reasons(), what=f"the alarm {reason}")


def another_topic(orders: DeclaredTopic, name: str, config: dict[str, str]) -> str:
    """Creates a topic that records may name in `dt-target`."""
    topic = f"{orders.names.front}.{name}"
    orders.harness.create([NewTopicSpec(name=topic, partitions=1, replication_factor=1, config=config)])
    orders.change(ready_topics=(AllowedTopic(topic, 0),))
    return topic


def calm(worker: WorkerProcess) -> None:
    wait_until(lambda: not worker.alarm_reasons(), what="no alarm")


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_records_that_are_sent_again_one_by_one_are_never_early(harness: WorkerHarness, guarantee: Any) -> None:
    """Kafka refuses a whole batch if one of its records is too large for the delays topic. It takes longer than a second to send the other
    records one by one."""
    orders = harness.declare((2,), front_partitions=1, config={"delays": {"max.message.bytes": "100000"}})
    harness.start(orders, guarantee=guarantee)
    count = 1200
    for n in range(count):
        orders.produce(os.urandom(120_000) if n % 400 == 399 else b"%d" % n, partition=0)
    orders.flush()

    ready = orders.ready(count - 3)

    assert min(r.late_ms for r in ready) >= 0, "early"
    wait_until(
        lambda: sum(len(harness.read(topic, 0)) for topic in (orders.names.ready, orders.names.dead_letter)) >= count,
        what="the large records are dead letters, or are released because they no longer need a hop",
    )


@pytest.mark.slow
def test_with_exactly_once_nothing_is_lost_while_partitions_stop_and_large_records_are_sent_alone(
    harness: WorkerHarness,
) -> None:
    """A record that is too large aborts its transaction, with the copies of all partitions. Meanwhile, partitions stop and go on, because
    the registry names another id of the ready topic, and then the right one again."""
    orders = harness.declare((0,), front_partitions=3, config={"ready": {"max.message.bytes": "100000"}})
    limit_producer(harness.connection.bootstrap_servers, "orders-0", 150_000)
    worker = harness.start(orders, guarantee="ExactlyOnce")
    ready = harness.admin.describe_topics([orders.names.ready])[orders.names.ready]
    assert isinstance(ready, TopicInfo)
    large = 0
    with steady_load(orders, per_second=200) as sent:
        for _ in range(6):
            for _ in range(4):
                orders.produce(os.urandom(120_000), partition=0)
                large += 1
            time.sleep(0.7)
            orders.note_id(replace(ready, id="another"))
            alarmed(worker, Reason.TOPIC_RECREATED)
            orders.note_id(ready)
            calm(worker)
    places = [(orders.names.front, p) for p in range(3)]
    ends = harness.admin.list_offsets(places, "latest")
    wait_until(
        lambda: all(orders.committed()[place].offset == ends[place] for place in places),
        what="every offset is committed",
    )

    assert doubled(all_ready(orders, sent, timeout_seconds=10)) == 0
    assert len(orders.dead(large)) == large


def test_a_copy_that_is_refused_again_and_again_does_not_hold_up_the_producer_of_all_others(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """With each refusal, a producer increases its epoch. Before it sends more, Kafka has to acknowledge all that it sent with the last
    epoch."""
    orders = harness.declare((0,), front_partitions=2)
    config = {"message.timestamp.type": "CreateTime", "message.timestamp.before.max.ms": "0"}
    strict = another_topic(orders, "strict", config)  # refuses records with a timestamp before their arrival
    batch = re.compile(orders.names.ready.encode() + rb".{1,16}?\0{8}.{8}\x02.{26}(.{10})", re.DOTALL)
    producers: list[bytes] = []

    def note(request: bytes) -> bytes:
        producers.extend(batch.findall(request))
        return request

    wire.change_requests(Api.PRODUCE, note)
    worker = harness.start(orders)
    orders.produce(b"refused", headers=[("dt-target", strict.encode())], partition=0)
    orders.flush()
    alarmed(worker, Reason.TARGET_UNAVAILABLE)
    for n in range(1, 40):
        orders.produce(b"%d" % n, partition=1)
        orders.flush()
        orders.ready(n)

    assert len(producers) >= 39
    assert len(set(producers)) == 1, "the producer keeps its id and epoch"


@pytest.mark.slow
def test_a_copy_that_is_refused_again_and_again_holds_up_the_transactions_of_the_others_for_a_moment_only(
    harness: WorkerHarness,
) -> None:
    """It takes some milliseconds to end a failed transaction. A client that begins the next one too early waits for half a second."""
    too_small = {"dead-letter": {"max.message.bytes": "120"}}  # a transaction marker has 78
    orders = harness.declare((0,), front_partitions=2, config=too_small)
    worker = harness.start(orders, guarantee="ExactlyOnce")
    orders.produce(b"bad", headers=[("dt-attempt", b"x")], partition=0)
    orders.flush()
    alarmed(worker, Reason.TARGET_UNAVAILABLE)
    failed = worker.metric("delayedtopics_failed_commits_total")
    sent: list[int] = []

    def produce(n: int) -> None:
        orders.produce(b"%d" % n, partition=1)
        sent.append(n)

    with paced(produce, lambda: 50):
        wait_until(
            lambda: worker.metric("delayedtopics_failed_commits_total") >= failed + 4,
            what="four transactions fail",
            evidence=worker.evidence,
            timeout_seconds=60,
        )

    assert doubled(all_ready(orders, sent, timeout_seconds=30)) == 0
    assert STILL_ENDING not in worker.log_path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_topic_that_takes_small_batches_only_gets_what_has_gathered_in_a_pause(
    harness: WorkerHarness, guarantee: Any
) -> None:
    orders = harness.declare((0,), front_partitions=2)
    narrow = another_topic(orders, "narrow", {"max.message.bytes": "65536"})
    worker = harness.start(orders, guarantee=guarantee)
    sent = [0, 0]

    def produce(n: int) -> None:
        to_narrow = n % 7 != 0
        orders.produce(
            os.urandom(1000),
            headers=[("dt-target", narrow.encode())] if to_narrow else [],
            partition=0 if to_narrow else 1,
        )
        sent[to_narrow] += 1

    with paced(produce, lambda: 700):
        time.sleep(3)
        worker.signal(signal.SIGSTOP)
        time.sleep(2)
        worker.signal(signal.SIGCONT)
        time.sleep(30)
        calm_from_ms = time.time() * 1000
        time.sleep(10)
    orders.flush()

    for topic, count in zip((orders.names.ready, narrow), sent, strict=True):
        assert p99_late_ms(harness.read(topic, count, timeout_seconds=60), due_from_ms=calm_from_ms) < 1000, topic
    assert harness.read(orders.names.dead_letter, 0) == []


@pytest.mark.slow
def test_a_worker_whose_producers_kafka_refuses_says_so_and_tries_seldom(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Some authorizers require a right of its own to write as an idempotent producer."""
    orders = harness.declare((0,), front_partitions=1)
    orders.produce()
    orders.flush()
    asked: list[bytes] = []

    def note(request: bytes) -> bytes:
        asked.append(request[10 : 10 + request[9]])
        return request

    wire.change_requests(Api.INIT_PRODUCER_ID, note)
    wire.change_answers(
        Api.INIT_PRODUCER_ID,
        lambda answer: answer[: ERROR_CODE.start] + CLUSTER_AUTHORIZATION_FAILED + answer[ERROR_CODE.stop :],
    )
    worker = harness.start(orders)

    def says(reason: Reason) -> bool:
        return any(a["reason"] == reason and "Cluster authorization failed" in a["message"] for a in worker.alarms())

    wait_until(lambda: says(Reason.KAFKA_REFUSED), what="the alarm", evidence=worker.evidence, timeout_seconds=10)
    asked.clear()
    time.sleep(20)
    assert 0 < asked.count(b"orders-0") < 20, "one producer a second"
    assert says(Reason.KAFKA_REFUSED)
    wait_until(lambda: says(Reason.NOT_RELEASING), what="another alarm says why", evidence=worker.evidence)

    wire.reset()
    orders.ready(1)
    calm(worker)


def p99_late_ms(records: list[Seen], *, due_from_ms: float) -> int:
    late = sorted(record.late_ms for record in records if record.due_at_ms >= due_from_ms)
    return late[len(late) * 99 // 100]
