"""Doubles that an event explains are within the promise, and no others."""

from dataclasses import replace

import pytest
from delayed_topics_audit.place import DELAYS, FRONT, PARTITION_BITS, READY
from delayed_topics_audit.repeats import TAKEOVERS, Takeover, repeats, rows, takeovers
from delayed_topics_audit.session import table
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    Row,
    Window,
    dead_letter,
    front_of,
    hop,
    level,
    ready_of,
    release,
)
from delayed_topics_core.events import Event
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FRONT_0, DELAYS_1 = FRONT << PARTITION_BITS, (DELAYS << PARTITION_BITS) + 1


def taken(ms: int, *lines: int) -> Takeover:
    return Takeover(lines=frozenset(lines) or None, from_ms=AT_MS + ms, to_ms=AT_MS + ms)


def beyond(
    window: Window, *told: Takeover, known_from_ms: int = 0, exactly_once_from_ms: int | None = None
) -> tuple[int, int, int]:
    """Copies beyond the first, how many of them are beyond the promise, and of how many nobody knows."""
    known = table(window.spark, rows(told), TAKEOVERS)
    found = repeats(
        window.places, known, known_from_ms=AT_MS + known_from_ms, exactly_once_from_ms=exactly_once_from_ms
    ).collect()
    return sum(r.extra for r in found), sum(r.beyond for r in found), sum(r.unexplained for r in found)


def repeated(spark: SparkSession, *, spread_ms: int = 40, wrote_ms: int = 50_000, after_ms: int = 50_000) -> Window:
    """Three records that came out when they came in, and again later."""
    front: list[Row] = [(0, at, at * spread_ms, []) for at in range(3)]
    ready = [(0, at, at * spread_ms, release(("f", 0, at), at * spread_ms)) for at in range(3)]
    again = [
        (0, 3 + at, at * spread_ms + after_ms, release(("f", 0, at), at * spread_ms, wrote_ms=wrote_ms))
        for at in range(3)
    ]
    return Window(spark=spark, front=front, ready=[*ready, *again])


@pytest.mark.slow
def test_what_a_crash_repeats_is_within_the_promise_and_a_copy_by_hand_is_not(spark: SparkSession) -> None:
    crash = taken(30_000, FRONT_0)
    assert beyond(repeated(spark), crash) == (3, 0, 0)
    assert beyond(repeated(spark), taken(30_000)) == (3, 0, 0), "an older worker told no partitions"
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), crash) == (3, 3, 0), (
        "the same to the last byte: by no worker"
    )
    assert beyond(repeated(spark, spread_ms=900), crash) == (3, 3, 0), (
        "released over 1.8 s: a worker would have committed the first"
    )


@pytest.mark.slow
def test_a_double_that_no_event_explains_is_beyond_the_promise(spark: SparkSession) -> None:
    assert beyond(repeated(spark)) == (3, 3, 0)
    assert beyond(repeated(spark), taken(30_000, FRONT_0 + 1, DELAYS_1)) == (3, 3, 0), (
        "other partitions were taken over"
    )
    assert beyond(repeated(spark), taken(-30_000, FRONT_0)) == (3, 3, 0), "before the records came out at all"
    assert beyond(repeated(spark), taken(90_000, FRONT_0)) == (3, 3, 0), "after they came out twice"


@pytest.mark.slow
def test_of_two_crashes_each_has_its_own_doubles(spark: SparkSession) -> None:
    """Three seconds apart, what the first repeats came out before the second, or after it: together they are more than a second's."""
    front: list[Row] = [(0, at, 0, []) for at in range(3)]
    out_ms, again_ms = [0, 0, 3_000], [1_100, 4_200, 4_200]
    ready = [(0, at, ms + at, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(out_ms)]
    again = [(0, 3 + at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(again_ms)]
    window = Window(spark=spark, front=front, ready=[*ready, *again])
    assert beyond(window, taken(1_000, FRONT_0), taken(4_000, FRONT_0)) == (3, 0, 0)
    assert beyond(window, taken(4_000, FRONT_0)) == (3, 2, 0), (
        "one crash does not repeat what came out three seconds apart"
    )


@pytest.mark.slow
def test_what_a_frozen_worker_still_sends_is_counted_by_itself(spark: SparkSession) -> None:
    """It froze at 0; at 12 s the next owner has both, released the first anew and the second for the first time, and at 14 s the
    frozen one goes on and sends the second. The takeover is told when the first of the new owner's releases are out."""
    out_ms, again_ms = [0, 12_004], [12_003, 14_000]
    ready = [(0, at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(out_ms)]
    again = [(0, 2 + at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(again_ms)]
    window = Window(spark=spark, front=[(0, 0, 0, []), (0, 1, 0, [])], ready=[*ready, *again])
    took = replace(taken(12_010, FRONT_0), from_ms=AT_MS + 12_000)
    assert beyond(window, took) == (2, 0, 0)


@pytest.mark.slow
def test_what_a_worker_sent_before_it_was_cut_off_may_be_appended_a_minute_later(spark: SparkSession) -> None:
    out_ms, again_ms = [5, 60_000], [61_500, 61_500]
    ready = [(0, at, ms, release(("f", 0, at), 0, wrote_ms=4)) for at, ms in enumerate(out_ms)]
    again = [(0, 2 + at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(again_ms)]
    window = Window(spark=spark, front=[(0, 0, 0, []), (0, 1, 0, [])], ready=[*ready, *again])
    assert beyond(window, taken(61_000, FRONT_0)) == (2, 0, 0)


@pytest.mark.slow
def test_two_owners_that_double_everything_slowly_are_found(spark: SparkSession) -> None:
    """Each double is alone within its second, and a takeover was once: as an episode of its own each would be forgiven."""
    slowly = repeated(spark, spread_ms=20_000, after_ms=40)
    assert beyond(slowly, taken(20_000, FRONT_0)) == (3, 2, 0)


@pytest.mark.slow
def test_the_sum_of_what_one_takeover_repeats_fits_the_promise(spark: SparkSession) -> None:
    assert beyond(repeated(spark, spread_ms=2_000), taken(30_000, FRONT_0)) == (3, 3, 0)


@pytest.mark.slow
def test_with_exactly_once_one_double_is_one_too_many(spark: SparkSession) -> None:
    crash = taken(30_000, FRONT_0)
    assert beyond(repeated(spark), crash, exactly_once_from_ms=AT_MS) == (3, 3, 0)
    assert beyond(repeated(spark), crash, exactly_once_from_ms=AT_MS + 1_000) == (3, 0, 0), "not yet guaranteed"


@pytest.mark.slow
def test_doubles_of_a_time_of_which_there_are_no_events_are_neither_excused_nor_blamed(spark: SparkSession) -> None:
    assert beyond(repeated(spark), known_from_ms=90_000) == (3, 0, 3)
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), known_from_ms=90_000) == (3, 3, 0), "by no worker anyway"


@pytest.mark.slow
def test_what_hopped_before_a_crash_and_after_it_may_come_out_twice_in_the_same_millisecond(
    spark: SparkSession,
) -> None:
    delays = [(partition, 4, 1, hop(("f", 0, 0), 10_000)) for partition in (0, 1)]
    ready = [(0, p, 10_000, release(("d", p, 4), 10_000, root=("f", 0, 0))) for p in (0, 1)]
    window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=delays, ready=ready)
    assert beyond(window, taken(1, FRONT_0)) == (1, 0, 0)
    assert beyond(window) == (1, 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("crash_ms", "found"), [(5_000, 0), (-70_000, 1)])
def test_a_dead_letter_twice_needs_a_reason_too(spark: SparkSession, crash_ms: int, found: int) -> None:
    dead = [(0, at, 9 + at * 9_000, dead_letter(("f", 0, 0))) for at in range(2)]
    assert beyond(Window(spark=spark, front=front_of(1), dead=dead), taken(crash_ms, FRONT_0)) == (1, found, 0)


@pytest.mark.slow
def test_a_crash_explains_that_what_was_released_before_it_was_cancelled_after_it(spark: SparkSession) -> None:
    """A dead letter is no copy of a release to the last byte."""
    dead = [(0, 0, 9_000, dead_letter(("f", 0, 0), reason=DeadLetterReason.CANCELLED))]
    window = Window(spark=spark, front=front_of(1), ready=ready_of(0), dead=dead, control=[(b"f:0:0:id", b"cancel", 1)])
    assert beyond(window, taken(5_000, FRONT_0)) == (1, 0, 0)
    assert beyond(window) == (1, 1, 0)


@pytest.mark.slow
def test_what_was_settled_before_is_explained_by_a_takeover_shortly_before_it_came_again(spark: SparkSession) -> None:
    bounds = replace(BOUNDS, front_from=(3, 3), new_from={READY: (0, 0)})

    def again(wrote_ms: int) -> Window:
        ready = [(0, 6, 900_000, release(("f", 0, 1), 1, wrote_ms=wrote_ms))]
        return Window(spark=spark, front=front_of(3), ready=ready, bounds=bounds)

    assert beyond(again(879_000), taken(880_000, FRONT_0)) == (1, 0, 0)
    assert beyond(again(879_000), taken(10, FRONT_0)) == (1, 1, 0), "a group that was reset long after"
    assert beyond(again(900_000), taken(880_000, FRONT_0)) == (1, 1, 0), "one that was reset while no worker ran"


@pytest.mark.parametrize("places", [["orders[x]"], ["orders[0-999999999]"], ["orders[131072]"], [7], "orders[0]"])
def test_what_an_event_says_that_cannot_be_is_a_takeover_of_nothing(places: object) -> None:
    """The audit ended in a traceback."""
    detail = {"places": places, "took_ms": 1 << 64}
    event = Event(kind="producers-replaced", topic="orders", member="a", at_ms=9, detail=detail)
    assert takeovers([event], "orders") == [Takeover(lines=frozenset(), from_ms=9, to_ms=9)]


def test_takeovers_are_read_from_the_events_with_their_partitions() -> None:
    def event(change: str, **detail: object) -> Event:
        return Event(kind="rebalance", topic="orders", member="a", at_ms=9_000, detail={"change": change, **detail})

    told = [
        event("assigned", took_ms=3_000, places=["orders[0]", "orders.delays[1]", "other[5]"]),
        Event(kind="producers-replaced", topic="orders", member="a", at_ms=9_000, detail={}),
        event("revoked", places=["orders[0]"]),
        Event(kind="worker-started", topic="orders", member="a", at_ms=1, detail={}),
        replace(event("lost"), topic="invoices"),
    ]
    assert takeovers(told, "orders") == [
        Takeover(lines=frozenset({FRONT_0, DELAYS_1}), from_ms=6_000, to_ms=9_000),
        Takeover(lines=None, from_ms=9_000, to_ms=9_000),
    ]
