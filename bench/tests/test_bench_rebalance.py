"""The figures of a rebalance follow from the times at which records came out."""

from delayed_topics_bench.interruption import LATE_MS, Interruption, interruption, moved_since, timeline
from delayed_topics_bench.rebalance_report import rebalances
from delayed_topics_bench.results import merged
from delayed_topics_worker_testing.generations import Generation

EVENT_MS = 1_000_000
INTERVAL_MS = 50


def steady(*, without: tuple[int, int] | None = None) -> list[int]:
    """Returns a time every 50 ms, from 10 s before to 10 s after the event.

    `without`: a period after the event, in ms; the records of this period come at its end.
    """
    begin, end = without or (0, 0)
    due = range(EVENT_MS - 10_000, EVENT_MS + 10_000, INTERVAL_MS)
    return [EVENT_MS + end if begin <= at - EVENT_MS < end else at for at in due]


def judged(appends_ms: dict[int, list[int]], *moved: int) -> Interruption:
    sent = {partition: steady() for partition in appends_ms}
    return interruption(appends_ms, sent, event_ms=EVENT_MS, moved=frozenset(moved), interval_ms=INTERVAL_MS)


def test_nothing_happened() -> None:
    found = judged({0: steady(), 1: steady()})
    assert (found.convergence_s, found.moved, found.undisturbed_pause_p99_ms, found.late) == (0, 0, 0, 0)
    assert found.moved_pause_ms is None, "no partition moved, so there is no pause"


def test_partitions_that_moved_are_told_from_those_that_stayed() -> None:
    appends = {
        0: steady(without=(500, 2500)),
        1: steady(without=(500, 1500)),
        2: steady(without=(500, 700)),
        3: steady(),
    }
    found = judged(appends, 0, 1)
    assert (found.moved, found.moved_pause_ms, found.moved_pause_most_ms) == (2, 1500, 2000)
    assert found.convergence_s == 2.5
    assert 190 < found.undisturbed_pause_p99_ms <= 200


def test_records_count_as_late_when_they_came_long_after_they_were_sent() -> None:
    found = judged({0: steady(without=(500, 1500))}, 0)
    assert found.late == (1000 - LATE_MS) / INTERVAL_MS


def test_what_was_before_the_event_does_not_count() -> None:
    before = steady()
    gap = [at for at in before if not EVENT_MS - 5000 < at < EVENT_MS - 1000]
    sent = {0: gap}
    found = interruption({0: gap}, sent, event_ms=EVENT_MS, moved=frozenset({0}), interval_ms=INTERVAL_MS)
    assert (found.convergence_s, found.moved_pause_ms, found.late) == (0, 0, 0)


def test_how_long_a_process_takes_to_start_is_told_from_how_long_its_partitions_wait_then() -> None:
    appends = {0: steady(without=(-40, 1500)), 1: steady(without=(500, 4000)), 2: steady()}
    sent = {partition: steady() for partition in appends}
    found = interruption(
        appends,
        sent,
        event_ms=EVENT_MS,
        moved=frozenset({0, 2}),
        interval_ms=INTERVAL_MS,
        own=frozenset({0, 2}),
        up_ms=EVENT_MS + 1200,
    )
    assert (found.process_up_s, found.served_after_up_s, found.convergence_s) == (1.2, 0.3, 4)


def test_a_pause_that_ended_before_the_process_was_up_was_not_for_want_of_it() -> None:
    before_and_after = [EVENT_MS + 1400 if 1200 <= at - EVENT_MS < 1400 else at for at in steady(without=(0, 900))]
    found = interruption(
        {0: before_and_after},
        {0: steady()},
        event_ms=EVENT_MS,
        moved=frozenset({0}),
        interval_ms=INTERVAL_MS,
        own=frozenset({0}),
        up_ms=EVENT_MS + 1000,
    )
    assert (found.convergence_s, found.process_up_s, found.served_after_up_s) == (0.9, 1, 0.4)


def test_there_is_no_such_figure_where_no_process_starts_or_it_has_no_partition_that_waits() -> None:
    steadily = {0: steady()}
    assert (judged(steadily).process_up_s, judged(steadily).served_after_up_s) == (None, None)
    found = interruption(
        steadily,
        steadily,
        event_ms=EVENT_MS,
        moved=frozenset(),
        interval_ms=INTERVAL_MS,
        own=frozenset({0}),
        up_ms=EVENT_MS,
    )
    assert (found.process_up_s, found.served_after_up_s) == (0, None)


def test_a_timeline_has_the_latest_record_of_each_tenth_of_a_second_moved_or_not() -> None:
    sent = {
        0: [EVENT_MS - 1001, EVENT_MS - 1000, EVENT_MS - 950, EVENT_MS + 50],
        1: [EVENT_MS - 990],
        2: [EVENT_MS - 980],
    }
    late = {0: [9, 4, 7, 2500], 1: [3], 2: [0]}
    appends = {p: [at + ms for at, ms in zip(sent[p], late[p], strict=True)] for p in sent}
    found = timeline(appends, sent, event_ms=EVENT_MS, moved=frozenset({0}))
    assert (found.begin_ms, found.bin_ms) == (-1000, 100)
    assert found.moved == [7, *[None] * 9, 2500]
    assert found.others == [3, *[None] * 10]


def test_a_record_that_comes_out_again_after_a_crash_is_as_late_as_it_was_the_first_time() -> None:
    sent = {0: [EVENT_MS - 50, EVENT_MS + 20, EVENT_MS - 50]}
    appends = {0: [EVENT_MS - 45, EVENT_MS + 10_000, EVENT_MS + 10_001]}
    found = timeline(appends, sent, event_ms=EVENT_MS, moved=frozenset({0}))
    assert found.moved == [*[None] * 9, 5, 9980]


def test_where_nothing_was_received_a_timeline_is_empty() -> None:
    found = timeline({0: []}, {0: []}, event_ms=EVENT_MS, moved=frozenset())
    assert (found.moved, found.others) == ([], [])


def given(number: int, at_ms: int, **owners: str) -> Generation:
    """`owners`: by partition of the front topic, such as `p3`."""
    return Generation(
        number=number, at_ms=at_ms, owners={("orders", int(name[1:])): owner for name, owner in owners.items()}
    )


def test_a_partition_that_had_another_owner_in_between_has_moved_though_it_came_back() -> None:
    before = given(4, EVENT_MS - 60_000, p0="w-0", p1="w-0", p2="w-1", p3="w-1")
    since = [
        given(5, EVENT_MS + 100, p0="w-0", p1="w-2", p2="w-1", p3="w-1"),
        given(6, EVENT_MS + 200, p0="w-0", p1="w-0", p2="w-1", p3="w-1"),
        given(
            7, EVENT_MS + 300, p3="w-0"
        ),  # with the protocol Consumer, a generation may have the new partitions of one member only
    ]
    assert moved_since(before.owners, [before, *since], event_ms=EVENT_MS) == {("orders", 1), ("orders", 3)}


def test_what_moved_before_the_event_is_not_of_it() -> None:
    first, settled = given(1, EVENT_MS - 9_000, p0="w-0"), given(2, EVENT_MS - 5_000, p0="w-1")
    assert moved_since(settled.owners, [first, settled], event_ms=EVENT_MS) == set()


def test_partitions_that_are_new_have_moved() -> None:
    grown = given(5, EVENT_MS + 100, p0="w-0", p1="w-1")
    assert moved_since({("orders", 0): "w-0"}, [grown], event_ms=EVENT_MS) == {("orders", 1)}


def test_the_table_has_a_column_of_each_thing_that_was_measured() -> None:
    old = {"convergence_s": 1.4, "moved": 6, "undisturbed_pause_p99_ms": 81, "floor_ms": 53, "late": 283}
    new = {**old, "process_up_s": 0.9, "served_after_up_s": 0.5}
    before = rebalances({"leave, 2 members": merged([old])})
    now = rebalances({"leave, 2 members": merged([old]), "restart, 2 members": merged([new])})
    assert before.columns[:3] == ["", "over after, s", "partitions moved"]
    assert now.columns[:4] == ["", "over after, s", "process up after, s", "its partitions after that, s"]
    assert [row[:4] for row in now.rows] == [
        ["leave, 2 members", "1.4", "-", "-"],
        ["restart, 2 members", "1.4", "0.9", "0.5"],
    ]
