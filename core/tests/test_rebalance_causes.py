"""The cause of a rebalance, and the number of records that may come out twice because of it, as they follow from workers' events."""

from typing import Any

import pytest
from delayed_topics_core_testing.event_log import EventLog, of_two_workers, rebalances, shown


@pytest.fixture
def log() -> EventLog:
    return of_two_workers()


def rolled(log: EventLog, template: str | None) -> None:
    """Replaces b, and then a. Each is away for so long that the other gets its partitions."""
    for number, (gone, other) in enumerate((("b", "a"), ("a", "b"))):
        log.revoked(**{gone: (2, 3) if gone == "b" else (0, 1)})
        log.stops(gone)
        log.assigned(2 + 2 * number, **{other: (0, 1, 2, 3)})
        log.starts(gone, template=template)
        log.revoked(**{other: (0, 1, 2, 3)})
        log.assigned(3 + 2 * number, a=(0, 1), b=(2, 3))


@pytest.mark.parametrize(
    ("before", "after", "left", "joined"),
    [
        ("one", "two", "SpecChanged", "SpecChanged"),
        ("one", "one", "WorkerLeft", "WorkerJoined"),
        (None, None, "WorkerLeft", "WorkerJoined"),
        (None, "two", "SpecChanged", "SpecChanged"),  # replaces a version that does not report its template
    ],
)
def test_that_workers_left_and_came_back_as_pods_of_another_template_comes_of_the_spec(
    before: str | None, after: str | None, left: str, joined: str
) -> None:
    log = EventLog()
    log.starts("a", "b", template=before)
    log.assigned(1, a=(0, 1), b=(2, 3))
    rolled(log, after)
    assert [reason for _, reason, *_ in shown(log)] == ["WorkerJoined", left, joined, left, joined]


def test_the_template_is_also_known_from_what_workers_tell_again() -> None:
    """When an upgrade of the operator replaces the workers, Kafka may have removed the events of their start."""
    log = EventLog()
    for member, numbers in (("a", "0-1"), ("b", "2-3")):
        places = [f"orders[{numbers}]"]
        log.add("assignment", member, group="g", generation=1, places=places, repeated=True, template="one")
    rolled(log, "two")
    assert [reason for _, reason, *_ in shown(log)] == ["SpecChanged"] * 4


def test_until_one_that_left_is_back_nobody_knows_that_it_was_replaced(log: EventLog) -> None:
    log.revoked(b=(2, 3))
    log.stops("b")
    log.assigned(2, a=(0, 1, 2, 3))
    assert shown(log)[-1][1] == "WorkerLeft"
    log.starts("b", template="two")
    assert shown(log)[-1][1] == "SpecChanged"


def test_one_more_worker_while_others_are_replaced_has_joined(log: EventLog) -> None:
    log.starts("b", "c", template="two")
    log.revoked(a=(0, 1), b=(2, 3))
    log.assigned(2, a=(0,), b=(2, 3), c=(1,))
    assert shown(log)[-1][1] == "WorkerJoined"


def test_partitions_that_the_leader_assigns_anew_for_a_worker_of_another_template_come_of_the_spec(
    log: EventLog,
) -> None:
    """This is how it looks if a worker comes back with another assignor, and gets the partitions that it had."""
    log.revoked(b=(2, 3))
    log.stops("b")
    log.starts("b", template="two")
    log.revoked(a=(0, 1))
    log.assigned(2, a=(0, 2), b=(1, 3))
    assert shown(log)[-1][1] == "SpecChanged"
    log.revoked(a=(0, 2), b=(1, 3))
    log.assigned(3, a=(0, 1), b=(2, 3))
    assert shown(log)[-1][1] == "Unknown"


@pytest.mark.parametrize("template", [7, None, ["two"], "t" * 1_000])
def test_a_template_that_can_not_be_is_none(log: EventLog, template: object) -> None:
    log.revoked(b=(2, 3))
    log.stops("b")
    log.assigned(2, a=(0, 1, 2, 3))
    log.add("worker-started", "b", template=template)
    assert shown(log)[-1][1] == "WorkerLeft"


def in_flight(log: EventLog) -> list[int | None]:
    return [rebalance.in_flight_records for rebalance in rebalances(log.events)]


def test_what_was_in_flight_when_partitions_were_taken_away_is_told_by_those_who_had_them(log: EventLog) -> None:
    log.starts("c")
    log.taken("revoked", {"a": (0, 1)}, in_flight=7)
    log.taken("revoked", {"b": (2, 3)}, in_flight=0)
    log.assigned(2, a=(0,), b=(2, 3), c=(1,))
    assert in_flight(log) == [0, 7]
    log.taken("revoked", {"b": (2, 3)}, in_flight=5)
    log.assigned(3, b=(2,), c=(3,))
    assert in_flight(log) == [0, 7, 5]


def test_what_a_lost_worker_had_in_flight_is_known_once_it_is_back(log: EventLog) -> None:
    log.assigned(2, a=(0, 1, 2, 3))
    assert in_flight(log) == [0, None]
    started_at_ms = rebalances(log.events)[-1].started_at_ms
    log.taken("lost", {"b": (2, 3)}, in_flight=40)
    last = rebalances(log.events)[-1]
    assert (last.in_flight_records, last.reason, last.started_at_ms) == (40, "WorkerLost", started_at_ms)


@pytest.mark.parametrize("told_in_flight", [{}, {"in_flight": "many"}, {"in_flight": -1}, {"in_flight": True}])
def test_what_was_in_flight_is_unknown_if_a_worker_does_not_tell(log: EventLog, told_in_flight: dict[str, Any]) -> None:
    log.taken("revoked", {"b": (2, 3)}, **told_in_flight)
    log.assigned(2, a=(0, 1, 2, 3))
    assert in_flight(log) == [0, None]
