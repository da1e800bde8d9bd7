"""What is said of a rebalance follows from when records came out."""

from delayed_topics_bench.rebalance import LATE_MS, Interruption, interruption, moved_since
from delayed_topics_worker_testing.generations import Generation

EVENT_MS = 1_000_000
INTERVAL_MS = 50


def steady(*, without: tuple[int, int] | None = None) -> list[int]:
    """Every 50 ms from 10 s before to 10 s after the event; what should come in the given time, after it, comes at its end."""
    begin, end = without or (0, 0)
    due = range(EVENT_MS - 10_000, EVENT_MS + 10_000, INTERVAL_MS)
    return [EVENT_MS + end if begin <= at - EVENT_MS < end else at for at in due]


def judged(appends_ms: dict[int, list[int]], *moved: int) -> Interruption:
    sent = {partition: steady() for partition in appends_ms}
    return interruption(appends_ms, sent, event_ms=EVENT_MS, moved=frozenset(moved), interval_ms=INTERVAL_MS)


def test_nothing_happened() -> None:
    found = judged({0: steady(), 1: steady()})
    assert (found.convergence_s, found.moved, found.undisturbed_pause_p99_ms, found.late) == (0, 0, 0, 0)
    assert found.moved_pause_ms is None, "no pause of nothing"


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


def given(number: int, at_ms: int, **owners: str) -> Generation:
    """`owners`: of partitions of the front topic, as `p3`."""
    return Generation(
        number=number, at_ms=at_ms, owners={("orders", int(name[1:])): owner for name, owner in owners.items()}
    )


def test_a_partition_that_had_another_owner_in_between_has_moved_though_it_came_back() -> None:
    before = given(4, EVENT_MS - 60_000, p0="w-0", p1="w-0", p2="w-1", p3="w-1")
    since = [
        given(5, EVENT_MS + 100, p0="w-0", p1="w-2", p2="w-1", p3="w-1"),
        given(6, EVENT_MS + 200, p0="w-0", p1="w-0", p2="w-1", p3="w-1"),
        given(7, EVENT_MS + 300, p3="w-0"),  # with the newer protocol, what one member got
    ]
    assert moved_since(before.owners, [before, *since], event_ms=EVENT_MS) == {("orders", 1), ("orders", 3)}


def test_what_moved_before_the_event_is_not_of_it() -> None:
    first, settled = given(1, EVENT_MS - 9_000, p0="w-0"), given(2, EVENT_MS - 5_000, p0="w-1")
    assert moved_since(settled.owners, [first, settled], event_ms=EVENT_MS) == set()


def test_partitions_that_are_new_have_moved() -> None:
    grown = given(5, EVENT_MS + 100, p0="w-0", p1="w-1")
    assert moved_since({("orders", 0): "w-0"}, [grown], event_ms=EVENT_MS) == {("orders", 1)}
