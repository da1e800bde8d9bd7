"""With `guarantee: ExactlyOnce`, a read_committed consumer sees no record twice, whatever ends a worker."""

import os
import re
import signal
import time
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics_core.names import transactional_id
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS
from delayed_topics_kafka_testing.rights import deny_only, lift
from delayed_topics_worker.clients import SESSION_TIMEOUT_MS
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

EXACTLY: Any = {"guarantee": "ExactlyOnce"}


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again_repeat_nothing(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1, 2))
    worker = harness.start(orders, **EXACTLY)
    with steady_load(orders) as sent:
        for _ in range(5):
            time.sleep(1.3)
            worker.kill()
            worker = harness.start(orders, **EXACTLY)

    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_others_take_over_from_a_worker_that_is_killed_for_good(harness: WorkerHarness, protocol: str) -> None:
    orders = harness.declare((0, 1, 2), front_partitions=4, partitions=6)
    harness.start(orders, member="orders-0", protocol=protocol, **EXACTLY)
    second = harness.start(orders, member="orders-1", protocol=protocol, **EXACTLY)
    with steady_load(orders) as sent:
        time.sleep(2)
        second.kill()
        time.sleep(2)

    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("frozen_seconds", [SESSION_TIMEOUT_MS / 1000 + 2, 2 * TRANSACTION_TIMEOUT_MS / 1000 + 3])
def test_a_worker_that_was_frozen_releases_nothing_that_others_have_released(
    harness: WorkerHarness, frozen_seconds: float
) -> None:
    """The worker is frozen for longer than its session, and then also for longer than the timeout of its transaction."""
    orders = harness.declare((0, 1, 2), front_partitions=4, partitions=6)
    workers = [harness.start(orders, member=f"orders-{n}", **EXACTLY) for n in range(2)]
    with steady_load(orders, per_second=500) as sent:
        time.sleep(2)
        workers[1].signal(signal.SIGSTOP)
        time.sleep(frozen_seconds)
        workers[1].signal(signal.SIGCONT)
        time.sleep(3)

    assert doubled(all_ready(orders, sent)) == 0
    assert workers[1].ready().terminate() == 0


@pytest.mark.slow
@pytest.mark.xfail(
    strict=False, reason="on a busy machine the client library once aborted (SIGABRT) instead; this is not fixed"
)
def test_a_second_worker_of_the_same_name_ends_with_a_plain_line_and_nothing_comes_twice(
    harness: WorkerHarness,
) -> None:
    """This happens when a pod is deleted by force and its node lives on. With protocol `consumer`, only transactions reveal it."""
    orders = harness.declare((0, 1))
    first = harness.start(orders, protocol="consumer", **EXACTLY)
    second = harness.start(orders, protocol="consumer", ready=False, **EXACTLY)
    with steady_load(orders) as sent:
        wait_until(lambda: not (first.running and second.running), what="one of the workers ends")
    ended = second if first.running else first

    assert ended.wait() == 1
    log = ended.log_path.read_text()
    assert "another worker with this name" in log
    assert "Traceback" not in log
    assert doubled(all_ready(orders, sent)) == 0


def test_a_record_that_is_too_large_costs_its_neighbours_nothing(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), config={"ready": {"max.message.bytes": "5000"}})
    for n in range(80):
        orders.produce(os.urandom(6000) if n == 40 else b"%d" % n, partition=n % 2)
    orders.flush()
    harness.start(orders, **EXACTLY)

    dead = orders.dead(1)
    ready = sorted(orders.ready(79), key=lambda r: r.offset)

    assert [r.header("dt-reason") for r in dead] == [b"TooLarge"]
    for partition in range(2):
        numbers = [int(r.value or b"") for r in ready if r.partition == partition]
        assert numbers == [n for n in range(80) if n % 2 == partition and n != 40]


def test_a_missing_dead_letter_topic_stops_its_partition_only(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    harness.admin.delete_topics([orders.names.dead_letter])
    worker = harness.start(orders, **EXACTLY)
    orders.produce(b"bad", headers=[("dt-attempt", b"x")], partition=0)
    orders.flush()
    wait_until(lambda: "TargetUnavailable" in worker.alarm_reasons(), what="the alarm is raised")
    for n in range(100):
        orders.produce(b"%d" % n, partition=1)
    orders.flush()

    assert len(orders.ready(100)) == 100
    orders.note_id(orders.make("dead-letter", 2))
    assert [r.value for r in orders.dead(1)] == [b"bad"]


@pytest.mark.slow
def test_another_compression_is_taken_up_while_records_are_released(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1))
    harness.start(orders, **EXACTLY)
    with steady_load(orders) as sent:
        for codec in ("zstd", "none", "gzip"):
            time.sleep(1)
            orders.change(compression=codec)
        time.sleep(1)

    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.slow
def test_a_forbidden_dead_letter_topic_stops_its_partition_only(guarded: WorkerHarness) -> None:
    """Kafka does not report which copy of the transaction it refuses."""
    orders = guarded.declare((0, 1))
    worker = guarded.start(orders, **EXACTLY)
    deny_only(guarded.connection, ResourceType.TOPIC, orders.names.dead_letter, AclOperation.WRITE)
    with steady_load(orders) as sent:
        time.sleep(1)
        orders.produce(b"bad", headers=[("dt-attempt", b"x")], partition=0)
        wait_until(
            lambda: standing_still(worker, orders, orders.names.dead_letter) == ["0"], what="the alarm is raised"
        )
        before = len(sent)
        wait_until(
            lambda: any(int(r.value or b"") >= before for r in orders.ready(1) if r.partition == 1),
            what="the other partition continues",
        )
    lift(guarded.connection, ResourceType.TOPIC, orders.names.dead_letter)
    assert doubled(all_ready(orders, sent)) == 0
    assert [r.value for r in orders.dead(1)] == [b"bad"]


@pytest.mark.slow
@pytest.mark.parametrize(("forbidden", "standing"), [("dead_letter", "0"), ("ready", "1")])
def test_a_forbidden_topic_is_told_though_nothing_else_comes(
    guarded: WorkerHarness, forbidden: str, standing: str
) -> None:
    """Kafka's client reports the reason only when it is called for something else."""
    orders = guarded.declare((0, 1))
    worker = guarded.start(orders, **EXACTLY)
    topic: str = getattr(orders.names, forbidden)
    deny_only(guarded.connection, ResourceType.TOPIC, topic, AclOperation.WRITE)
    for number in range(50):
        orders.produce(b"%d" % number, partition=1)
    orders.produce(b"bad", headers=[("dt-attempt", b"x")], partition=0)
    orders.flush()

    wait_until(lambda: standing_still(worker, orders, topic) == [standing], what="the alarm is raised")

    lift(guarded.connection, ResourceType.TOPIC, topic)
    assert len(orders.ready(50)) == 50
    assert [r.value for r in orders.dead(1)] == [b"bad"]


def standing_still(worker: WorkerProcess, orders: DeclaredTopic, target: str) -> list[str]:
    """Returns the front partitions that stand still because Kafka refused a copy of theirs to this topic."""
    pattern = rf"{orders.names.front} \[(\d+)\] can't be served, because the copy of offset \d+ to {target} was refused"
    alarms = worker.status().get("alarms", [])
    return [partition for alarm in alarms for partition in re.findall(pattern, alarm["message"])]


@pytest.mark.slow
def test_a_worker_that_may_not_use_its_transactional_id_says_so(guarded: WorkerHarness) -> None:
    orders = guarded.declare((0,))
    mine = transactional_id(orders.record.group, "orders-0")
    deny_only(guarded.connection, ResourceType.TRANSACTIONAL_ID, mine, AclOperation.ALL)
    worker = guarded.start(orders, **EXACTLY)

    wait_until(lambda: "KafkaRefused" in worker.alarm_reasons(), what="the alarm is raised")

    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in str(worker.status()["alarms"])
    assert worker.terminate() == 0
