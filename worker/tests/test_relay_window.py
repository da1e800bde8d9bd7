"""Commits keep all finished offsets above the lowest unfinished one, however many there are."""

import random
from collections import Counter
from typing import Any

import pytest
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import MAX_METADATA_CHARS, encode_metadata
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = pytest.mark.broker

SEED = 7


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_a_full_window_with_every_other_record_finished_repeats_none_after_a_restart(
    harness: WorkerHarness, guarantee: Any
) -> None:
    """While releases are paused, records that hop are finished, and due records are not."""
    orders = harness.declare((0, 3600), front_partitions=1)
    orders.change(paused=True)
    worker = harness.start(orders, guarantee=guarantee)
    chance = random.Random(SEED)
    hops = 0
    for n in range(30_000):
        level = chance.choice((1, 2))
        hops += level == 2
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % level)], partition=0)
    orders.flush()
    worker.takes_in_no_more()
    assert worker.terminate() == 0

    harness.start(orders, guarantee=guarantee)
    orders.change(paused=False)

    ready = orders.ready(30_000 - hops)
    delayed = harness.read(orders.names.delays, hops)
    times = Counter(r.header("dt-root") for r in (*ready, *delayed))
    assert (len(times), max(times.values())) == (30_000, 1)


@pytest.mark.slow
def test_hundreds_of_full_bitmaps_are_committed(harness: WorkerHarness) -> None:
    """Together, the bitmaps are larger than Kafka accepts in one commit."""
    count = 400
    orders = harness.declare((0,), front_partitions=count)
    chance = random.Random(SEED)
    full = encode_metadata(0, [n for n in range(1, 20_000) if chance.random() < 0.5])
    assert len(full) > MAX_METADATA_CHARS * 3 / 4
    places = [(orders.names.front, p) for p in range(count)]
    for part in (places[n : n + 100] for n in range(0, count, 100)):
        harness.commit(orders.record.group, dict.fromkeys(part, OffsetAndMetadata(0, full)))
    harness.start(orders)

    for _, partition in places:
        orders.produce(b"v", partition=partition)
    orders.flush()

    assert len(orders.ready(count)) == count
    wait_until(
        lambda: {orders.committed()[place].offset for place in places} == {1},
        what="every partition is committed",
        timeout_seconds=60,
    )
