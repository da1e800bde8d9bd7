"""Doubles of a takeover that may also be of a consumer group whose offsets somebody has set back."""

from dataclasses import replace

import pytest
from delayed_topics_audit.findings import WorkerEvents
from delayed_topics_audit_testing.doubles import FRONT_0, beyond, repeated, taken
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    Row,
    Window,
    dead_letter,
    front_of,
    hop,
    judged,
    level,
    release,
)
from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, READY
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_of_what_had_come_out_long_before_a_takeover_nobody_knows_why_it_was_repeated(spark: SparkSession) -> None:
    """Either Kafka refused every commit for minutes, or someone reset the offsets of the group."""
    assert beyond(repeated(spark, spread_ms=35_000, wrote_ms=160_000, after_ms=80_000), taken(75_000, FRONT_0)) == (
        3,
        0,
        3,
    )


def test_what_came_out_at_noon_and_again_after_a_takeover_in_the_evening_is_not_excused_as_a_crash(
    spark: SparkSession,
) -> None:
    """A worker commits what it has copied within a second, also if nothing follows. So either Kafka took no commit in all that time, or no
    worker ran, or someone set the offsets of the group back. The audit once reported `Verified`."""
    evening = repeated(spark, spread_ms=10, wrote_ms=900_000, after_ms=900_000)
    assert beyond(evening, taken(880_000, FRONT_0)) == (3, 0, 3)
    assert beyond(evening, taken(400_000, FRONT_0)) == (3, 0, 0), "Kubernetes restarts a worker within six minutes"
    assert beyond(evening, taken(400_000, FRONT_0), taken(880_000, FRONT_0)) == (3, 0, 0), "the first takeover counts"
    said = judged(evening, WorkerEvents(takeovers=[taken(880_000, FRONT_0)], known=[(0, AT_MS + 1_000_000)]))
    assert (said.verdict, "set the offsets of the consumer group back" in said.message) == ("Unknown", True)
    late_ms = ((879_000, 5), (900_000, 900_000))
    copies = [(0, at, ms, release(("f", 0, 0), 0, wrote_ms=wrote_ms)) for at, (ms, wrote_ms) in enumerate(late_ms)]
    assert beyond(Window(spark=spark, front=front_of(1), ready=copies), taken(880_000, FRONT_0)) == (1, 0, 0), (
        "Kafka took the first copy only just before the crash, so it could not be committed"
    )


def test_what_hopped_at_noon_and_again_after_a_takeover_in_the_evening_is_not_excused_as_a_crash(
    spark: SparkSession,
) -> None:
    root, due_ms = ("f", 0, 0), 1_000_000
    delays = [(1, at, ms, hop(root, due_ms)) for at, ms in enumerate((1, 900_000))]
    ready = [(0, at, due_ms, release(("d", 1, at), due_ms, root=root)) for at in range(2)]
    window = Window(spark=spark, front=[(0, 0, 0, level(3))], delays=delays, ready=ready)
    assert beyond(window, taken(880_000, FRONT_0)) == (1, 0, 1)
    assert beyond(window, taken(300_000, FRONT_0)) == (1, 0, 0)


def test_of_what_had_hopped_for_more_than_a_minute_before_a_takeover_nobody_knows_why_it_was_repeated(
    spark: SparkSession,
) -> None:
    """Hops do not say when they were written. The audit once reported `Verified` although the offsets of the group had been reset."""
    roots, crash = [("f", 0, at) for at in range(3)], taken(99_000, FRONT_0)
    front: list[Row] = [(0, at, at * 40_000, level(3)) for at in range(3)]
    hops = [(1, at, at * 40_000 + 1, hop(root, 200_000)) for at, root in enumerate(roots)]
    ready = [(0, 9 + at, 200_000, release(("d", 1, at), 200_000, root=root)) for at, root in enumerate(roots)]
    window = Window(spark=spark, front=front, delays=hops, ready=ready)
    hopped = [(1, 3 + at, 100_000, hop(root, 200_000)) for at, root in enumerate(roots)]
    again = [(0, 12 + at, 200_000, release(("d", 1, 3 + at), 200_000, root=root)) for at, root in enumerate(roots)]
    assert beyond(replace(window, delays=[*hops, *hopped], ready=[*ready, *again]), crash) == (3, 0, 3)
    released = [(0, at, 100_000, release(root, 100_000)) for at, root in enumerate(roots)]
    assert beyond(replace(window, ready=[*ready, *released]), crash) == (3, 0, 3), "it was due when it was read again"


def test_what_was_settled_before_is_explained_by_a_takeover_shortly_before_it_came_again(spark: SparkSession) -> None:
    bounds = replace(BOUNDS, front_from=(3, 3), new_from={READY: (0, 0)})

    def again(wrote_ms: int) -> Window:
        ready = [(0, 6, 900_000, release(("f", 0, 1), 1, wrote_ms=wrote_ms))]
        return Window(spark=spark, front=front_of(3), ready=ready, bounds=bounds)

    assert beyond(again(879_000), taken(880_000, FRONT_0)) == (1, 0, 0)
    assert beyond(again(879_000), taken(10, FRONT_0)) == (1, 1, 0), "the group was reset long after the takeover"
    assert beyond(again(900_000), taken(880_000, FRONT_0)) == (1, 1, 0), "the group was reset while no worker ran"
    assert beyond(again(880_001), taken(880_000, FRONT_0)) == (1, 0, 1), "the group was reset, or a worker was frozen"


def test_of_what_was_settled_before_and_does_not_say_when_it_was_written_nobody_knows_who_repeated_it(
    spark: SparkSession,
) -> None:
    """The offsets of the group were reset between two links of a chain. The audit once reported `Verified`."""
    bounds = replace(BOUNDS, front_from=(3, 3), new_from={DELAYS: (0, 0, 0), DEAD_LETTER: (0,)})
    settled = Window(spark=spark, front=front_of(3), bounds=bounds)
    hopped = replace(settled, delays=[(1, 6, 900_000, hop(("f", 0, 1), 1_000_000))])
    dead_lettered = replace(settled, dead=[(0, 6, 900_000, dead_letter(("f", 0, 1)))])
    for window in (hopped, dead_lettered):
        for crash_ms in (880_000, 899_000):
            assert beyond(window, taken(crash_ms, FRONT_0)) == (1, 0, 1), crash_ms
        assert beyond(window, taken(901_000, FRONT_0)) == (1, 0, 0), "the takeover came just after the copy"
        assert beyond(window, taken(10, FRONT_0)) == (1, 1, 0), "the takeover was long before"
