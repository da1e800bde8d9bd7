"""Records that came out at another time than their own due time are checked against the requests to reschedule them."""

from dataclasses import replace

import pytest
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    PROMISE,
    Row,
    Window,
    dead_letter,
    flaws,
    hop,
    judged,
    level,
    release,
)
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def control_value(kind: str, ms: int) -> bytes:
    return f"{kind} {AT_MS + ms}".encode()


def window_of(spark: SparkSession) -> Window:
    """Seven records with a delay of 10 s. `came_out`: when each was released, and the due time that its release claims."""
    came_out = [(20_001, 20_000), (3_001, 3_000), (3_001, 3_000), (10_001, 10_000), (3_001, 3_000), (3_001, 3_000)]
    came_out.append((19_999, 20_000))
    ready: list[Row] = [(0, at, ms, release(("f", 0, at), due_ms)) for at, (ms, due_ms) in enumerate(came_out)]
    return Window(
        spark=spark,
        front=[(0, at, 0, level(2)) for at in range(len(came_out))],
        ready=ready,
        control=[
            (b"f:0:0:id", control_value("deliver-at", 20_000), 100),
            (b"f:0:1:id", control_value("deliver-at", 3_000), 100),
            (b"f:0:2:id", control_value("deliver-at", 4_000), 100),
            (b"f:0:3:id", control_value("deliver-at", 20_000), 9_999),
            (b"f:0:4:id", control_value("rescheduled", 3_000), 3_500),
            (b"f:0:5:id", control_value("rescheduled", 3_000), 1_000),
            (b"f:0:6:id", control_value("deliver-at", 20_000), 100),
        ],
    )


def test_a_release_at_a_time_that_was_asked_for_is_neither_early_nor_late_and_any_other_is(spark: SparkSession) -> None:
    """For the fifth record there is only the worker's own answer, which it wrote after the release."""
    assert flaws(window_of(spark)) == {"early": ["f:0:2", "f:0:4", "f:0:6"]}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\u0085", "\u2028", "\n"])
def test_a_request_with_a_line_break_behind_its_time_asks_for_nothing_and_ends_no_audit(
    spark: SparkSession, end: str
) -> None:
    """No worker accepts such a value as a time. Spark trims more characters off a number than Java takes for a line break."""
    window = Window(
        spark=spark,
        front=[(0, 0, 0, level(2))],
        ready=[(0, 0, 3_001, release(("f", 0, 0), 3_000))],
        control=[(b"f:0:0:id", control_value("deliver-at", 3_000) + end.encode(), 100)],
    )
    assert flaws(window) == {"early": ["f:0:0"]}


@pytest.mark.slow
def test_where_nobody_could_ask_no_release_is_excused(spark: SparkSession) -> None:
    without_requests = replace(window_of(spark), control=None)
    assert flaws(without_requests) == {"early": ["f:0:1", "f:0:2", "f:0:4", "f:0:5"], "late": ["f:0:0", "f:0:6"]}


@pytest.mark.slow
def test_where_requests_are_missing_what_is_left_of_them_is_believed_and_other_times_are_counted(
    spark: SparkSession,
) -> None:
    some = replace(window_of(spark), control_unknown="records of it are missing")
    assert flaws(some) == {"early": ["f:0:6"], "perhaps_unasked": ["f:0:2"]}, "the answer for the fifth record is left"
    every = [f"f:0:{at}" for at in (0, 1, 2, 4, 5, 6)]
    assert flaws(replace(some, control=None)) == {"early": ["f:0:6"], "perhaps_unasked": every}


def test_a_release_at_another_time_that_perhaps_nobody_asked_for_is_no_clean_audit(spark: SparkSession) -> None:
    """If one record had been removed from the control topic, every audit of the topic once reported `Verified`."""
    front: list[Row] = [(0, at, 0, level(2)) for at in range(2)]
    in_time: list[Row] = [(0, 1, 10_001, release(("f", 0, 1), 10_000))]
    window = Window(spark=spark, front=front[1:], ready=in_time, control_unknown="records of it are missing")
    assert judged(window).verdict == "Verified"

    early = replace(window, front=front, ready=[(0, 0, 3_001, release(("f", 0, 0), 3_000)), *in_time])
    result = judged(early)
    assert (result.verdict, result.offenders) == ("Unknown", {"perhaps_unasked": ["f:0:0 r:0:0"]})
    assert "It is unknown whether anyone had asked for that time: records of it are missing" in result.message


@pytest.mark.slow
def test_a_record_that_waits_in_the_delays_topic_for_another_time_is_not_overdue(spark: SparkSession) -> None:
    window = Window(
        spark=spark,
        front=[(0, 0, 0, level(2))],
        delays=[(1, 0, 1, hop(("f", 0, 0), 10_000)), (2, 0, 10_000, hop(("d", 1, 0), 70_000, root=("f", 0, 0)))],
        control=[(b"f:0:0:id", control_value("deliver-at", 70_000), 100)],
        promise=replace(PROMISE, overdue_before_ms=AT_MS + 60_000),
    )
    bounds = replace(BOUNDS, delays_committed=(100, 100, 0))
    assert flaws(replace(window, bounds=bounds)) == {}


@pytest.mark.parametrize("unknown", [None, "records of it are missing"])
def test_a_request_for_a_time_before_the_record_came_in_excuses_no_release(
    spark: SparkSession, unknown: str | None
) -> None:
    """No worker moves such a record, because it is another attempt. The release of the first record once counted as late."""
    asked_ms = (1_000, 5_001)
    window = Window(
        spark=spark,
        front=[(0, at, 5_000, level(2)) for at in range(2)],
        ready=[(0, at, 5_001, release(("f", 0, at), ms)) for at, ms in enumerate(asked_ms)],
        control=[(b"f:0:%d:id" % at, control_value("deliver-at", ms), 100) for at, ms in enumerate(asked_ms)],
        control_unknown=unknown,
    )
    assert flaws(window) == {"early": ["f:0:0"]}


LATER = [
    (b"f:0:0:id", control_value("deliver-at", 3_000), 3_002),
    (b"f:0:1:id", control_value("too-far", 3_000), 100),
    (b"f:0:2:id", control_value("no-ladder", 3_000), 100),
    (b"f:0:3:id", control_value("no-room", 3_000), 100),
    (b"f:0:4:id", control_value("deliver-at", 3_000), 3_001),
]
"""A request that came after the release, three that were refused, and one that came just before the release."""


@pytest.mark.parametrize(("unknown", "flaw"), [(None, "early"), ("records of it are missing", "perhaps_unasked")])
def test_a_request_that_came_after_the_release_or_was_refused_excuses_no_release(
    spark: SparkSession, unknown: str | None, flaw: str
) -> None:
    """If requests are missing, there may have been the same request before."""
    window = Window(
        spark=spark,
        front=[(0, at, 0, level(2)) for at in range(len(LATER))],
        ready=[(0, at, 3_001, release(("f", 0, at), 3_000)) for at in range(len(LATER))],
        control=LATER,
        control_unknown=unknown,
    )
    assert flaws(window) == {flaw: ["f:0:0", "f:0:1", "f:0:2", "f:0:3"]}


def test_times_of_brokers_whose_clocks_may_differ_by_five_milliseconds_are_compared_with_this_tolerance(
    spark: SparkSession,
) -> None:
    """The clock of the broker that has a request may be ahead of the clock of the broker that has its outcome, or of the record's."""
    window = Window(
        spark=spark,
        promise=replace(PROMISE, skew_ms=5),
        front=[(0, at, 5_000 if at in (2, 3) else 0, level(2)) for at in range(6)],
        ready=[
            (0, 0, 3_001, release(("f", 0, 0), 3_000)),
            (0, 1, 3_001, release(("f", 0, 1), 3_000)),
            (0, 2, 5_001, release(("f", 0, 2), 4_995)),
            (0, 3, 5_001, release(("f", 0, 3), 4_994)),
        ],
        dead=[(0, at, 3_001, dead_letter(("f", 0, 4 + at), reason=DeadLetterReason.CANCELLED)) for at in range(2)],
        control=[
            (b"f:0:0:id", control_value("deliver-at", 3_000), 3_006),
            (b"f:0:1:id", control_value("deliver-at", 3_000), 3_007),
            (b"f:0:2:id", control_value("deliver-at", 4_995), 100),
            (b"f:0:3:id", control_value("deliver-at", 4_994), 100),
            (b"f:0:4:id", b"cancel", 3_006),
            (b"f:0:5:id", b"cancel", 3_007),
        ],
    )
    assert flaws(window) == {"early": ["f:0:1", "f:0:3"], "wrongly_dead_lettered": ["f:0:5"]}
