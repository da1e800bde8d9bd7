"""A record that requests a due time is checked against that time and not against a delay of the list."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from delayed_topics_audit import checks
from delayed_topics_audit.findings import TIMELINE_STEPS, with_tables
from delayed_topics_audit.promise import CLOCKS_MS, Declared
from delayed_topics_audit_testing.rows import (
    AT_MS,
    DELAYS_MS,
    PROMISE,
    Row,
    Window,
    dead_letter,
    flaws,
    found,
    hop,
    level,
    named,
    release,
    totals,
)
from delayed_topics_core.headers import Header
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAY_MS = 86_400_000


def at(ms: int) -> list[Header]:
    """Headers that request a due time of `ms` after AT_MS."""
    return [("dt-deliver-at", b"%d" % (AT_MS + ms))]


def declared(max_delay_ms: int | None, from_ms: int = 0, until_ms: int | None = None) -> Declared:
    return Declared(list_ms=DELAYS_MS, retry_cap=5, from_ms=from_ms, until_ms=until_ms, max_delay_ms=max_delay_ms)


def test_a_release_before_the_due_time_that_was_asked_for_is_early_and_long_after_it_late(spark: SparkSession) -> None:
    front: list[Row] = [(0, 0, 0, at(500)), (0, 1, 0, at(500)), (0, 2, 0, at(500)), (0, 3, 300, at(-9_000))]
    ready: list[Row] = [
        (0, 0, 499, release(("f", 0, 0), 400)),
        (0, 1, 500, release(("f", 0, 1), 500)),
        (0, 2, 1_501, release(("f", 0, 2), 500)),
        (0, 3, 301, release(("f", 0, 3), 300)),
    ]
    window = Window(spark=spark, front=front, ready=ready).committed(front=4)
    assert flaws(window) == {"early": ["f:0:0"], "late": ["f:0:2"]}
    assert named(window, "early") == ["r:0:0 -1 ms"]


def test_what_a_hop_of_it_says_of_its_due_time_is_not_believed_where_its_root_is_seen(spark: SparkSession) -> None:
    hopped: list[Row] = [(1, 0, 1, hop(("f", 0, 0), 400))]
    ready: list[Row] = [(0, 0, 450, release(("d", 1, 0), 400, root=("f", 0, 0)))]
    window = Window(spark=spark, front=[(0, 0, 0, at(500))], delays=hopped, ready=ready).committed(front=1, delays=1)
    assert flaws(window) == {"early": ["f:0:0"]}


def test_a_direct_write_with_a_due_time_is_not_due_after_its_partitions_delay(spark: SparkSession) -> None:
    delays: list[Row] = [(1, 0, 0, at(700)), (1, 1, 0, [])]
    ready: list[Row] = [(0, 0, 700, release(("d", 1, 0), 700)), (0, 1, 700, release(("d", 1, 1), 700))]
    window = Window(spark=spark, delays=delays, ready=ready).committed(front=0, delays=2)
    assert flaws(window) == {"early": ["d:1:1"]}


def test_lateness_at_due_times_is_told_apart_from_that_after_a_delay(spark: SparkSession) -> None:
    front: list[Row] = [(0, 0, 0, at(500)), (0, 1, 0, [])]
    ready: list[Row] = [(0, 0, 510, release(("f", 0, 0), 500)), (0, 1, 3, release(("f", 0, 1)))]
    found = checks.lateness(Window(spark=spark, front=front, ready=ready).committed(front=2).places).collect()
    assert {(row.delay_ms, row.asked, row.bucket_ms): row["count"] for row in found} == {
        (None, True, 10): 1,
        (0, False, 3): 1,
    }


def test_no_order_is_promised_among_due_times(spark: SparkSession) -> None:
    front: list[Row] = [(0, 0, 0, at(500)), (0, 1, 0, at(400))]
    ready: list[Row] = [(0, 0, 400, release(("f", 0, 1), 400)), (0, 1, 500, release(("f", 0, 0), 500))]
    window = Window(spark=spark, front=front, ready=ready).committed(front=2)
    assert flaws(window) == {}
    assert totals(window)["ended"] == 2


def died(spark: SparkSession, letters: Sequence[tuple[int, int, DeadLetterReason]], *lists: Declared) -> Window:
    """Front records that request a due time and became dead letters. `letters`: append time, how far ahead the due time is, and the reason
    of the dead letter."""
    front: list[Row] = [(0, n, ms, at(ms + ahead_ms)) for n, (ms, ahead_ms, _) in enumerate(letters)]
    dead: list[Row] = [
        (0, n, ms + 1, dead_letter(("f", 0, n), reason=reason)) for n, (ms, _, reason) in enumerate(letters)
    ]
    return Window(spark=spark, front=front, dead=dead, promise=replace(PROMISE, lists=lists))


def test_a_due_time_is_refused_where_there_is_no_ladder_or_that_is_too_far_ahead(spark: SparkSession) -> None:
    no_ladder, too_far = DeadLetterReason.NO_LADDER, DeadLetterReason.MAX_DELAY_EXCEEDED
    letters = [(0, 1, no_ladder), (0, DAY_MS, too_far), (0, DAY_MS + 1, too_far)]
    assert flaws(died(spark, letters, declared(None))) == {"wrongly_dead_lettered": ["f:0:1", "f:0:2"]}
    assert flaws(died(spark, letters, declared(DAY_MS))) == {"wrongly_dead_lettered": ["f:0:0", "f:0:1"]}
    assert flaws(died(spark, letters, declared(None, from_ms=AT_MS))) == {}, "what was declared is not known"


def test_the_ladder_is_that_of_the_time_with_some_minutes_before_and_after_an_edit(spark: SparkSession) -> None:
    edited_ms = 2 * CLOCKS_MS
    times_ms = (0, edited_ms - CLOCKS_MS // 2, edited_ms + CLOCKS_MS // 2, edited_ms + CLOCKS_MS + 1)
    letters = [(ms, 1, DeadLetterReason.NO_LADDER) for ms in times_ms]
    edit = declared(None, until_ms=AT_MS + edited_ms), declared(DAY_MS, from_ms=AT_MS + edited_ms)
    assert flaws(died(spark, letters, *edit)) == {"wrongly_dead_lettered": ["f:0:3"]}
    assert flaws(died(spark, letters, edit[1])) == {"wrongly_dead_lettered": ["f:0:3"]}, "the first list is forgotten"


def came_out(spark: SparkSession, records: Sequence[tuple[int, int]], *lists: Declared) -> Window:
    """Front records that request a due time and were released then. `records`: append time, and how far ahead the due time is."""
    front: list[Row] = [(0, n, ms, at(ms + ahead_ms)) for n, (ms, ahead_ms) in enumerate(records)]
    due_ms = [ms + ahead_ms for ms, ahead_ms in records]
    ready: list[Row] = [(0, n, ms, release(("f", 0, n), ms)) for n, ms in enumerate(due_ms)]
    return Window(spark=spark, front=front, ready=ready, promise=replace(PROMISE, lists=lists))


def test_a_record_whose_due_time_had_to_be_refused_and_that_came_out_then_was_wrongly_released(
    spark: SparkSession,
) -> None:
    """The audit once asked only whether a dead letter had a reason."""
    records = [(0, 1), (0, DAY_MS), (0, DAY_MS + 1)]
    assert flaws(came_out(spark, records, declared(None))) == {"wrongly_released": ["f:0:0", "f:0:1", "f:0:2"]}
    assert flaws(came_out(spark, records, declared(DAY_MS))) == {"wrongly_released": ["f:0:2"]}
    assert flaws(came_out(spark, records, declared(None, from_ms=AT_MS))) == {}, "what was declared is not known"
    edit_ms = AT_MS + 2 * CLOCKS_MS
    edited = declared(DAY_MS, until_ms=edit_ms), declared(None, from_ms=edit_ms)
    around = [(CLOCKS_MS, 1), (3 * CLOCKS_MS - 1, 1), (3 * CLOCKS_MS, 1)]
    assert flaws(came_out(spark, around, *edited)) == {"wrongly_released": ["f:0:2"]}


def test_a_record_that_asks_for_no_due_time_is_not_refused_for_one(spark: SparkSession) -> None:
    dead = [(0, 0, 1, dead_letter(("f", 0, 0), reason=DeadLetterReason.NO_LADDER))]
    window = Window(spark=spark, front=[(0, 0, 0, [])], dead=dead, promise=replace(PROMISE, lists=(declared(None),)))
    assert flaws(window) == {"wrongly_dead_lettered": ["f:0:0"]}


def test_what_was_loaded_at_once_and_waits_for_weeks_is_drawn_in_a_few_bars(spark: SparkSession) -> None:
    """Each second of due times once had a bar, because the records came in within seconds. A million bars made the Job fail."""
    front: list[Row] = [(0, n, n, at(n * 3_600_000)) for n in range(1_000)]
    window = Window(spark=spark, front=front).committed(front=0)
    drawn = with_tables(spark, window.places, found(window))
    assert sum(row["count"] for row in drawn.pending) == 1_000
    assert TIMELINE_STEPS <= len(drawn.pending) <= 2 * TIMELINE_STEPS + 1
    assert {row["due_ms"] % drawn.due_step_ms for row in drawn.pending} == {0}


def test_a_hop_that_waits_for_longer_than_any_record_may_is_overdue(spark: SparkSession) -> None:
    """Its record could wait for ever, and every audit of it once reported `Verified`."""

    def overdue(due_ms: int, now_ms: int, max_delay_ms: int | None, from_ms: int = 0) -> list[str]:
        lists = [declared(max_delay_ms, from_ms)]
        promise = replace(PROMISE, lists=lists, overdue_before_ms=AT_MS + now_ms)
        hops: list[Row] = [(1, 0, 5, hop(("f", 0, 0), due_ms))]
        window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=hops, promise=promise).committed(1, 0)
        assert totals(window)["overdue_since_ms"] in (None, AT_MS + 5 + (max_delay_ms or DELAYS_MS[-1]))
        return flaws(window).get("overdue", [])

    for_ever_ms = 10**15
    assert overdue(for_ever_ms, 60_006, None) == ["d:1:0"]
    assert overdue(for_ever_ms, 60_005, None) == overdue(for_ever_ms, DAY_MS, DAY_MS) == []
    assert overdue(for_ever_ms, DAY_MS + 6, DAY_MS) == ["d:1:0"], "a request may name a time within that"
    assert overdue(for_ever_ms, DAY_MS, None, from_ms=1) == [], "what was declared before is not known"
