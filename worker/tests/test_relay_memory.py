"""Memory is bounded, and records that wait long never starve those that are due."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from delayed_topics_core.headers import Header, Root
from delayed_topics_core_testing import copies
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness

pytestmark = pytest.mark.broker

WINDOW_BYTES = 8 << 20
FAR = 60_000
"""The number of records that wait long. Each counts as at least 1,000 bytes, so together they are seven times the window."""
MAX_MEGABYTES = 200
QUEUED_BYTES = 1000 * 500
"""What may come in between two checks of the memory: a turn takes in up to 1,000 records."""


def resident_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024


def produce_copies(
    orders: DeclaredTopic,
    count: int,
    *,
    to: Sequence[int],
    due_in_seconds: int,
    value: bytes,
    foreign: Sequence[Header] = (),
) -> None:
    """Produces hops into these partitions of the delays topic in turn, as a worker would write them."""
    due_at_ms = int(time.time() * 1000) + 1000 * due_in_seconds
    for n in range(count):
        root = Root("f", n % 4, n, "AAAAAAAAQAmYcMFEMHnRVA")
        headers = copies.hop(foreign, root=root, origin=b"f:0:%d" % n, due_at_ms=due_at_ms)
        orders.produce(value, headers=headers, partition=to[n % len(to)], topic=orders.names.delays)
    orders.flush()


@pytest.mark.slow
def test_a_partition_is_read_again_however_much_others_hold(harness: WorkerHarness) -> None:
    # Lanes of an hour fill more than three quarters of the window. The rest is less than what the partition of five seconds
    # once held. That partition is paused while its records are due in some seconds, and has to be resumed when they are out.
    orders = harness.declare((5, 3600), partitions=16, lanes_per_delay=12, front_partitions=2)
    layout = orders.record.layout
    soon = layout.partition_for(5, 0)
    far = [p for p, seconds in enumerate(layout.partition_delays) if seconds == 3600]
    produce_copies(orders, 6000, to=far, due_in_seconds=3600, value=b"x" * 400)
    produce_copies(orders, 3000, to=[soon], due_in_seconds=10, value=b"x" * 400)

    harness.start(orders, window_bytes=1 << 20)

    assert len(orders.ready(3000, timeout_seconds=60)) == 3000


@pytest.mark.slow  # until it has passed ten times with its new bound, see docs/test-history.md
def test_far_records_fill_a_part_of_the_window_and_due_ones_come_out(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1, 3600), front_partitions=2, partitions=4)
    layout = orders.record.layout
    lane = layout.partition_for(3600, 0)
    produce_copies(orders, FAR, to=[lane], due_in_seconds=3600, value=b"x" * 400)
    worker = harness.start(orders, window_bytes=WINDOW_BYTES)
    for n in range(2000):
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % 2 + 1))], partition=n % 2)
    orders.flush()

    ready = orders.ready(2000)

    # If these records starved, they would come out after those of the hour.
    assert sorted(int(r.value or b"") for r in ready) == list(range(2000))
    status = worker.status()
    assert status["topics"][orders.names.front]["waiting"] < FAR / 2
    # The far records fill half of the window, or all of it if they came before the broker's time was known, so that the engine
    # could not tell that they are far. The engine checks this once a turn, and a turn takes in up to 1,000 records, so some
    # more of them may be in.
    assert status["held_bytes"] <= WINDOW_BYTES + 4 * QUEUED_BYTES
    assert resident_megabytes(worker.pid) < 200


@pytest.mark.slow
def test_copies_on_their_way_are_bounded_wherever_their_bytes_are(harness: WorkerHarness, wire: SlowWire) -> None:
    """The bytes are in headers. Small records came before, so many copies may go at once, and Kafka takes its time to acknowledge them."""
    partitions, small, large = 40, 100, 8
    orders = harness.declare((0,), front_partitions=partitions)
    worker = harness.start(orders, window_bytes=WINDOW_BYTES)
    for n in range(partitions * small):
        orders.produce(b"small", partition=n % partitions)
    orders.flush()
    wait_until(lambda: orders.released() == partitions * small, what="the small records come out")
    wire.hold_back_requests(Api.PRODUCE, 8, client_id=worker.member)  # less than the clients' timeout of 10 s
    for n in range(partitions * large):
        orders.produce(None, headers=[("baggage", b"x" * 900_000)], partition=n % partitions)
    orders.flush()
    worker.takes_in_no_more()
    wire.hold_back_requests(Api.PRODUCE, 0, client_id=worker.member)

    wait_until(lambda: orders.released() == partitions * (small + large), what="all come out", timeout_seconds=400)

    assert resident_megabytes(worker.pid) < MAX_MEGABYTES


@pytest.mark.slow
def test_a_full_window_over_many_partitions_stays_within_250_mib(harness: WorkerHarness) -> None:
    count, partitions = 100_000, 100
    orders = harness.declare((3600,), front_partitions=4, partitions=partitions)
    foreign = [("trace", b"0123456789abcdef"), ("kind", b"order"), ("source", b"test")]
    produce_copies(orders, count, to=range(partitions), due_in_seconds=20, value=b"x" * 100, foreign=foreign)
    worker = harness.start(orders)

    ready = orders.ready(count)

    assert len(ready) == count
    assert min(r.late_ms for r in ready) >= 0
    assert resident_megabytes(worker.pid) < 250
