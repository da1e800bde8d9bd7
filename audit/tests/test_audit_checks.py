"""Fates, flaws and accounts on small tables: one test for each thing that can happen to a record."""

from dataclasses import replace

import pytest
from delayed_topics_audit.promise import Declared
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    DELAYS_MS,
    PROMISE,
    Row,
    Window,
    accounts,
    dead_letter,
    fates,
    flaws,
    front_of,
    hop,
    judged,
    level,
    named,
    ready_of,
    release,
    retry,
    totals,
)
from delayed_topics_core.audit_table import FATES
from delayed_topics_core.headers import Header
from delayed_topics_core_testing.attempts import ATTEMPTS
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def ten(spark: SparkSession, *released: int) -> Window:
    """Ten records. Offset 1 hopped, offset 2 is a dead letter, and the committed offset is 9."""
    front = front_of(10)
    front[1], front[2] = (0, 1, 1, level(2)), (0, 2, 2, retry(6))
    delays = [(1, 0, 2, hop(("f", 0, 1), 10_001))]
    dead = [(0, 0, 2, dead_letter(("f", 0, 2), attempt=6))]
    window = Window(spark=spark, front=front, delays=delays, ready=ready_of(*released), dead=dead)
    return window.committed(9, 0)


def test_every_record_has_one_fate(spark: SparkSession) -> None:
    window = ten(spark, 0, 3, 4, 5, 6, 7, 8)
    assert fates(window) == {
        **{f"f:0:{offset}": "released" for offset in (0, 3, 4, 5, 6, 7, 8)},
        "f:0:1": "hopped",
        "f:0:2": "dead_lettered",
        "f:0:9": "pending",
        "d:1:0": "pending",
    }
    assert flaws(window) == {}


def test_what_came_in_after_the_window_belongs_to_another(spark: SparkSession) -> None:
    """Offset 1 hopped within the window, and its copy lies above the end of the window."""
    window = replace(ten(spark, 0, 3, 4, 5, 6), bounds=replace(BOUNDS, front_to=(5, 5), delays_to=(0, 0, 0)))
    window = window.committed(5, 0)
    kinds = {1: "hopped", 2: "dead_lettered"}
    assert fates(window) == {f"f:0:{offset}": kinds.get(offset, "released") for offset in range(5)}
    assert flaws(window) == {}
    assert "This account does not say what became of them" in judged(window).message


def test_a_sample_follows_its_records_through_all_topics_and_finds_their_losses(spark: SparkSession) -> None:
    def sampled(window: Window) -> Window:
        return replace(window, bounds=replace(window.bounds, one_in=2))

    whole, sample = fates(ten(spark, 0, 3, 4, 5, 6, 7, 8)), fates(sampled(ten(spark, 0, 3, 4, 5, 6, 7, 8)))
    assert {} != sample.items() < whole.items()
    assert ("f:0:1" in sample) == ("d:1:0" in sample)
    assert flaws(sampled(ten(spark, 0, 3, 4, 5, 6, 7, 8))) == {}
    assert flaws(sampled(ten(spark)))["lost"] == sorted(name for name, fate in sample.items() if fate == "released")


def test_a_committed_record_without_outcome_is_lost(spark: SparkSession) -> None:
    assert flaws(ten(spark, 0, 3, 5, 6, 7, 8)) == {"lost": ["f:0:4"]}


def test_a_record_above_the_commit_is_pending_even_if_it_came_out_already(spark: SparkSession) -> None:
    assert fates(ten(spark, 0, 3, 4, 5, 6, 7, 8, 9))["f:0:9"] == "pending"


@pytest.mark.slow
def test_what_is_due_and_was_not_released_is_overdue_and_what_is_only_not_committed_is_not(spark: SparkSession) -> None:
    """Offset 3 is released and 4 has hopped, but the record that waits at 2 holds the commit back. The hop is due in ten seconds."""
    delays = [(1, 0, 5, hop(("f", 0, 4), 10_004))]
    window = Window(spark=spark, front=front_of(7), delays=delays, ready=ready_of(0, 1, 3)).committed(2, 0)
    assert "overdue" not in flaws(window)
    overdue = replace(window, promise=replace(PROMISE, overdue_before_ms=AT_MS + 6))
    assert flaws(overdue) == {"overdue": ["f:0:2", "f:0:5"]}
    assert totals(overdue)["overdue_since_ms"] == AT_MS + 2
    assert flaws(replace(window, promise=replace(PROMISE, overdue_before_ms=AT_MS + 10_005)))["overdue"][-1] == "d:1:0"


def test_an_outcome_without_its_record_is_forged_and_lets_the_law_fail(spark: SparkSession) -> None:
    window = ten(spark, 0, 3, 4, 5, 6, 7, 8, 10, 12).committed(11, 0)
    assert flaws(window) == {"lost": ["f:0:9"], "forged": ["f:0:10"]}
    front = accounts(window)["f:0"]
    assert (front["produced"], front["released"]) == (10, 8)


def test_a_record_that_hopped_and_came_out_directly_is_counted_once(spark: SparkSession) -> None:
    assert fates(ten(spark, 0, 1, 3, 4, 5, 6, 7, 8))["f:0:1"] == "released"


def test_accounts_are_per_partition_and_every_term_is_counted(spark: SparkSession) -> None:
    zero = dict.fromkeys(FATES, 0)
    assert accounts(ten(spark, 0, 3, 5, 6, 7, 8)) == {
        "f:0": {**zero, "produced": 10, "released": 6, "dead_lettered": 1, "hopped": 1, "pending": 1, "lost": 1},
        "d:1": {**zero, "produced": 1, "pending": 1},
    }


def test_a_retry_written_directly_into_delays_is_no_hop(spark: SparkSession) -> None:
    """The retry has the headers of the release from which it was made."""
    copied = release(("f", 0, 1))
    window = Window(spark=spark, front=front_of(8), delays=[(0, 0, 0, copied), (0, 1, 0, hop(("f", 0, 7)))]).committed(
        8, 0
    )
    assert [name for name, fate in fates(window).items() if fate == "hopped"] == ["f:0:7"]


def test_a_consumers_rejection_is_no_outcome_of_a_waiting_record(spark: SparkSession) -> None:
    rejected = [(name, b"r:0:5" if name == "dt-origin" else value) for name, value in release(("f", 0, 1))]
    window = Window(spark=spark, front=front_of(2), dead=[(0, 0, 0, rejected), (0, 1, 0, [("dt-reason", b"Broken")])])
    assert set(fates(window).values()) == {"lost"}
    assert totals(window)["rejected"] == 1


def test_an_origin_that_does_not_parse_is_a_foreign_record(spark: SparkSession) -> None:
    origins = [b"f:0", b"f:0:-1", b"x:0:1", b"f:\xff:1", b"f:0:99999999999999999999", b"r:0:1", None]
    good = release(("f", 0, 1))
    bad = [[(name, value if name == "dt-origin" else kept) for name, kept in good] for value in origins]
    window = Window(
        spark=spark, front=front_of(2), ready=[(0, at, 1, headers) for at, headers in enumerate([good, *bad])]
    )
    assert totals(window)["foreign"] == len(origins)


def test_two_releases_that_name_each_others_origin_are_forged(spark: SparkSession) -> None:
    delays = [(1, at, 0, hop(("f", 0, at), 10_000)) for at in range(2)]
    ready = [(0, at, 10_000, release(("d", 1, 1 - at), 10_000, root=("f", 0, at))) for at in range(2)]
    window = Window(spark=spark, front=[(0, at, 0, level(2)) for at in range(2)], delays=delays, ready=ready).committed(
        2, 2
    )
    assert flaws(window) == {"forged": ["d:1:0", "d:1:1"]}


def test_early_and_late_are_by_the_brokers_time_to_the_millisecond(spark: SparkSession) -> None:
    front: list[Row] = [(0, at, 0, []) for at in range(4)]
    ready = [(0, at, ms, release(("f", 0, at))) for at, ms in enumerate((0, 1000, 1001, -1))]
    window = Window(spark=spark, front=front, ready=ready)
    found = totals(window)
    assert (found["early"], found["late"], found["max_late_ms"]) == (1, 1, 1001)
    assert named(window, "early") == ["r:0:3 -1 ms"]
    assert named(window, "late") == ["r:0:2 1001 ms"]


def test_a_release_before_the_due_time_is_early_however_much_the_brokers_clocks_may_differ(spark: SparkSession) -> None:
    """Workers wait for that difference. The audit once allowed for it again, and missed what was early by less."""
    promise = replace(PROMISE, skew_ms=60_000)
    window = Window(spark=spark, front=front_of(1), ready=[(0, 0, -1, release(("f", 0, 0)))], promise=promise)
    assert flaws(window) == {"early": ["f:0:0"]}


def test_a_due_time_that_is_not_the_roots_time_and_its_delay_convinces_nobody(spark: SparkSession) -> None:
    """The level or the attempt chooses the delay. Each release claims to be on time; the second time it comes a millisecond early."""
    cases: list[tuple[list[Header], int, int]] = [
        ([], 0, 0),
        (retry(1), 1, 10_000),
        (retry(5), 5, 60_000),
        (level(2), 0, 10_000),
        ([*level(9), *retry(1)], 1, 60_000),
    ]
    front = [(0, at, 0, headers) for at, (headers, _, _) in enumerate(cases)]

    def released(sooner_ms: int) -> list[Row]:
        return [
            (0, at, delay_ms - sooner_ms, release(("f", 0, at), delay_ms - sooner_ms, attempt=attempt))
            for at, (_, attempt, delay_ms) in enumerate(cases)
        ]

    assert flaws(Window(spark=spark, front=front, ready=released(0))) == {}
    assert totals(Window(spark=spark, front=front, ready=released(1)))["early"] == len(cases)


HOUR_MS = 3_600_000


def test_where_no_list_was_noted_any_delay_there_was_will_do_and_no_other(spark: SparkSession) -> None:
    front: list[Row] = [(0, 0, 0, []), (0, 1, 0, [])]
    ready = [(0, 0, 10_000, release(("f", 0, 0), 10_000)), (0, 1, 9_000, release(("f", 0, 1), 9_000))]
    later = [Declared(list_ms=DELAYS_MS, retry_cap=5, from_ms=AT_MS + HOUR_MS, until_ms=None)]
    window = Window(spark=spark, front=front, ready=ready, promise=replace(PROMISE, lists=later))
    assert named(window, "early") == ["r:0:1 -1000 ms"]


EDITED = replace(
    PROMISE,
    lists=(
        Declared(list_ms=DELAYS_MS, retry_cap=5, from_ms=0, until_ms=AT_MS),
        Declared(list_ms=(0, 60_000), retry_cap=2, from_ms=AT_MS, until_ms=None),
    ),
)


def test_long_after_an_edit_a_record_waits_for_what_its_attempt_has_then(spark: SparkSession) -> None:
    """A record is early if it waited for another delay of the list than its own, even if its release claims that it was due."""
    cases = [(-HOUR_MS, 10_000), (HOUR_MS, 10_000), (HOUR_MS, 60_000), (1_000, 10_000), (1_000, 9_000)]
    front = [(0, at, came_ms, retry(1)) for at, (came_ms, _) in enumerate(cases)]
    ready = [
        (0, at, came_ms + waited_ms, release(("f", 0, at), came_ms + waited_ms, attempt=1))
        for at, (came_ms, waited_ms) in enumerate(cases)
    ]
    window = Window(spark=spark, front=front, ready=ready, promise=EDITED)
    assert flaws(window) == {"early": ["f:0:1", "f:0:4"]}


def test_long_after_the_cap_was_lowered_the_former_one_excuses_nobody(spark: SparkSession) -> None:
    front = [(0, at, came_ms, retry(3)) for at, came_ms in enumerate((-HOUR_MS, HOUR_MS))]
    ready = [
        (0, at, came_ms + 60_000, release(("f", 0, at), came_ms + 60_000, attempt=3)) for _, at, came_ms, _ in front
    ]
    window = Window(spark=spark, front=front, ready=ready, promise=EDITED)
    assert flaws(window) == {"over_cap": ["f:0:1"]}
    forgotten = replace(EDITED, lists=EDITED.lists[1:])
    assert flaws(replace(window, promise=forgotten)) == {"over_cap": ["f:0:1"]}, "only the first lists are not known"


def test_a_lowered_cap_does_not_hold_for_a_record_of_which_nobody_knows_when_it_came(spark: SparkSession) -> None:
    """Its root was removed, or does not have the broker's time. The audit once reported `Violated`."""
    root, bounds = ("f", 0, 77), replace(BOUNDS, front_from=(78, 78))
    hopped = [(2, 0, -HOUR_MS, hop(root, HOUR_MS, attempt=3))]
    ready = [(0, 0, HOUR_MS, release(("d", 2, 0), HOUR_MS, root=root, attempt=3))]
    removed = Window(spark=spark, delays=hopped, ready=ready, bounds=bounds, promise=EDITED)
    assert flaws(removed) == {}
    unstamped = Window(spark=spark, front=[(0, 0, HOUR_MS, retry(3))], front_stamped=False, promise=EDITED)
    assert flaws(replace(unstamped, ready=[(0, 0, HOUR_MS, release(("f", 0, 0), HOUR_MS, attempt=3))])) == {}


def test_before_the_first_list_that_was_noted_any_delay_there_was_will_do(spark: SparkSession) -> None:
    promise = replace(EDITED, lists=EDITED.lists[1:])
    ready = [(0, 0, 10_000 - HOUR_MS, release(("f", 0, 0), 10_000 - HOUR_MS, attempt=1))]
    window = Window(spark=spark, front=[(0, 0, -HOUR_MS, retry(1))], ready=ready, promise=promise)
    assert flaws(window) == {}


def test_a_direct_write_waits_for_the_delay_of_its_partition(spark: SparkSession) -> None:
    delays = [(1, at, 0, [("dt-generation", b"1")]) for at in range(2)]
    ready = [(0, 0, 10_000, release(("d", 1, 0), 10_000)), (0, 1, 9_999, release(("d", 1, 1)))]
    assert flaws(Window(spark=spark, delays=delays, ready=ready)) == {"early": ["d:1:1"]}


def test_where_the_root_is_not_seen_the_promised_time_counts(spark: SparkSession) -> None:
    delays = [(1, 0, 0, hop(("f", 0, 77), 5_000))]
    ready = [(0, 0, 4_999, release(("d", 1, 0), 5_000, root=("f", 0, 77)))]
    bounds = replace(BOUNDS, front_from=(78, 78))
    window = Window(spark=spark, delays=delays, ready=ready, bounds=bounds)
    assert flaws(window) == {"early": ["f:0:77"]}
    assert (totals(window)["ended"], totals(window)["unread_roots"]) == (1, 1)


def test_a_root_without_the_brokers_time_is_counted_as_not_read(spark: SparkSession) -> None:
    window = Window(spark=spark, front=front_of(2), ready=ready_of(0, 1), front_stamped=False)
    assert (totals(window)["ended"], totals(window)["unread_roots"]) == (2, 2)


def test_releases_without_the_brokers_time_are_told_and_not_judged(spark: SparkSession) -> None:
    window = Window(spark=spark, front=front_of(1), ready=[(0, 0, -9, release(("f", 0, 0)))], ready_stamped=False)
    found = totals(window)
    assert (found["untimed"], found["early"]) == (1, 0)


def test_the_same_root_and_attempt_twice_is_one_double(spark: SparkSession) -> None:
    """One record hopped twice, one was released three times, and one was dead-lettered twice."""
    front = [(0, offset, 0, level(2) if offset == 1 else []) for offset in range(4)]
    delays = [(1, at, 1, hop(("f", 0, 1), 10_000)) for at in (4, 5)]
    ready = [
        (0, 2, 2, release(("f", 0, 2))),
        (0, 3, 3, release(("f", 0, 2))),
        (0, 4, 4, release(("f", 0, 2))),
        (0, 5, 10_000, release(("d", 1, 4), 10_000, root=("f", 0, 1))),
        (0, 6, 10_001, release(("d", 1, 5), 10_000, root=("f", 0, 1))),
        (0, 7, 10_002, release(("f", 0, 0))),
    ]
    dead = [(0, at, 9, dead_letter(("f", 0, 3))) for at in (0, 7)]
    window = Window(spark=spark, front=front, delays=delays, ready=ready, dead=dead)
    assert named(window, "doubled") == [
        "f:0:1 r:0:5 r:0:6",
        "f:0:2 r:0:2 r:0:4",
        "f:0:3 dead-letter:0:0 dead-letter:0:7",
    ]
    assert totals(window)["extra"] == 4


def test_a_double_whose_first_copy_was_in_the_window_before_is_counted_in_this_one(spark: SparkSession) -> None:
    delays = [(1, at, 1, hop(("f", 0, 0), 10_000)) for at in (4, 5)]
    ready = [(0, at, 10_000 + at, release(("d", 1, 4 + at), 10_000, root=("f", 0, 0))) for at in range(2)]
    window = Window(spark=spark, front=[(0, 0, 0, level(2))], delays=delays, ready=ready)
    bounds = replace(window.bounds, front_from=(1, 1), delays_from=(0, 5, 0))
    following = replace(window, bounds=bounds)
    assert totals(following)["extra"] == 1
    assert fates(following) == {"d:1:5": "released"}
    before = replace(window, bounds=replace(window.bounds, delays_committed=(0, 5, 0)))
    assert totals(before)["extra"] == 0


def test_a_ready_partition_that_is_not_the_roots(spark: SparkSession) -> None:
    ready = [(1, 0, 0, release(("f", 0, 0))), (0, 1, 1, release(("f", 0, 1)))]
    window = Window(spark=spark, front=front_of(2), ready=ready)
    assert flaws(window) == {"wrong_partition": ["f:0:0"]}


def test_the_ready_partition_before_the_topic_grew_is_right_too(spark: SparkSession) -> None:
    ready = [(p, p, p, release(("f", 1, p))) for p in range(2)]
    window = Window(spark=spark, front=[(1, at, at, []) for at in range(2)], ready=ready)
    assert flaws(window) == {"wrong_partition": ["f:1:0"]}
    assert flaws(replace(window, bounds=replace(BOUNDS, ready_partitions=(1, 2)))) == {}


def test_an_attempt_that_is_not_the_records(spark: SparkSession) -> None:
    """If the attempt of a copy is not above that of the release from which it was made, it counts as one above that."""
    copied = [*release(("f", 1, 9), attempt=1)]
    front = [(0, 0, 0, retry(1)), (0, 1, 1, copied), (0, 2, 2, retry(1))]
    ready = [
        (0, 0, 10_000, release(("f", 0, 0), 10_000, attempt=1)),
        (0, 1, 60_001, release(("f", 0, 1), 60_001, attempt=2)),
        (0, 2, 60_002, release(("f", 0, 2), 10_002, attempt=2)),
    ]
    assert flaws(Window(spark=spark, front=front, ready=ready))["wrong_attempt"] == ["f:0:2"]


def test_an_attempt_is_what_the_worker_takes_it_for(spark: SparkSession) -> None:
    """A `dt-released` header that is not in the format of the workers does not raise the attempt."""
    front: list[Row] = [(0, at, 0, headers) for at, (headers, _) in enumerate(ATTEMPTS)]
    rows = Window(spark=spark, front=front).places.orderBy("place").select("attempt").collect()
    assert [row.attempt for row in rows] == [min(attempt, 1_000_000) for _, attempt in ATTEMPTS]


def test_a_release_beyond_the_cap(spark: SparkSession) -> None:
    ready = [(0, at, 60_000, release(("f", 0, at), 60_000, attempt=5 + at)) for at in range(2)]
    window = Window(spark=spark, front=[(0, at, 0, retry(5 + at)) for at in range(2)], ready=ready)
    assert flaws(window)["over_cap"] == ["f:0:1"]


def test_an_attempt_and_a_level_as_large_as_they_get_are_just_records(spark: SparkSession) -> None:
    largest: list[list[Header]] = [retry(2**31 - 1), level(2**63 - 1), [("dt-released", b"2147483647:1")]]
    front: list[Row] = [(0, at, 0, headers) for at, headers in enumerate(largest)]
    dead = [(0, at, 1, dead_letter(("f", 0, at), attempt=2**31 - 1)) for at in (0, 2)]
    ready = [(0, 0, 60_000, release(("f", 0, 1), 60_000))]
    window = Window(spark=spark, front=front, ready=ready, dead=dead)
    assert flaws(window) == {}
    assert fates(window) == {"f:0:0": "dead_lettered", "f:0:1": "released", "f:0:2": "dead_lettered"}
