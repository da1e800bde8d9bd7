"""Chains of audits: a record that an earlier link has settled stays settled."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from delayed_topics_audit_testing.rows import (
    BOUNDS,
    Row,
    Window,
    dead_letter,
    fates,
    flaws,
    front_of,
    hop,
    level,
    named,
    ready_of,
    release,
    totals,
)
from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, READY
from delayed_topics_core.headers import Header
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LINK = replace(
    BOUNDS,
    front_from=(3, 3),
    delays_from=(0, 0, 0),
    new_from={DELAYS: (0, 1, 0), READY: (3, 3), DEAD_LETTER: (1, 1)},
)
"""The previous audit settled three records of each front partition. It read one hop in delays partition 1, three releases in each
ready partition, and one dead letter in each dead-letter partition."""
LATER_MS = 60_000


def linked(spark: SparkSession, *, again: Sequence[Row]) -> Window:
    """Six records, of which the previous audit settled three. `again`: ready rows that were appended after that audit."""
    return Window(spark=spark, front=front_of(6), ready=[*ready_of(*range(6)), *again], bounds=LINK)


@pytest.mark.slow
def test_a_link_of_a_chain_that_saw_nothing_twice_is_clean(spark: SparkSession) -> None:
    window = linked(spark, again=[])
    assert (fates(window), flaws(window)) == (dict.fromkeys(("f:0:3", "f:0:4", "f:0:5"), "released"), {})


@pytest.mark.slow
def test_a_settled_record_that_is_released_again_is_a_double(spark: SparkSession) -> None:
    """The offsets of the group were reset, or a frozen worker came back. It makes no difference whether the first release is read."""
    again = [(0, 6, LATER_MS, release(("f", 0, 1), 1, wrote_ms=LATER_MS))]
    assert named(linked(spark, again=again), "doubled") == ["f:0:1 r:0:1 r:0:6"]
    unread = Window(spark=spark, front=front_of(6), ready=[*ready_of(*range(6))[3:], *again], bounds=LINK)
    assert flaws(unread) == {"doubled": ["f:0:1"]}
    assert totals(unread)["extra"] == 1


@pytest.mark.slow
def test_a_copy_that_came_again_is_told_by_the_link_that_it_came_after_and_by_no_other(spark: SparkSession) -> None:
    again = [(0, 6, LATER_MS, release(("f", 0, 1), 1, wrote_ms=LATER_MS))]
    following = replace(
        linked(spark, again=again), bounds=replace(LINK, front_from=(6, 6), new_from={**LINK.new_from, READY: (7, 3)})
    )
    assert flaws(following) == {}


@pytest.mark.slow
@pytest.mark.parametrize("headers", [[], release(("f", 7, 0))], ids=["foreign", "forged"])
def test_what_is_no_workers_is_told_by_the_first_link_that_reads_it_and_by_no_other(
    spark: SparkSession, headers: list[Header]
) -> None:
    """The next links read that time again, because older records still wait. One record that was written by hand once made a day of
    hourly links `Unknown`."""
    window = linked(spark, again=[(0, 6, LATER_MS, headers)])
    assert list(flaws(window)) == ["forged" if headers else "foreign"]
    ends = {**LINK.new_from, READY: (7, 3)}
    assert flaws(replace(window, bounds=replace(LINK, front_from=(6, 6), new_from=ends))) == {}


@pytest.mark.slow
def test_a_settled_record_that_becomes_a_dead_letter_or_hops_again_is_a_double(spark: SparkSession) -> None:
    front = front_of(6)
    front[1] = (0, 1, 1, level(2))
    hops = [hop(("f", 0, 1), 10_001), hop(("f", 0, 1), 10_001)]
    window = Window(
        spark=spark,
        front=front,
        delays=[(1, at, 2 + at, headers) for at, headers in enumerate(hops)],
        ready=ready_of(0, 2, 3, 4, 5)[2:],
        dead=[(0, 0, 2, dead_letter(("f", 0, 2))), (0, 1, LATER_MS, dead_letter(("f", 0, 2)))],
        bounds=replace(LINK, delays_committed=(0, 0, 0), new_from={**LINK.new_from, READY: (0, 0)}),
    )
    assert flaws(window)["doubled"] == ["f:0:1", "f:0:2"]
    out = [(0, 9 + at, 10_001 + at, release(("d", 1, at), 10_001, root=("f", 0, 1))) for at in range(2)]
    released = replace(window, ready=[*window.ready, *out], bounds=replace(window.bounds, delays_committed=(0, 2, 0)))
    assert totals(released)["extra"] == 2, "a repeated hop is one double, also after its release"


@pytest.mark.slow
def test_what_an_audit_before_had_not_settled_is_no_double_wherever_it_lies(spark: SparkSession) -> None:
    """Their releases lie below the ends of the previous audit, but were not committed at that time."""
    bounds = replace(LINK, new_from={**LINK.new_from, READY: (6, 6)})
    assert flaws(replace(linked(spark, again=[]), bounds=bounds)) == {}


@pytest.mark.slow
def test_an_offset_that_went_back_settles_nothing_anew(spark: SparkSession) -> None:
    """The group was reset to an offset below the window. The records of the window are pending, and a release below it is a double."""
    again = [(0, 6, LATER_MS, release(("f", 0, 2), 2, wrote_ms=LATER_MS))]
    window = linked(spark, again=again).committed(1)
    assert fates(window) == dict.fromkeys(("f:0:3", "f:0:4", "f:0:5"), "pending")
    assert flaws(window) == {"doubled": ["f:0:2"]}
