"""Only doubles that an event of a worker explains are within promise 3."""

from dataclasses import replace

import pytest
from delayed_topics_audit.findings import WorkerEvents
from delayed_topics_audit.repeats import reported_spans
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
    ready_of,
    release,
)
from delayed_topics_core.audit_table import DELAYS, PARTITION_BITS
from delayed_topics_core.events import Event
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELAYS_1 = (DELAYS << PARTITION_BITS) + 1


def repeated_by_two(spark: SparkSession) -> Window:
    """Two records that came out at 0 s come out again at 1.1 s, and two that came out at 2 s come out again at 4.2 s."""
    front: list[Row] = [(0, at, 0, []) for at in range(4)]
    out_ms, again_ms = [0, 0, 2_000, 2_000], [1_100, 1_100, 4_200, 4_200]
    ready = [(0, at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(out_ms)]
    again = [(0, 4 + at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(again_ms)]
    return Window(spark=spark, front=front, ready=[*ready, *again])


@pytest.mark.slow
def test_what_a_crash_repeats_is_within_the_promise_and_a_copy_by_hand_is_not(spark: SparkSession) -> None:
    crash = taken(30_000, FRONT_0)
    assert beyond(repeated(spark), crash) == (3, 0, 0)
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), crash) == (3, 3, 0), (
        "a copy that is identical to the last byte was not written by a worker"
    )
    assert beyond(repeated(spark, spread_ms=10_000), crash) == (3, 0, 0), "Kafka may take that long to accept a commit"


@pytest.mark.slow
def test_a_double_that_no_event_explains_is_beyond_the_promise(spark: SparkSession) -> None:
    assert beyond(repeated(spark)) == (3, 3, 0)
    assert beyond(repeated(spark), taken(30_000, FRONT_0 + 1, DELAYS_1)) == (3, 3, 0), (
        "the takeover was of other partitions"
    )
    assert beyond(repeated(spark), taken(-30_000, FRONT_0)) == (3, 3, 0), "before the first copies"
    assert beyond(repeated(spark), taken(420_000, FRONT_0)) == (3, 3, 0), "long after the second copies"


@pytest.mark.slow
def test_of_two_crashes_each_has_its_own_doubles(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that the first crash repeats come out again before the second crash, or after it."""
    front: list[Row] = [(0, at, 0, []) for at in range(3)]
    out_ms, again_ms = [0, 0, 3_000], [1_100, 4_200, 4_200]
    ready = [(0, at, ms + at, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(out_ms)]
    again = [(0, 3 + at, ms, release(("f", 0, at), 0, wrote_ms=ms)) for at, ms in enumerate(again_ms)]
    window = Window(spark=spark, front=front, ready=[*ready, *again])
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 2)
    assert beyond(window, taken(1_000, FRONT_0), taken(4_000, FRONT_0)) == (3, 0, 0)
    assert beyond(window, taken(4_000, FRONT_0)) == (3, 0, 3), "the first crash may not have been reported"
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 1)
    assert beyond(window, taken(4_000, FRONT_0)) == (3, 3, 0), "more than two crashes can repeat"


@pytest.mark.slow
def test_two_takeovers_within_seconds_do_not_add_up_to_more_than_one_may_repeat(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit once reported `Violated`."""
    window = repeated_by_two(spark)
    second = taken(4_000, FRONT_0)
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 2)
    slow = replace(taken(3_500, FRONT_0), from_ms=AT_MS + 1_000)
    assert beyond(window, slow, second) == (4, 0, 0), "the takeover lasted until 3.5 s"
    late = taken(3_500, FRONT_0)
    assert beyond(window, late, second) == (4, 0, 4), "reported late, so it is unknown which takeover repeated what"
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 1)
    assert beyond(window, late, second) == (4, 4, 0), "more than both and a third, unreported takeover can repeat"


@pytest.mark.slow
def test_what_a_frozen_worker_still_sends_is_within_the_promise(spark: SparkSession) -> None:
    """The worker freezes at 0 s. The next owner takes over at 12 s, and releases the first record again and the second for the first time.
    At 14 s, the frozen worker continues and sends the second record. The new owner reports its takeover after these releases."""
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
    """A takeover happens once, so it excuses only doubles that came out near its time."""
    slowly = repeated(spark, count=4, spread_ms=20_000, after_ms=40)
    assert beyond(slowly, taken(60_000, FRONT_0)) == (4, 3, 0)
    twice_a_second = repeated(spark, count=60, spread_ms=500, after_ms=40)
    assert beyond(twice_a_second, taken(15_000, FRONT_0)) == (60, 39, 0)


@pytest.mark.slow
def test_what_a_worker_repeats_that_is_killed_before_it_tells_of_its_takeover_is_not_blamed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker reports a takeover when the session of the killed worker has expired, or when Kubernetes has restarted it. The audit
    once reported `Violated`."""
    window = repeated(spark, after_ms=1_000)
    assert beyond(window, taken(46_000, FRONT_0)) == (3, 0, 3)
    assert beyond(window, taken(46_000, FRONT_0 + 1)) == (3, 3, 0), "the takeover was of another partition"
    assert beyond(window, taken(310_000, FRONT_0)) == (3, 0, 3), "a single worker restarts after a back-off of 5 min"
    assert beyond(window, taken(390_000, FRONT_0)) == (3, 3, 0), "Kubernetes restarts a worker within five minutes"
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), taken(60_000, FRONT_0)) == (3, 3, 0), "by no worker anyway"
    for_long = repeated(spark, spread_ms=10_000, after_ms=1_000)
    assert beyond(for_long, taken(60_000, FRONT_0)) == (3, 3, 0), "the worker would have reported the takeover by then"
    assert beyond(for_long, taken(60_000, FRONT_0), known_from_ms=60_000) == (3, 0, 3), "no events of that time"
    events = WorkerEvents(takeovers=[taken(46_000, FRONT_0)], known=[(0, AT_MS + 100_000)])
    said = judged(window, events)
    assert (said.verdict, "killed before it could tell" in said.message) == ("Unknown", True), said.message
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 2)
    assert beyond(window, taken(46_000, FRONT_0)) == (3, 3, 0), "more than one takeover can repeat"


@pytest.mark.slow
def test_what_came_again_just_before_the_events_were_read_may_be_of_a_takeover_that_is_told_later(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One audit once reported `Violated`, and an audit six minutes later `Unknown`."""
    window = repeated(spark, after_ms=1_000)
    assert beyond(window, read_ms=2_000) == beyond(window, taken(46_000, FRONT_0)) == (3, 0, 3)
    assert beyond(window, read_ms=362_000) == (3, 3, 0), "no worker reported a takeover in time"
    assert beyond(window, read_ms=2_000, exactly_once_from_ms=AT_MS) == (3, 3, 0)
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), read_ms=2_000) == (3, 3, 0), "no worker wrote these"
    for_long = repeated(spark, spread_ms=10_000, after_ms=1_000)
    assert beyond(for_long, read_ms=22_000) == (3, 3, 0), "the worker would have reported its takeover meanwhile"
    at_once = WorkerEvents(known=[(0, AT_MS + 100_000)], read_ms=AT_MS + 2_000)
    assert judged(window, at_once).unfinished, "the next link of a chain judges these records again"
    told = replace(at_once, takeovers=[taken(46_000, FRONT_0)])
    assert (judged(window, told).verdict, judged(window, told).unfinished) == ("Unknown", False)
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 2)
    assert beyond(window, read_ms=2_000) == (3, 3, 0), "more than one takeover can repeat"


@pytest.mark.slow
def test_a_takeover_may_be_told_later_although_the_clock_of_the_audit_is_minutes_ahead(spark: SparkSession) -> None:
    """A node whose clock was ahead once reported `Violated`."""
    ahead = WorkerEvents(known=[(0, AT_MS + 100_000)], read_ms=AT_MS + 500_000)
    result = judged(repeated(spark, after_ms=1_000), ahead)
    assert (result.verdict, result.unfinished) == ("Unknown", True)
    later = replace(ahead, newest_ms=AT_MS + 500_000)
    assert judged(repeated(spark, after_ms=1_000), later).verdict == "Violated", "the brokers' time says otherwise"
    much_later = replace(ahead, read_ms=AT_MS + 3_600_000)
    assert judged(repeated(spark, after_ms=1_000), much_later).verdict == "Violated", "no clock is as wrong"


@pytest.mark.slow
def test_a_takeover_of_which_nobody_told_just_after_another_has_doubles_of_its_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = repeated_by_two(spark)
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 2)
    assert beyond(window, taken(1_000, FRONT_0)) == (4, 0, 4)
    assert beyond(window, taken(4_000, FRONT_0)) == (4, 0, 4)


@pytest.mark.slow
def test_with_exactly_once_one_double_is_one_too_many(spark: SparkSession) -> None:
    crash = taken(30_000, FRONT_0)
    assert beyond(repeated(spark), crash, exactly_once_from_ms=AT_MS) == (3, 3, 0)
    assert beyond(repeated(spark), crash, exactly_once_from_ms=AT_MS + 1_000) == (3, 0, 0), "the guarantee began later"


@pytest.mark.slow
def test_a_sample_with_few_of_the_doubles_of_a_takeover_does_not_say_that_all_of_them_are_within_the_promise(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit of a sample once reported `Verified`, while one of all records reported `Violated`."""
    window, crash = repeated(spark, count=14), taken(30_000, FRONT_0)
    events = WorkerEvents(takeovers=[crash], known=[(0, AT_MS + 100_000)])
    sample = replace(window, bounds=replace(BOUNDS, one_in=2))
    assert judged(sample, events).verdict == "Verified", "fourteen doubles are few"
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 12)
    assert judged(window, events).verdict == "Violated"
    said = judged(sample, events)
    assert said.account is not None
    assert 0 < said.account.doubled <= 12, "otherwise this test proves nothing"
    assert (said.verdict, "of so many records of the sample" in said.message) == ("Unknown", True), said.message


@pytest.mark.slow
def test_doubles_of_a_time_of_which_there_are_no_events_are_neither_excused_nor_blamed(spark: SparkSession) -> None:
    assert beyond(repeated(spark), known_from_ms=90_000) == (3, 0, 3)
    assert beyond(repeated(spark, spread_ms=0, wrote_ms=0), known_from_ms=90_000) == (3, 3, 0), "no worker wrote these"
    assert beyond(repeated(spark), taken(30_000, FRONT_0), known_from_ms=90_000) == (3, 0, 0), "the event explains them"


@pytest.mark.slow
def test_that_the_workers_told_nothing_at_all_does_not_say_that_none_ended(spark: SparkSession) -> None:
    """Workers may lack the right to write events, or someone may have deleted the topic. The verdict was once `Violated`."""
    silent, unread = (judged(repeated(spark), WorkerEvents(unread=unread)) for unread in (False, True))
    assert (silent.verdict, unread.verdict) == ("Unknown", "Unknown")
    assert (silent.unfinished, unread.unfinished) == (False, True), "what the audit may not read is still there later"
    started = Event(kind="worker-started", topic="orders", member="a", at_ms=AT_MS - 1, detail={})
    events = WorkerEvents(known=reported_spans([started], "orders"))
    assert judged(repeated(spark), events).verdict == "Violated"


@pytest.mark.slow
def test_what_hopped_before_a_crash_and_after_it_may_come_out_twice_in_the_same_millisecond(
    spark: SparkSession,
) -> None:
    delays = [(partition, 4, 1, hop(("f", 0, 0), 10_000)) for partition in (0, 1)]
    ready = [(0, p, 10_000, release(("d", p, 4), 10_000, root=("f", 0, 0))) for p in (0, 1)]
    window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=delays, ready=ready)
    assert beyond(window, taken(1, FRONT_0)) == (1, 0, 0)
    assert beyond(window) == (1, 1, 0)


def hopped_twice(spark: SparkSession, *ways: tuple[tuple[str, int, int], int]) -> Window:
    """Front records that hop at 0 ms and, after a crash at 1 ms, again at 2 ms. All hops come out after 10 s. `ways`: the place of each
    record, and the delays partition of its hops."""
    hops = [(origin, lane, 4 + at) for at, (origin, lane) in enumerate(ways * 2)]
    delays = [(lane, at, 0 if at < 4 + len(ways) else 2, hop(origin, 10_000)) for origin, lane, at in hops]
    ready = [
        (0, nr, 10_000, release(("d", lane, at), 10_000, root=origin)) for nr, (origin, lane, at) in enumerate(hops)
    ]
    front = [(partition, offset, 0, level(2)) for (_, partition, offset), _ in ways]
    return Window(spark=spark, front=front, delays=delays, ready=ready)


@pytest.mark.slow
def test_of_what_a_crash_lets_hop_twice_each_partition_that_it_hops_from_may_repeat_as_many(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no difference where the records hop to. The audit once reported `Violated` for two partitions, and excused twice as many
    doubles of a single partition."""
    monkeypatch.setattr("delayed_topics_audit.repeats.MAX_REPEATED", 1)
    into_one = hopped_twice(spark, (("f", 0, 0), 1), (("f", 1, 0), 1))
    assert beyond(into_one, taken(1, FRONT_0, FRONT_0 + 1)) == (2, 0, 0)
    out_of_one = hopped_twice(spark, (("f", 0, 0), 1), (("f", 0, 1), 2))
    assert beyond(out_of_one, taken(1, FRONT_0)) == (2, 2, 0)
    assert beyond(out_of_one, taken(1, FRONT_0), taken(9_000, FRONT_0), taken(9_500, DELAYS_1)) == (2, 2, 0), (
        "takeovers while the hops waited did not repeat any hop"
    )


@pytest.mark.slow
def test_a_takeover_of_another_partition_is_no_reason_to_hop_twice(spark: SparkSession) -> None:
    """The audit once reported `Verified` if any partition had been taken over while the record waited."""
    window = hopped_twice(spark, (("f", 0, 0), 1))
    assert beyond(window, taken(1, FRONT_0)) == (1, 0, 0)
    assert beyond(window, taken(1, FRONT_0 + 1)) == (1, 1, 0)
    assert beyond(window, taken(1, DELAYS_1)) == (1, 1, 0)


@pytest.mark.slow
def test_what_had_hopped_twice_before_exactly_once_was_guaranteed_is_not_blamed_when_it_comes_out(
    spark: SparkSession,
) -> None:
    """A crash had repeated the hop under the former guarantee. When the copies came out, the audit once reported `Violated`."""
    window, crash = hopped_twice(spark, (("f", 0, 0), 1)), taken(1, FRONT_0)
    assert beyond(window, crash, exactly_once_from_ms=AT_MS + 5_000) == (1, 0, 0)
    assert beyond(window, crash, exactly_once_from_ms=AT_MS) == (1, 1, 0)


@pytest.mark.slow
def test_what_hopped_on_twice_is_counted_where_it_had_waited(spark: SparkSession) -> None:
    """The record hops twice from d:1:4 into d:2. A takeover of d:2, from where the copies come out, explains nothing."""
    delays = [
        (1, 4, 1, hop(("f", 0, 0), 10_000)),
        *((2, at, 5_000, hop(("d", 1, 4), 10_000, root=("f", 0, 0))) for at in (7, 8)),
    ]
    ready = [(0, at, 10_000, release(("d", 2, 7 + at), 10_000, root=("f", 0, 0), hops=2)) for at in range(2)]
    window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=delays, ready=ready)
    assert beyond(window, taken(5_000, DELAYS_1)) == (1, 0, 0)
    assert beyond(window, taken(5_000, DELAYS_1 + 1)) == (1, 1, 0)
    settled = replace(BOUNDS, front_from=(3, 3), delays_from=(0, 5, 0))
    assert beyond(replace(window, delays=delays[1:], bounds=settled), taken(5_000, DELAYS_1)) == (1, 0, 0), (
        "an earlier audit has accounted for the first hop"
    )


@pytest.mark.slow
def test_what_was_written_into_the_delays_topic_and_hopped_on_twice_needs_no_root_to_be_explained(
    spark: SparkSession,
) -> None:
    """Retention may have removed the root."""
    root = ("d", 0, 0)
    delays = [(1, 4 + at, 1 + at, hop(root, 10_000)) for at in range(2)]
    ready = [(0, at, 10_000, release(("d", 1, 4 + at), 10_000, root=root)) for at in range(2)]
    window = Window(spark=spark, delays=delays, ready=ready, bounds=replace(BOUNDS, delays_from=(1, 0, 0)))
    assert beyond(window, taken(1, DELAYS_1 - 1)) == (1, 0, 0)


@pytest.mark.slow
def test_what_came_out_late_and_had_hopped_before_a_crash_is_explained_by_it(spark: SparkSession) -> None:
    """The next worker released at once a record that the former worker had let hop."""
    ready = [(0, 0, 9_000, release(("f", 0, 0), 9_000)), (0, 1, 9_000, release(("d", 1, 4), 9_000, root=("f", 0, 0)))]
    window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=[(1, 4, 1, hop(("f", 0, 0), 9_000))], ready=ready)
    assert beyond(window, taken(5_000, FRONT_0)) == (1, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("crash_ms", "found"), [(5_000, 0), (-70_000, 1)])
def test_a_dead_letter_twice_needs_a_reason_too(spark: SparkSession, crash_ms: int, found: int) -> None:
    dead = [(0, at, 9 + at * 9_000, dead_letter(("f", 0, 0))) for at in range(2)]
    assert beyond(Window(spark=spark, front=front_of(1), dead=dead), taken(crash_ms, FRONT_0)) == (1, found, 0)


@pytest.mark.slow
def test_a_crash_explains_that_what_was_released_before_it_was_cancelled_after_it(spark: SparkSession) -> None:
    """A dead letter is never identical to a release."""
    dead = [(0, 0, 9_000, dead_letter(("f", 0, 0), reason=DeadLetterReason.CANCELLED))]
    window = Window(spark=spark, front=front_of(1), ready=ready_of(0), dead=dead, control=[(b"f:0:0:id", b"cancel", 1)])
    assert beyond(window, taken(5_000, FRONT_0)) == (1, 0, 0)
    assert beyond(window) == (1, 1, 0)
