"""What is said of a rebalance follows from when records came out."""

from delayed_topics_bench.rebalance import LATE_MS, Interruption, interruption

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
