"""Records that came out at another time than they were to are held against what somebody had asked for."""

from dataclasses import replace

import pytest
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    PROMISE,
    Row,
    Window,
    flaws,
    hop,
    level,
    release,
)
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def said(kind: str, ms: int) -> bytes:
    return f"{kind} {AT_MS + ms}".encode()


def window_of(spark: SparkSession) -> Window:
    """Seven records that were to come out after 10 s, and what became of them: when they came out, and when they say that they were due."""
    came_out = [(20_001, 20_000), (3_001, 3_000), (3_001, 3_000), (10_001, 10_000), (3_001, 3_000), (3_001, 3_000)]
    came_out.append((19_999, 20_000))
    ready: list[Row] = [(0, at, ms, release(("f", 0, at), due_ms)) for at, (ms, due_ms) in enumerate(came_out)]
    return Window(
        spark=spark,
        front=[(0, at, 0, level(2)) for at in range(len(came_out))],
        ready=ready,
        control=[
            (b"f:0:0:id", said("deliver-at", 20_000), 100),
            (b"f:0:1:id", said("deliver-at", 3_000), 100),
            (b"f:0:2:id", said("deliver-at", 4_000), 100),
            (b"f:0:3:id", said("deliver-at", 20_000), 9_999),
            (b"f:0:4:id", said("rescheduled", 3_000), 3_500),
            (b"f:0:5:id", said("rescheduled", 3_000), 1_000),
            (b"f:0:6:id", said("deliver-at", 20_000), 100),
        ],
    )


def test_a_release_at_a_time_that_was_asked_for_is_neither_early_nor_late_and_any_other_is(spark: SparkSession) -> None:
    """For the fifth there is only the worker's own word, which came after the release."""
    assert flaws(window_of(spark)) == {"early": ["f:0:2", "f:0:4", "f:0:6"]}


@pytest.mark.slow
def test_where_nobody_could_ask_no_release_is_excused(spark: SparkSession) -> None:
    nobody = replace(window_of(spark), control=None)
    assert flaws(nobody) == {"early": ["f:0:1", "f:0:2", "f:0:4", "f:0:5"], "late": ["f:0:0", "f:0:6"]}


@pytest.mark.slow
def test_where_it_is_not_known_what_was_asked_for_a_release_is_held_against_what_it_says_itself(
    spark: SparkSession,
) -> None:
    unknown = replace(window_of(spark), control_unknown="records of it are missing")
    assert flaws(unknown) == {"early": ["f:0:6"]}


@pytest.mark.slow
def test_a_record_that_waits_in_the_delays_topic_for_another_time_is_not_overdue(spark: SparkSession) -> None:
    window = Window(
        spark=spark,
        front=[(0, 0, 0, level(2))],
        delays=[(1, 0, 1, hop(("f", 0, 0), 10_000)), (2, 0, 10_000, hop(("d", 1, 0), 70_000, root=("f", 0, 0)))],
        control=[(b"f:0:0:id", said("deliver-at", 70_000), 100)],
        promise=replace(PROMISE, overdue_before_ms=AT_MS + 60_000),
    )
    bounds = replace(BOUNDS, delays_committed=(100, 100, 0))
    assert flaws(replace(window, bounds=bounds)) == {}
