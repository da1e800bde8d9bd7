"""A crash repeats at most the releases of a tenth of a second, or of one second while Kafka accepts no commits, and never more than 5,000
records of a partition."""

import time

import pytest
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load

pytestmark = pytest.mark.broker

MEMBER = "orders-0"
MAX_REPEATED = 5_000
DUE_AT_ONCE = 20_000


def test_from_a_second_after_the_last_commit_that_kafka_took_a_worker_sends_nothing(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    orders = harness.declare((0,), front_partitions=1)
    harness.start(orders, member=MEMBER)
    with steady_load(orders, per_second=200, levels=1) as sent:
        wait_until(lambda: orders.released() > 0, what="records are released", evidence=harness.evidence)
        wire.hold_back_requests(Api.OFFSET_COMMIT, 60, client_id=MEMBER)
        held_back_at_ms, so_far = time.time() * 1000, len(sent)
        wait_until(lambda: len(sent) > so_far + 600, what="records are produced for three seconds")

    released_at_ms = [int((r.header("dt-released") or b"").split(b":")[1]) for r in orders.ready(1)]
    assert max(released_at_ms) < held_back_at_ms + 1500

    wire.hold_back_requests(Api.OFFSET_COMMIT, 0, client_id=MEMBER)
    assert doubled(all_ready(orders, sent)) == 0


def stands_still(orders: DeclaredTopic) -> None:
    """Waits until the worker releases no more records."""
    seen = [0]

    def the_same_twice() -> bool:
        seen.append(orders.released())
        return seen[-1] == seen[-2] > 0

    wait_until(the_same_twice, what="no more records are released", poll_seconds=0.25)


def test_however_fast_a_worker_is_its_crash_repeats_at_most_5_000_records_of_a_partition(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """All records are due, and from the first copy on, Kafka answers no commits."""
    orders = harness.declare((0,), front_partitions=1)
    orders.change(paused=True)
    worker = harness.start(orders, member=MEMBER)
    for n in range(DUE_AT_ONCE):
        orders.produce(b"%d" % n)
    orders.flush()
    worker.takes_in_no_more()
    ready = orders.names.ready.encode()

    def commits_wait_from_now(request: bytes) -> bytes:
        if ready in request:
            wire.hold_back_requests(Api.OFFSET_COMMIT, 60, client_id=MEMBER)
        return request

    wire.change_requests(Api.PRODUCE, commits_wait_from_now)
    orders.change(paused=False)
    stands_still(orders)
    worker.kill()
    wire.reset()
    harness.start(orders, member=MEMBER)

    assert doubled(all_ready(orders, list(range(DUE_AT_ONCE)))) <= MAX_REPEATED


def test_what_is_released_steadily_is_committed_ten_times_a_second(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders, member=MEMBER)

    def commits() -> float:
        return worker.metric("delayedtopics_commit_seconds_count")

    with steady_load(orders, per_second=200, levels=1) as sent:
        wait_until(lambda: commits() > 3, what="the worker commits", evidence=worker.evidence)
        before, began, so_far = commits(), time.monotonic(), len(sent)
        wait_until(lambda: len(sent) > so_far + 600, what="records are produced for three seconds")
        per_second = (commits() - before) / (time.monotonic() - began)

    assert 5 < per_second < 15
