"""Rebalances, and what a worker learns from the commits of its predecessor. Kills and zombies are tested in `faults/`."""

import time
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import MAX_SPAN, decode_metadata, encode_metadata
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker

MAX_SLEEPS_A_SECOND = 50
"""An engine that takes a turn every millisecond sleeps hundreds of times a second, even on a busy machine."""


@pytest.mark.parametrize(
    ("protocol", "assignor", "guarantee"),
    [
        pytest.param("classic", "Range", "ExactlyOnce", marks=pytest.mark.slow),
        pytest.param("classic", "Sticky", "AtLeastOnce", marks=pytest.mark.slow),
        ("consumer", "Uniform", "AtLeastOnce"),
        pytest.param("classic", "Range", "AtLeastOnce", marks=pytest.mark.slow),
        pytest.param("classic", "RoundRobin", "AtLeastOnce", marks=pytest.mark.slow),
        pytest.param("classic", "Sticky", "ExactlyOnce", marks=pytest.mark.slow),
        pytest.param("consumer", "Uniform", "ExactlyOnce", marks=pytest.mark.slow),
        pytest.param("consumer", "Range", "AtLeastOnce", marks=pytest.mark.slow),
    ],
)
def test_members_come_and_go(harness: WorkerHarness, protocol: str, assignor: str, guarantee: str) -> None:
    orders = harness.declare((0, 1, 2), front_partitions=4, partitions=6)
    config: dict[str, Any] = {"protocol": protocol, "assignor": assignor, "guarantee": guarantee}
    harness.start(orders, member="orders-0", **config)
    with steady_load(orders) as sent:
        time.sleep(1)
        second = harness.start(orders, member="orders-1", **config)
        time.sleep(2)
        assert second.terminate() == 0
        time.sleep(1)

    assert doubled(all_ready(orders, sent)) == 0


def test_finished_offsets_in_the_commit_are_not_released_again(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    for n in range(100):
        orders.produce(b"%d" % n, partition=0)
    orders.flush()
    finished = {n for n in range(11, 100) if n % 3}
    harness.commit(
        orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(10, encode_metadata(10, sorted(finished)))}
    )
    worker = harness.start(orders)

    expected = [n for n in range(10, 100) if n not in finished]
    ready = orders.ready(len(expected))

    assert [int(r.value or b"") for r in sorted(ready, key=lambda r: r.offset)] == expected
    assert worker.terminate() == 0
    committed = orders.committed()[orders.names.front, 0]
    assert committed is not None
    assert (committed.offset, decode_metadata(100, committed.metadata)) == (100, [])


def test_records_released_ahead_of_an_unfinished_one_are_in_the_commit(harness: WorkerHarness) -> None:
    """A record that hopped late waits in the window of its delays partition; others overtake it."""
    orders = harness.declare((0, 3600), partitions=2)
    lane = orders.record.layout.partition_for(3600, 0)
    worker = harness.start(orders)
    now_ms = int(time.time() * 1000)
    hop = [("dt-root", b"f:0:0:x"), ("dt-origin", b"f:0:0"), ("dt-hops", b"1"), ("dt-id", b"a"), ("dt-attempt", b"0")]
    for n, due_in_ms in enumerate([3_600_000, 1000, 1500]):
        headers = [*hop, ("dt-due-at", b"%d" % (now_ms + due_in_ms))]
        orders.produce(b"%d" % n, headers=headers, partition=lane, topic=orders.names.delays)
    orders.flush()
    assert {r.value for r in orders.ready(2)} == {b"1", b"2"}
    assert worker.terminate() == 0

    committed = orders.committed()[orders.names.delays, lane]

    assert committed is not None
    assert (committed.offset, decode_metadata(0, committed.metadata)) == (0, [1, 2])
    harness.start(orders)
    time.sleep(1)
    assert len(orders.ready(2)) == 2


def test_a_restored_window_that_reaches_far_above_the_commit_comes_out_whole(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    count, finished = MAX_SPAN + 3000, {MAX_SPAN + 2000}
    for n in range(count):
        orders.produce(b"%d" % n, partition=0)
    orders.flush()
    far = OffsetAndMetadata(0, encode_metadata(0, sorted(finished)))
    harness.commit(orders.record.group, {(orders.names.front, 0): far})

    harness.start(orders)

    ready = orders.ready(count - 1)
    assert {int(r.value or b"") for r in ready} == set(range(count)) - finished


def is_idle(worker: WorkerProcess) -> bool:
    """Returns whether the engine's thread sleeps few times and for long, over two seconds, instead of taking turn after turn."""
    (thread,) = (
        task for task in Path(f"/proc/{worker.pid}/task").iterdir() if (task / "comm").read_text() == "engine\n"
    )

    def sleeps() -> int:
        return int((thread / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    before, began = sleeps(), time.monotonic()
    time.sleep(2)
    return (sleeps() - before) / (time.monotonic() - began) < MAX_SLEEPS_A_SECOND


@pytest.mark.slow
def test_a_worker_rests_while_it_holds_a_record_for_later_and_when_it_has_lost_it(harness: WorkerHarness) -> None:
    orders = harness.declare((20,), front_partitions=1, partitions=1)
    worker = harness.start(orders)
    due_at = time.time() + 20
    orders.produce(partition=0)
    orders.flush()
    harness.read(orders.names.delays, 1)
    wait_until(lambda: is_idle(worker), what="the engine is idle while nothing is due", timeout_seconds=15)

    orders.remove()
    wait_until(lambda: orders.names.front not in worker.status()["topics"], what="the worker gives up the topic")
    assert time.time() < due_at
    wait_until(lambda: time.time() > due_at + 2, what="the record would be due")

    wait_until(lambda: is_idle(worker), what="the engine is idle without partitions", timeout_seconds=20)


@pytest.mark.slow
def test_a_worker_whose_next_record_is_due_in_an_hour_still_asks_for_the_time(harness: WorkerHarness) -> None:
    """Clocks drift apart, and this must not make the record late."""
    orders = harness.declare((3600,), front_partitions=1)
    harness.start(orders)
    orders.produce(partition=0)
    orders.flush()
    harness.read(orders.names.delays, 1)
    ends = [-1]

    def clock_probes() -> int:
        (end,) = harness.admin.list_offsets([(CLOCK_TOPIC, 0)], "latest").values()
        assert isinstance(end, int)
        ends.append(end)
        return end

    wait_until(lambda: ends[-1] == clock_probes(), what="no probe is written, as nothing is due soon", poll_seconds=2)
    before = clock_probes()
    wait_until(lambda: clock_probes() > before, what="another clock probe is written")
