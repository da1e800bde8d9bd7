"""Topics that change while a worker restarts."""

import pytest
from confluent_kafka import Consumer
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.generations import members_now
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker


def owned(worker: WorkerProcess, orders: DeclaredTopic) -> int:
    return int(worker.metric("delayedtopics_partitions", topic=orders.names.front))


def partitions_of(orders: DeclaredTopic) -> int:
    return orders.record.front_partitions + orders.record.layout.partition_count


def all_are_owned(orders: DeclaredTopic, *workers: WorkerProcess) -> None:
    wait_until(
        lambda: sum(owned(worker, orders) for worker in workers) == partitions_of(orders),
        what="each partition has its worker",
        timeout_seconds=40,
    )


def test_partitions_that_came_while_the_only_worker_restarted_are_served(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), partitions=2, front_partitions=1)
    assert harness.start(orders).terminate() == 0
    orders.grow((0, 1, 2))

    all_are_owned(orders, harness.start(orders))


@pytest.mark.slow
def test_partitions_that_came_while_one_of_two_workers_restarted_are_served(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), partitions=2, front_partitions=1)
    workers = [harness.start(orders, member=f"orders-{n}") for n in range(2)]
    all_are_owned(orders, *workers)
    for n in range(2):
        workers[n].kill()
        orders.grow(tuple(range(3 + n)))
        workers[n] = harness.start(orders, member=f"orders-{n}")
        all_are_owned(orders, *workers)


@pytest.mark.slow
def test_a_front_topic_that_was_made_again_while_the_worker_restarted_is_told(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    harness.start(orders).kill()
    harness.admin.delete_topics([orders.names.front])
    wait_until(lambda: not members_now(orders), what="the group has removed the worker")
    worker = harness.start(orders, ready=False)
    wait_until(
        lambda: owned(worker, orders) == orders.record.layout.partition_count, what="the worker has the delays topic"
    )
    worker.kill()
    orders.make("front", 2)
    again = harness.start(orders, ready=False)

    wait_until(lambda: Reason.TOPIC_RECREATED in again.alarm_reasons(), what="the alarm", timeout_seconds=40)


@pytest.mark.slow
def test_a_front_topic_that_was_missing_when_the_worker_began_and_is_made_again_is_told(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    harness.admin.delete_topics([orders.names.front])
    worker = harness.start(orders, ready=False)
    wait_until(
        lambda: owned(worker, orders) == orders.record.layout.partition_count, what="the worker has the delays topic"
    )
    orders.make("front", 2)

    wait_until(lambda: Reason.TOPIC_RECREATED in worker.alarm_reasons(), what="the alarm", timeout_seconds=40)


@pytest.mark.slow
def test_partitions_that_a_foreign_leader_of_the_group_leaves_out_are_an_alarm(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), partitions=2, front_partitions=1)
    leader = Consumer(
        {
            **harness.connection.client_config(),
            "group.id": orders.record.group,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 3_600_000,
        }
    )
    leader.subscribe([orders.names.delays])
    wait_until(
        lambda: leader.poll(0.1) is None and bool(leader.assignment()), what="the foreign consumer is the leader"
    )
    worker = harness.start(orders, ready=False)
    wait_until(lambda: leader.poll(0.1) is None and owned(worker, orders) == 2, what="the two share the topics")
    worker.kill()
    orders.grow((0, 1, 2))
    again = harness.start(orders, ready=False)

    def alarmed() -> bool:
        leader.poll(0.1)
        return any("has had no worker" in alarm["message"] for alarm in again.status().get("alarms", []))

    wait_until(alarmed, what="the alarm", timeout_seconds=90)
    leader.close()
    wait_until(lambda: owned(again, orders) == partitions_of(orders), what="the worker has all partitions")
    wait_until(lambda: not again.alarm_reasons(), what="no alarm")
