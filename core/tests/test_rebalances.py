"""Each rebalance of a delayed topic follows from the events of its workers, once, with the partitions that moved and the reason."""

from random import Random
from typing import Any

import pytest
from delayed_topics_core.events import MAX_PLACES, Event
from delayed_topics_core.rebalances import OPEN, RESTARTED_MS, Rebalances
from delayed_topics_core_testing.event_log import SESSION_MS, EventLog, of_two_workers, rebalances, shown


@pytest.fixture
def log() -> EventLog:
    return of_two_workers()


FIRST = (1, "WorkerJoined", 4, 2, 0)


def test_the_first_worker_of_each_partition_is_a_rebalance(log: EventLog) -> None:
    assert shown(log) == [FIRST]


def test_a_worker_that_joins_takes_partitions_and_who_gives_none_is_unaffected(log: EventLog) -> None:
    log.starts("c")
    log.revoked(a=(0, 1), b=(2, 3))  # the protocol `classic` revokes all partitions and assigns them again
    log.assigned(2, a=(0,), b=(2, 3), c=(1,))
    assert shown(log) == [FIRST, (2, "WorkerJoined", 1, 2, 1)]


def test_generations_in_which_everybody_keeps_what_he_had_are_no_rebalances(log: EventLog) -> None:
    for generation in (2, 3, 7):
        log.revoked(a=(0, 1), b=(2, 3))
        log.assigned(generation, a=(0, 1), b=(2, 3))
    assert shown(log) == [FIRST]


def test_a_worker_that_is_restarted_within_its_session_makes_none(log: EventLog) -> None:
    log.revoked(a=(0, 1))
    log.stops("a")
    log.starts("a")
    log.assigned(1, a=(0, 1))
    assert shown(log) == [FIRST]


@pytest.mark.parametrize("killed", [False, True])
def test_a_worker_that_is_restarted_hours_later_leaves_the_last_rebalance_as_it_was(
    log: EventLog, killed: bool
) -> None:
    """In the same generation, the worker is assigned the partitions that it had."""
    log.assigned(2, a=(0, 1, 4), b=(2, 3, 5))
    for member in "ab":
        log.add("rebalance", member, change="caught-up", generation=2, delayed=3)
    before = rebalances(log.events)
    assert [(r.reason, r.delayed_records) for r in before[1:]] == [("TopicChanged", 6)]
    log.now_ms += 6 * 3_600_000
    if not killed:
        log.revoked(a=(0, 1, 4))
        log.stops("a")
    log.starts("a")
    log.assigned(2, a=(0, 1, 4))
    log.add("rebalance", "a", change="caught-up", generation=2, delayed=700)
    assert rebalances(log.events) == before
    log.revoked(a=(0, 1, 4))
    log.assigned(3, b=(0, 1, 2, 3, 4, 5))
    assert rebalances(log.events)[:2] == before


def test_a_worker_that_is_killed_before_it_serves_and_restarted_ends_the_rebalance_when_it_serves(
    log: EventLog,
) -> None:
    log.starts("c")
    log.revoked(a=(0, 1), b=(2, 3))
    log.given(2, {"c": (1, 3)}, served=False)
    log.starts("c")
    log.assigned(2, c=(1, 3))
    last = rebalances(log.events)[-1]
    assert (last.reason, last.ended_at_ms) == ("WorkerJoined", log.now_ms)


def test_rebalances_that_follow_each_other_at_once_are_several(log: EventLog) -> None:
    log.starts("c", "d")
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0,), b=(2, 3), c=(1,))
    log.revoked(a=(0,), b=(2, 3), c=(1,))
    log.assigned(3, a=(0,), b=(2,), c=(1,), d=(3,))
    assert shown(log)[1:] == [(2, "WorkerJoined", 1, 2, 1), (3, "WorkerJoined", 1, 2, 2)]


def test_a_worker_that_left_gave_up_its_partitions_and_the_wait_for_its_session_counts(log: EventLog) -> None:
    log.revoked(b=(2, 3))
    gave_up_ms = log.now_ms
    log.stops("b")
    log.now_ms += SESSION_MS
    log.assigned(2, a=(0, 1, 2, 3))
    assert shown(log)[1:] == [(2, "WorkerLeft", 2, 2, 0)]
    last = rebalances(log.events)[-1]
    assert (last.started_at_ms, last.ended_at_ms) == (gave_up_ms, log.now_ms)


def test_a_worker_that_left_and_came_back_has_joined(log: EventLog) -> None:
    log.revoked(b=(2, 3))
    log.stops("b")
    log.assigned(2, a=(0, 1, 2, 3))
    log.starts("b")
    log.revoked(a=(0, 1, 2, 3))
    log.assigned(3, a=(0, 1), b=(2, 3))
    log.stops("a")
    assert [reason for _, reason, *_ in shown(log)] == ["WorkerJoined", "WorkerLeft", "WorkerJoined"]


def test_a_worker_that_was_lost_told_nothing_and_its_session_counts(log: EventLog) -> None:
    log.now_ms += 60_000
    log.assigned(2, a=(0, 1, 2, 3))
    log.taken("lost", {"b": (2, 3)})  # the worker was only paused, and learns of the loss now
    assert shown(log)[1:] == [(2, "WorkerLost", 2, 2, 0)]
    last = rebalances(log.events)[-1]
    assert last.ended_at_ms is not None
    assert last.ended_at_ms - last.started_at_ms == SESSION_MS + 1_000


def test_a_worker_that_gave_up_and_got_back_its_partitions_can_be_lost_later(log: EventLog) -> None:
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0, 1), b=(2, 3))
    log.assigned(3, a=(0, 1, 2, 3))
    assert shown(log)[1:] == [(3, "WorkerLost", 2, 2, 0)]


def test_partitions_that_are_new_come_of_the_topic(log: EventLog) -> None:
    log.assigned(2, a=(0, 1, 4), b=(2, 3, 5))
    assert shown(log)[1:] == [(2, "TopicChanged", 2, 2, 0)]


def test_partitions_that_move_because_others_are_new_come_of_the_topic_too(log: EventLog) -> None:
    """The assignor Range gives each worker a range of consecutive partitions, all of about the same size."""
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0, 1, 2), b=(3, 4))
    assert shown(log)[1:] == [(2, "TopicChanged", 2, 2, 0)]


def test_partitions_that_are_new_when_a_worker_joins_come_of_the_worker(log: EventLog) -> None:
    log.starts("c")
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0, 1), b=(2, 3), c=(4,))
    assert shown(log)[1:] == [(2, "WorkerJoined", 1, 1, 2)]


def test_partitions_that_move_though_nobody_came_or_left_and_none_is_new_moved_for_an_unknown_reason(
    log: EventLog,
) -> None:
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0, 1, 2), b=(3,))
    assert shown(log)[1:] == [(2, "Unknown", 1, 2, 0)]


def test_what_a_worker_gave_up_may_be_told_after_another_got_it(log: EventLog) -> None:
    log.starts("c")
    log.assigned(2, c=(1,))
    log.revoked(a=(0, 1))
    log.assigned(2, a=(0,))
    assert shown(log)[1:] == [(2, "WorkerJoined", 1, 2, 1)]


def test_a_partition_that_is_given_up_in_one_generation_and_received_in_the_next_moved_once(log: EventLog) -> None:
    log.starts("c")
    log.revoked(b=(3,))  # a cooperative rebalance revokes only this partition
    log.assigned(3, c=(3,))
    assert shown(log)[1:] == [(3, "WorkerJoined", 1, 2, 1)]


def test_a_rebalance_has_no_end_before_all_that_moved_is_served(log: EventLog) -> None:
    log.starts("c")
    log.given(2, {"c": (1, 3)}, served=False)
    assert rebalances(log.events)[-1].ended_at_ms is None
    log.add("rebalance", "c", change="assigned", generation=2, places=["orders[1,3]"])
    assert rebalances(log.events)[-1].ended_at_ms == log.now_ms


def test_a_rebalance_that_another_overtakes_has_an_end_though_nobody_served_it(log: EventLog) -> None:
    log.starts("c", "d")
    log.given(2, {"c": (1,)}, served=False)
    log.assigned(3, d=(1,))
    overtaken = rebalances(log.events)[1]
    assert overtaken.ended_at_ms is not None


def test_records_that_were_delayed_are_known_when_all_who_were_assigned_something_have_caught_up(log: EventLog) -> None:
    log.starts("c")
    log.assigned(2, a=(0, 1), b=(2,), c=(3,))
    log.add("rebalance", "a", change="caught-up", generation=2, delayed=20)
    log.add("rebalance", "c", change="caught-up", generation=2, delayed=300)
    assert rebalances(log.events)[-1].delayed_records is None
    log.add("rebalance", "stranger", change="caught-up", generation=2, delayed=9000)
    log.add("rebalance", "b", change="caught-up", generation=3, delayed=4000)
    log.add("rebalance", "b", change="caught-up", generation=2, delayed="many")
    assert rebalances(log.events)[-1].delayed_records is None
    log.add("rebalance", "b", change="caught-up", generation=2, delayed=1)
    assert rebalances(log.events)[-1].delayed_records == 321


def test_what_workers_have_is_told_again_and_is_no_rebalance() -> None:
    """Kafka has removed the events that first reported the assignment."""
    log = EventLog()
    for member, numbers in (("a", "0-1"), ("b", "2-3")):
        places = [f"orders[{numbers}]"]
        log.add("assignment", member, group="g", generation=5, places=places, repeated=True)
    log.starts("c")
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(6, a=(0,), b=(2, 3), c=(1,))
    assert shown(log) == [(6, "WorkerJoined", 1, 2, 1)]


def test_the_oldest_generation_that_kafka_still_has_moved_no_more_than_it_did() -> None:
    """Kafka has removed all earlier events: which workers had the partitions, and that a and b had started."""
    log = EventLog()
    log.starts("c")
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(6, a=(0,), b=(2, 3), c=(1,))
    log.revoked(a=(0,), b=(2, 3), c=(1,))
    log.assigned(7, a=(0, 1), b=(2,), c=(3,))
    assert [(generation, moved) for generation, _, moved, *_ in shown(log)] == [(6, 1), (7, 2)]


def test_a_group_that_was_made_again_counts_from_the_beginning(log: EventLog) -> None:
    log.assigned(40, a=(0, 1, 2), b=(3,))
    log.now_ms += RESTARTED_MS
    log.assigned(1, a=(0, 1), b=(2, 3))
    log.given(1, {"a": (0, 1, 2), "b": (3,)}, group="another")
    assert [(generation, moved) for generation, _, moved, *_ in shown(log)] == [(1, 4), (40, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize("seed", range(50))
def test_the_order_in_which_workers_of_neighbouring_generations_write_changes_nothing(seed: int) -> None:
    random = Random(seed)
    owners: dict[int, str] = {}
    expected: list[tuple[int, int]] = []
    batches: list[list[Event]] = []
    for generation in range(1, 12):
        log = EventLog()
        if generation == 1:
            log.starts(*"abcd")
        now = {number: random.choice("abcd") for number in range(12)} if random.random() < 0.7 or not owners else owners
        log.given(generation, {m: [n for n, o in now.items() if o == m] for m in sorted(set(now.values()))})
        batches.append(log.events)
        if moved := sum(owners.get(number) != owner for number, owner in now.items()):
            expected.append((generation, moved))
        owners = now
    events = [
        event
        for first in range(0, len(batches), OPEN)
        for event in shuffled(random, [e for batch in batches[first : first + OPEN] for e in batch])
    ]
    assert [(r.generation, r.moved_partitions) for r in rebalances(events)] == expected


def shuffled(random: Random, events: list[Event]) -> list[Event]:
    """Shuffles the events, but keeps those of each worker in their order."""
    by_member: dict[str, list[Event]] = {}
    for event in events:
        by_member.setdefault(event.member, []).append(event)
    mixed: list[Event] = []
    while queues := [queue for queue in by_member.values() if queue]:
        mixed.append(random.choice(queues).pop(0))
    return mixed


@pytest.mark.parametrize(
    "detail",
    [
        {},
        {"generation": "2", "places": ["orders[0]"]},
        {"generation": 2, "places": "orders[0]"},
        {"generation": 2, "places": [None, 7, "orders", "orders[x]", "orders[0-999999999]"]},
        {"generation": True, "places": ["orders[0]"]},
        {"generation": 2**31, "places": ["orders[0]"]},
        {"generation": 10**30, "places": ["orders[0]"]},
    ],
)
def test_what_can_not_be_read_is_no_rebalance(log: EventLog, detail: dict[str, Any]) -> None:
    log.add("assignment", "c", group="g", **detail)
    assert shown(log) == [FIRST]


def test_a_short_event_that_names_billions_of_partitions_is_read_no_further_than_a_topic_may_have() -> None:
    log = EventLog()
    log.starts("a")
    log.add("assignment", "a", group="g", generation=1, places=["orders[0-99999]"] * 50_000)
    assert [moved for _, _, moved, *_ in shown(log)] == [MAX_PLACES]


@pytest.mark.parametrize(("one", "other"), [(2**53, 0), (10**30, 0), (2**53 - 1, 1)])
def test_counts_that_no_status_can_have_are_not_known(log: EventLog, one: int, other: int) -> None:
    """The API server refused a status with such a count, and with it the rest of the status."""
    log.taken("revoked", {"a": (0, 1)}, in_flight=one)
    log.taken("revoked", {"b": (2, 3)}, in_flight=other)
    log.assigned(2, a=(2, 3), b=(0, 1))
    log.add("rebalance", "a", change="caught-up", generation=2, delayed=one)
    log.add("rebalance", "b", change="caught-up", generation=2, delayed=other)
    latest = rebalances(log.events)[-1]
    assert (latest.generation, latest.in_flight_records, latest.delayed_records) == (2, None, None)


@pytest.mark.parametrize("session_timeout_ms", [-1, 1 << 64, "10"])
def test_a_session_that_cannot_be_is_none(session_timeout_ms: object) -> None:
    log = EventLog()
    log.starts("a")
    log.add("assignment", "a", group="g", generation=1, places=["orders[0]"], session_timeout_ms=session_timeout_ms)
    log.add("assignment", "b", group="g", generation=2, places=["orders[0]"], session_timeout_ms=session_timeout_ms)
    found = Rebalances(keep=10)
    for event in log.events:
        found.add(event)
    assert all(0 <= one.started_at_ms <= log.now_ms for one in found.latest)
    assert len(found.latest) == 2


def test_of_any_number_of_partitions_and_members_a_bounded_number_is_remembered() -> None:
    found = Rebalances(keep=10)
    log = EventLog()
    for number in range(1, 40):
        log.starts(f"m{number}")
        log.given(number, {f"m{number}": range(number * 3_000, number * 3_000 + 3_000)})
        log.taken("revoked", {f"m{number}": range(number * 3_000, number * 3_000 + 3_000)})
    for event in log.events:
        found.add(event)
    assert found.bytes < 200 * MAX_PLACES * (OPEN + 3)
    assert len(found.latest) == 10
