"""Memory is bounded, and records that wait long never starve those that are due."""

import time
from pathlib import Path

import pytest
from delayed_topics_core.headers import Root
from delayed_topics_core_testing import copies
from delayed_topics_worker_testing.world import World

pytestmark = pytest.mark.broker

WINDOW_BYTES = 8 << 20
FAR = 60_000
"""Each counts for 1,000 bytes at least: seven times the window."""
QUEUED_BYTES = 1000 * 500
"""What may come in between two looks at the memory."""


def resident_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


@pytest.mark.slow  # until it was green ten times with its new bound, see docs/testing.md
def test_far_records_fill_a_part_of_the_window_and_due_ones_come_out(world: World) -> None:
    orders = world.declare((0, 1, 3600), front_partitions=2, partitions=4)
    layout = orders.record.layout
    lane = layout.partition_for(3600, 0)
    for _ in range(FAR):
        orders.produce(
            b"x" * 400,
            headers=[("dt-generation", b"%d" % layout.generation)],
            partition=lane,
            topic=orders.names.delays,
        )
    orders.flush()
    worker = world.start(orders, window_bytes=WINDOW_BYTES)
    for n in range(2000):
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % 2 + 1))], partition=n % 2)
    orders.flush()

    ready = orders.ready(2000)

    # within minutes, that is: starved they would come after those of the hour
    assert sorted(int(r.value or b"") for r in ready) == list(range(2000))
    status = worker.status()
    assert status["topics"][orders.names.front]["waiting"] < FAR / 2
    # Half of the window, or all of it where they came before the broker's time was known, and nobody could say that they are
    # far. It is looked at after a thousand records, so some more of those may be in.
    assert status["held_bytes"] <= WINDOW_BYTES + 4 * QUEUED_BYTES
    assert resident_megabytes(worker.pid) < 200


@pytest.mark.slow
def test_a_full_window_over_many_partitions_stays_within_250_mib(world: World) -> None:
    count, partitions = 100_000, 100
    orders = world.declare((3600,), front_partitions=4, partitions=partitions)
    due_at_ms = int(time.time() * 1000) + 20_000
    foreign = [("trace", b"0123456789abcdef"), ("kind", b"order"), ("source", b"test")]
    for n in range(count):
        root = Root("f", n % 4, n, "AAAAAAAAQAmYcMFEMHnRVA")
        headers = copies.hop(foreign, root=root, origin=b"f:0:%d" % n, due_at_ms=due_at_ms)
        orders.produce(b"x" * 100, headers=headers, partition=n % partitions, topic=orders.names.delays)
    orders.flush()
    worker = world.start(orders)

    ready = orders.ready(count)

    assert len(ready) == count
    assert min(r.late_ms for r in ready) >= 0
    assert resident_megabytes(worker.pid) < 250
