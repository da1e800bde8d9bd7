"""Order, chains of failures, lateness, pending records and causes of late ones, on small tables."""

from dataclasses import replace

import pytest
from delayed_topics_audit import checks
from delayed_topics_audit.blame import CAUSES, Cause, causes, explained, rows
from delayed_topics_audit.lateness import percentiles
from delayed_topics_audit.session import table
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    Row,
    Window,
    dead_letter,
    flaws,
    front_of,
    hop,
    level,
    ready_of,
    release,
    retry,
    totals,
)
from delayed_topics_core.events import Event
from delayed_topics_core.headers import Header
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def disorder(window: Window) -> list[str]:
    return [row.record for row in checks.disordered_names(checks.disorder(window.places)).collect()]


@pytest.mark.slow
def test_neighbours_of_one_partition_and_delay_that_came_out_in_the_other_order(spark: SparkSession) -> None:
    assert disorder(Window(spark=spark, front=front_of(4), ready=ready_of(0, 2, 1, 3))) == ["r:0:1 before r:0:2"]
    assert disorder(Window(spark=spark, front=front_of(4), ready=ready_of(0, 2, 3))) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 4095], ids=["in a chunk", "over the edge of one"])
def test_a_record_that_leaders_with_different_clocks_made_due_after_the_next_may_come_out_after_it(
    spark: SparkSession, first: int
) -> None:
    """The audit once reported `Violated`."""
    bounds = replace(BOUNDS, front_committed=(5000, 5000))

    def came(first_ms: int, second_ms: int) -> list[str]:
        front: list[Row] = [(0, first, first_ms, []), (0, first + 1, second_ms, [])]
        ready = [(0, at, 9, release(("f", 0, first + 1 - at), (second_ms, first_ms)[at])) for at in range(2)]
        return disorder(Window(spark=spark, front=front, ready=ready, bounds=bounds))

    assert came(5, 3) == []
    assert came(3, 5) == came(5, 5) == ["r:0:0 before r:0:1"]


@pytest.mark.slow
def test_a_record_that_waited_for_its_topic_for_more_than_a_second_promises_no_order(spark: SparkSession) -> None:
    """If no delay is between a second and a minute, the worker holds such a record in memory. The audit once reported `Violated`."""

    def came(first_ms: int, target: list[Header]) -> list[str]:
        front: list[Row] = [(0, 0, 0, target), (0, 1, 5, target), (0, 2, 6, target), (0, 3, 7, target)]
        out = ((1, 5), (3, 7), (2, 8), (0, first_ms))
        ready = [(0, at, ms, release(("f", 0, of), of and of + 4)) for at, (of, ms) in enumerate(out)]
        return disorder(Window(spark=spark, front=front, ready=ready))

    target: list[Header] = [("dt-target", b"invoices")]
    later = "r:0:1 before r:0:2"
    assert came(1_000, target) == [later]
    assert came(999, target) == ["r:0:0 before r:0:3", later]
    assert came(1_000, []) == ["r:0:0 before r:0:3", later]


@pytest.mark.slow
def test_order_holds_over_the_edge_of_a_chunk(spark: SparkSession) -> None:
    front: list[Row] = [(0, offset, 0, []) for offset in (4095, 4096)]
    bounds = replace(BOUNDS, front_committed=(5000, 5000))
    ready = [(0, 1, 0, release(("f", 0, 4095))), (0, 0, 0, release(("f", 0, 4096)))]
    assert disorder(Window(spark=spark, front=front, ready=ready, bounds=bounds)) == ["r:0:0 before r:0:1"]


@pytest.mark.slow
def test_a_disorder_is_told_by_the_audit_in_whose_window_the_second_of_both_ended_and_by_no_other(
    spark: SparkSession,
) -> None:
    def disorder_of(begin: int, committed: int = 5000) -> list[str]:
        bounds = replace(BOUNDS, front_from=(begin, begin), front_committed=(committed, committed))
        front: list[Row] = [(0, offset, 0, []) for offset in (*range(6), 4095, 4096)]
        ready = ready_of(0, 2, 1, 4, 3, 5, 4096, 4095)
        return disorder(Window(spark=spark, front=front, ready=ready, bounds=bounds))

    assert disorder_of(0, committed=4) == ["r:0:1 before r:0:2"]
    assert disorder_of(4, committed=4096) == ["r:0:3 before r:0:4"], "the first of the two ended in the previous window"
    assert disorder_of(4096) == ["r:0:6 before r:0:7"], "the two records may lie in different chunks"
    assert disorder_of(4097) == []


@pytest.mark.slow
def test_a_shorter_delay_may_overtake_and_so_may_what_was_read_late(spark: SparkSession) -> None:
    """The first record waits longer than the second. The third was read when less than a second of its delay remained, so it was released
    without a hop."""
    front = [(0, 0, 0, level(2)), (0, 1, 0, []), (0, 2, 0, level(2))]
    delays = [(1, 0, 1, hop(("f", 0, 0), 10_000))]
    ready = [
        (0, 0, 0, release(("f", 0, 1))),
        (0, 1, 10_000, release(("f", 0, 2), 10_000)),
        (0, 2, 10_000, release(("d", 1, 0), 10_000, root=("f", 0, 0))),
    ]
    window = Window(spark=spark, front=front, delays=delays, ready=ready)
    assert (disorder(window), flaws(window)) == ([], {})


@pytest.mark.slow
@pytest.mark.parametrize(("first", "hops"), [(2, 1), (1, 2)], ids=["another delay's partition", "its own, once more"])
def test_what_took_another_way_than_its_neighbours_may_come_before_them(
    spark: SparkSession, first: int, hops: int
) -> None:
    """Such a record hopped twice because of a crash, or because its ready topic was missing when it was due."""
    front = [(0, n, 0, level(2)) for n in range(2)]
    delays = [(1, n, 1, hop(("f", 0, n), 10_000)) for n in range(2)]
    delays.append((first, 2, 2, hop(("f", 0, 1), 10_000)))
    ready = [
        (0, 0, 10_000, release(("d", first, 2), 10_000, root=("f", 0, 1), hops=hops)),
        (0, 1, 10_001, release(("d", 1, 0), 10_000, root=("f", 0, 0), hops=1)),
    ]
    if hops == 1:
        ready.append((0, 2, 10_002, release(("d", 1, 1), 10_000, root=("f", 0, 1), hops=1)))
    assert disorder(Window(spark=spark, front=front, delays=delays, ready=ready)) == []


@pytest.mark.slow
def test_a_failure_chain_has_its_attempts_its_waits_its_end_and_its_forks(spark: SparkSession) -> None:
    front = [
        (0, 0, 0, retry(1, "a")), (0, 1, 20_000, retry(2, "a")), (0, 2, 20_001, retry(2, "a")),
        (0, 3, 0, retry(1, "b")), (0, 4, 0, retry(1, "b", group="other")), (0, 5, 0, retry(6, "c")), (0, 6, 0, retry(1, "d")),
    ]  # fmt: skip
    delays = [(1, 0, 1, hop(("f", 0, 6), 10_000, attempt=1, client=retry(1, "d")))]
    ready = [
        (0, at, 90_000 + at, release(("f", 0, at), 10_000, attempt=attempt))
        for at, attempt in ((0, 1), (1, 2), (2, 2), (3, 1), (4, 1))
    ]
    ready.append((0, 5, 90_005, release(("d", 1, 0), 10_000, root=("f", 0, 6), attempt=1)))
    window = Window(
        spark=spark, front=front, delays=delays, ready=ready, dead=[(0, 0, 0, dead_letter(("f", 0, 5), attempt=6))]
    )
    found = checks.chains(window.places).collect()
    assert sorted((row.attempts, row.waited_ms, row.end, row.forks) for row in found) == [
        (1, 10_000, "released", 0),
        (1, 10_000, "released", 0),
        (1, 10_000, "released", 0),
        (2, 70_000, "released", 1),
        (6, 60_000, "dead_lettered", 0),
    ]


@pytest.mark.slow
def test_lateness_is_counted_per_delay_and_hour_in_buckets_of_three_per_cent(spark: SparkSession) -> None:
    late_ms = (0, 3, 3, 63, 64, 65, 1000, 1001, 50_000)
    front: list[Row] = [(0, at, 0, []) for at in range(len(late_ms))]
    ready = [(0, at, ms, release(("f", 0, at))) for at, ms in enumerate(late_ms)]
    found = checks.lateness(Window(spark=spark, front=front, ready=ready).places).collect()
    counted = {row.bucket_ms: row["count"] for row in found}
    assert counted == {0: 1, 3: 2, 63: 1, 64: 2, 992: 2, 49_152: 1}
    assert {(row.delay_ms, row.hour_ms % checks.HOUR_MS) for row in found} == {(0, 0)}
    assert percentiles(counted.items()) == {"p50": 64, "p90": 49_152, "p99": 49_152, "p99.9": 49_152}


@pytest.mark.slow
def test_however_many_records_were_early_they_have_few_buckets(spark: SparkSession) -> None:
    """The driver collects the buckets. With one for each millisecond, a fault that released everything would end the audit."""
    early_ms = (-3, -65, -1001, *range(-60_000, -50_000, 200))
    front: list[Row] = [(0, at, 60_000, []) for at in range(len(early_ms))]
    ready = [(0, at, 60_000 + ms, release(("f", 0, at))) for at, ms in enumerate(early_ms)]
    counted = {
        row.bucket_ms: row["count"]
        for row in checks.lateness(Window(spark=spark, front=front, ready=ready).places).collect()
    }
    assert len(counted) < 20
    assert {-3, -64, -992} < counted.keys()
    assert sum(counted.values()) == len(early_ms)


@pytest.mark.slow
def test_pending_by_due_time_and_the_timeline(spark: SparkSession) -> None:
    front = [(0, 0, 0, []), (0, 1, 500, level(2)), (0, 2, 1_000, level(2)), (0, 3, 0, level(3))]
    delays = [(1, 0, 501, hop(("f", 0, 1), 10_500))]
    window = Window(spark=spark, front=front, delays=delays, ready=[(0, 0, 2_000, release(("f", 0, 0)))]).committed(
        2, 0
    )
    waiting = {row.due_ms - AT_MS: row["count"] for row in checks.pending(window.places, step_ms=1000).collect()}
    assert waiting == {10_000: 1, 11_000: 1, 60_000: 1}
    steps = [
        (row.at_ms - AT_MS, row.came_in, row.came_out, row.late)
        for row in checks.timeline(window.places, step_ms=1000).collect()
    ]
    assert steps == [(0, 3, 0, 0), (1_000, 1, 0, 0), (2_000, 0, 1, 1)]
    assert totals(window)["pending_since_ms"] == AT_MS


@pytest.mark.slow
def test_what_waits_goes_back_to_its_root_however_often_it_hopped_and_however_long_a_record_may_wait(
    spark: SparkSession,
) -> None:
    """The next link of a chain has to read from that root on, and nothing before it. A link once read back by the longest delay from the
    due time of the record."""
    front = [(0, 0, 0, level(2)), (0, 1, 7_000, level(2)), (0, 2, 9_000, level(2))]
    hops = [(1, at, ms + 1, hop(("f", 0, at), ms + 10_000)) for at, ms in enumerate((0, 7_000, 9_000))]
    on = [(2, 0, 17_000, hop(("d", 1, 1), 70_000, root=("f", 0, 1)))]  # to another due time, by a request
    ready = [(0, 0, 10_000, release(("d", 1, 0), 10_000, root=("f", 0, 0)))]
    bounds = replace(BOUNDS, delays_committed=(0, 2, 0))
    window = Window(spark=spark, front=front, delays=[*hops, *on], ready=ready, bounds=bounds)
    (roots,) = checks.pending_roots(window.places).collect()
    assert roots.since_ms == AT_MS + 7_000
    nothing_waits = replace(window, delays=hops[:1], bounds=BOUNDS)
    assert [row.since_ms for row in checks.pending_roots(nothing_waits.places).collect()] == [None]


@pytest.mark.slow
def test_a_root_that_retention_removed_hides_no_root_that_is_still_there(spark: SparkSession) -> None:
    """Both records hopped twice. The next link once read only what came since the last of these hops."""
    front = [(0, 899, 6_000, []), (0, 900, 7_000, level(2))]
    hops = [(2, at, 9_000 + at, hop(("d", 1, at), 70_000, root=("f", 0, root))) for at, root in enumerate((5, 900))]
    bounds = replace(BOUNDS, front_from=(899, 0), front_committed=(901, 0), delays_committed=(0, 2, 0))
    (roots,) = checks.pending_roots(Window(spark=spark, front=front, delays=hops, bounds=bounds).places).collect()
    assert roots.since_ms == AT_MS + 7_000


@pytest.mark.slow
def test_late_records_are_blamed_on_what_happened_in_their_time(spark: SparkSession) -> None:
    detail = {"change": "assigned", "took_ms": 3_000}
    events = [
        Event(kind="rebalance", topic="orders", member=member, at_ms=AT_MS + ms, detail=detail)
        for member, ms in (("a", 8_000), ("b", 8_500))
    ]
    other = Event(kind="worker-stopped", topic="invoices", member="c", at_ms=AT_MS + 30_000, detail={})
    assigned = Event(kind="assignment", topic="orders", member="a", at_ms=AT_MS + 31_000, detail={"repeated": True})
    detail = {"reason": "TopicMissing", "raised": False, "repeated": True}
    cleared = Event(kind="alarm", topic="orders", member="a", at_ms=AT_MS + 31_000, detail=detail)
    known = causes([*events, other, assigned, cleared], "orders")
    assert known == [Cause(what="rebalance", from_ms=AT_MS + 5_000, to_ms=AT_MS + 8_500)]
    late = [(0, 9_000), (4_000, 9_001), (30_000, 40_000)]
    front: list[Row] = [(0, at, ms, []) for at, (ms, _) in enumerate(late)]
    ready = [(0, at, out_ms, release(("f", 0, at), ms)) for at, (ms, out_ms) in enumerate(late)]
    places = Window(spark=spark, front=front, ready=ready).places
    found = explained(places, table(spark, rows(known), CAUSES)).collect()
    assert {row.nr: row.records for row in found} == {0: 2, None: 1}
