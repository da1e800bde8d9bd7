"""The events of workers report every rebalance, in agreement with the generations of the group that Kafka has recorded."""

import signal
from typing import Any

import pytest
from delayed_topics_core.events import Event
from delayed_topics_core.rebalances import Rebalance
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.events import EventFollower
from delayed_topics_worker import alarms, report
from delayed_topics_worker_testing.generations import (
    events_of,
    members_now,
    moves,
    owners_now,
    recorded_generations,
    reported_rebalances,
)
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import Launch
from delayed_topics_worker_testing.running import running_relay

pytestmark = pytest.mark.broker


@pytest.mark.slow
def test_every_rebalance_of_the_classic_protocol_is_told_once_with_what_moved(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1, 2), front_partitions=4, partitions=6)
    first, second = (harness.start(orders, member=f"orders-{n}") for n in range(2))
    harness.start(orders, member="orders-2")
    before = owners_now(orders)
    assert len(before) == 10
    assert second.terminate() == 0
    first.kill()
    wait_until(lambda: set(owners_now(orders).values()) == {"orders-2"}, what="one worker has all partitions")
    wait_until(
        lambda: reported_rebalances(orders)[-1].reason == "WorkerLost",
        what="a rebalance with the reason WorkerLost is reported",
    )
    wait_until(lambda: all(r.ended_at_ms for r in reported_rebalances(orders)), what="all rebalances have ended")

    found = reported_rebalances(orders)

    assert [(r.generation, r.moved_partitions) for r in found] == list(moves(recorded_generations(orders)))
    assert [r.reason for r in found[:3]] == ["WorkerJoined"] * 3
    left = len([owner for owner in before.values() if owner != "orders-2"])
    assert sum(r.moved_partitions for r in found[3:]) == left
    assert found[-1].reason == "WorkerLost"
    assert found[-1].ended_at_ms is not None
    assert 10_000 <= found[-1].ended_at_ms - found[-1].started_at_ms < 30_000, "it includes the rest of the session"
    assert [r.affected_workers + r.unaffected_workers for r in found[:3]] == [1, 2, 3]


@pytest.mark.slow
def test_with_the_consumer_protocol_each_partition_that_has_another_worker_is_told(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1, 2), front_partitions=4, partitions=6)
    harness.start(orders, member="orders-0", protocol="consumer")
    alone = owners_now(orders)
    second = harness.start(orders, member="orders-1", protocol="consumer")
    wait_until(lambda: owners_now(orders).keys() == alone.keys(), what="each partition has a worker again")
    shared = owners_now(orders)
    assert second.terminate() == 0
    wait_until(lambda: owners_now(orders) == alone, what="the first worker has all partitions again")
    moved = len([place for place in alone if alone[place] != shared[place]])
    assert moved

    wait_until(
        lambda: sum(r.moved_partitions for r in reported_rebalances(orders)) == len(alone) + 2 * moved,
        what="every move is reported",
    )

    found = reported_rebalances(orders)
    assert [(r.generation, r.moved_partitions) for r in found] == list(moves(recorded_generations(orders, "consumer")))
    assert [r.reason for r in found if r.moved_partitions] == sorted(r.reason for r in found)
    assert {r.reason for r in found} == {"WorkerJoined", "WorkerLeft"}


@pytest.mark.slow
def test_what_a_worker_has_is_told_again_before_kafka_removes_the_event(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "ASSIGNED_AGAIN_SECONDS", 1.0)
    orders = harness.declare((0, 1), front_partitions=1, partitions=2)
    repeated: list[Event] = []

    def is_repeated() -> bool:
        repeated.extend(event for event in follower.poll(1) if event.topic == orders.names.front)
        return len([event for event in repeated if event.detail.get("repeated")]) > 1

    with running_relay(orders), EventFollower(harness.connection) as follower:
        wait_until(is_repeated, what="the worker repeats its assignment")
    details = [event.detail for event in repeated if event.kind == "assignment"]
    assert {tuple(d["places"]) for d in details} == {(f"{orders.names.front}[0]", f"{orders.names.delays}[0-1]")}
    assert [d.get("repeated", False) for d in details][:2] == [False, True]


@pytest.mark.slow
def test_an_alarm_that_stands_is_told_again_before_kafka_removes_the_event(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that starts later reads the repeated event."""
    monkeypatch.setattr(alarms, "REPEAT_SECONDS", 1.0)
    monkeypatch.setattr(alarms, "LOST_REPEAT_SECONDS", 1.0)
    orders = harness.declare((0, 1), front_partitions=1, partitions=2)
    alarm_events: list[Event] = []

    def is_repeated() -> bool:
        alarm_events.extend(e for e in follower.poll(1) if e.topic == orders.names.front and e.kind == "alarm")
        return len(alarm_events) > 2

    with running_relay(orders), EventFollower(harness.connection) as follower:
        orders.produce(topic=orders.names.delays)
        orders.flush()
        wait_until(is_repeated, what="the worker repeats the alarm")
    details = [(e.detail["reason"], e.detail["raised"], e.detail.get("repeated", False)) for e in alarm_events]
    assert details[:3] == [("MisroutedRecords", True, repeated) for repeated in (False, True, True)]


@pytest.mark.slow
def test_records_that_were_due_while_nobody_served_them_are_counted_as_delayed_by_the_rebalance(
    harness: WorkerHarness,
) -> None:
    orders = harness.declare((3,), front_partitions=2, partitions=3)
    first = harness.start(orders, member="orders-0")
    wait_until(
        lambda: reported_rebalances(orders)[-1].delayed_records == 0, what="the worker reports that no record was due"
    )
    for number in range(300):
        orders.produce(b"%d" % number, partition=number % 2)
    orders.flush()
    committed = [(orders.names.front, 0), (orders.names.front, 1)]
    wait_until(
        lambda: sum(orders.committed()[place].offset for place in committed) == 300,
        what="all records wait in the delays topic",
    )
    first.kill()
    harness.start(orders, member="orders-1")  # gets the partitions when the session of the first worker is over
    late = orders.ready(300)
    for number in range(50):
        orders.produce(b"%d" % number, partition=number % 2)
    orders.flush()
    everything = orders.ready(350)

    wait_until(
        lambda: reported_rebalances(orders)[-1].delayed_records is not None,
        what="the delayed records are out and counted",
    )

    assert [r.delayed_records for r in reported_rebalances(orders)] == [
        0,
        len([r for r in everything if r.late_ms > 1000]),
    ]
    assert min(r.late_ms for r in late) > 1000
    assert reported_rebalances(orders)[-1].delayed_records == 300


@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [
        ("classic", "Range"),
        pytest.param("classic", "Sticky", marks=pytest.mark.slow),
        pytest.param("consumer", "Uniform", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_not_to_come_back_leaves_its_partitions_at_once(
    harness: WorkerHarness, protocol: str, assignor: str
) -> None:
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    _, second = (harness.start(orders, member=f"orders-{n}", protocol=protocol, assignor=assignor) for n in range(2))
    wait_until(
        lambda: set(owners_now(orders).values()) == {"orders-0", "orders-1"}, what="two workers share the partitions"
    )
    with steady_load(orders, levels=2) as sent:
        orders.change(workers=1)
        assert second.terminate() == 0
        assert members_now(orders) == {"orders-0"}
        wait_until(lambda: len(owners_now(orders)) == 8, what="one worker has all partitions")

    assert doubled(all_ready(orders, sent)) == 0
    assert {r.reason for r in reported_rebalances(orders)} == {"WorkerJoined", "WorkerLeft"}


def of_template(name: str) -> Launch:
    """Returns the launch of a worker as in a pod of a StatefulSet whose template has this hash."""
    return Launch(environment={"POD_TEMPLATE": name})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second_template", "reasons"),
    [("b", {"SpecChanged"}), ("a", {"WorkerLeft", "WorkerJoined"})],
    ids=["edited-spec", "same-spec"],
)
def test_rebalances_since_pods_were_replaced_for_an_edited_spec_say_so(
    harness: WorkerHarness, second_template: str, reasons: set[str]
) -> None:
    """With the protocol `consumer`, a worker that ends gives its partitions to others at once, and gets some when it is back."""
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    members: dict[str, Any] = {
        f"orders-{n}": harness.start(orders, member=f"orders-{n}", protocol="consumer", launch=of_template("a"))
        for n in range(2)
    }

    def all_served_by(*names: str) -> None:
        def served() -> bool:
            owners = owners_now(orders)
            ended = all(r.ended_at_ms is not None for r in reported_rebalances(orders))
            return len(owners) == 8 and set(owners.values()) == set(names) and ended

        wait_until(served, what=f"{names} serve all partitions")

    all_served_by("orders-0", "orders-1")
    before = reported_rebalances(orders)
    for member, other in (("orders-1", "orders-0"), ("orders-0", "orders-1")):
        assert members[member].terminate() == 0
        all_served_by(other)
        members[member] = harness.start(orders, member=member, protocol="consumer", launch=of_template(second_template))
        all_served_by("orders-0", "orders-1")

    found = reported_rebalances(orders)
    assert {r.reason for r in before} == {"WorkerJoined"}
    assert len(found) >= len(before) + 4
    assert {r.reason for r in found[len(before) :]} == reasons
    assert {r.in_flight_records for r in found} == {0}, "each worker gave its partitions up without copies in flight"


def test_an_assignment_tells_what_the_worker_kept(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    for n in range(2):
        harness.start(orders, member=f"orders-{n}")

    def assignments() -> list[dict[str, Any]]:
        return [e.detail for e in events_of(orders) if e.kind == "assignment" and e.member == "orders-0"]

    # not the end of the last rebalance: that of the first worker alone may be the last one that was reported so far
    wait_until(lambda: len(assignments()) > 1, what="two workers share the partitions")
    first, *_, last = assignments()

    assert first["kept"] == []
    assert last["kept"] == last["places"] == [f"{orders.names.front}[0-1]", f"{orders.names.delays}[0-1]"]


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["Range", "Sticky"])
def test_of_records_that_come_twice_when_a_worker_was_lost_the_rebalance_has_counted_each(
    harness: WorkerHarness, assignor: str
) -> None:
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    lost, _ = (harness.start(orders, member=f"orders-{n}", assignor=assignor, commit_interval_ms=500) for n in range(2))
    wait_until(
        lambda: set(owners_now(orders).values()) == {"orders-0", "orders-1"}, what="two workers share the partitions"
    )
    with steady_load(orders, levels=2) as sent:
        wait_until(lambda: len(sent) > 1_500, what="records come out")
        lost.signal(signal.SIGSTOP)
        wait_until(lambda: set(owners_now(orders).values()) == {"orders-1"}, what="the other worker has all partitions")
        wait_until(lambda: reported_rebalances(orders)[-1].reason == "WorkerLost", what="the lost worker is reported")
        assert reported_rebalances(orders)[-1].in_flight_records is None, "only the lost worker knows"
        lost_in = reported_rebalances(orders)[-1].generation
        lost.signal(signal.SIGCONT)

        def counted() -> list[int | None]:
            return [r.in_flight_records for r in reported_rebalances(orders) if r.generation == lost_in]

        wait_until(lambda: counted() != [None], what="the lost worker reports how many copies it had in flight")

    twice = doubled(all_ready(orders, sent))
    assert 0 < twice <= (counted()[0] or 0)


def test_a_worker_that_only_restarts_keeps_its_partitions(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    _, second = (harness.start(orders, member=f"orders-{n}") for n in range(2))
    wait_until(
        lambda: set(owners_now(orders).values()) == {"orders-0", "orders-1"}, what="two workers share the partitions"
    )
    before = owners_now(orders)
    orders.change(workers=2)
    assert second.terminate() == 0
    assert members_now(orders) == {"orders-0", "orders-1"}
    harness.start(orders, member="orders-1")
    assert owners_now(orders) == before


def test_a_worker_that_restarts_within_its_session_is_no_part_of_the_last_rebalance(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    _, second = (harness.start(orders, member=f"orders-{n}") for n in range(2))

    def caught_up() -> int:
        return len([event for event in events_of(orders) if event.detail.get("change") == "caught-up"])

    wait_until(
        lambda: reported_rebalances(orders)[-1].delayed_records == 0, what="both workers have served what was due"
    )
    before, known = reported_rebalances(orders), caught_up()
    assert second.terminate() == 0
    harness.start(orders, member="orders-1")
    wait_until(lambda: caught_up() > known, what="the restarted worker reports that it has caught up")

    assert reported_rebalances(orders) == before


def test_partitions_that_move_because_the_topic_has_more_are_told_as_a_change_of_the_topic(
    harness: WorkerHarness,
) -> None:
    """With the assignor Range, the third of four front partitions moves to the first worker when a fifth is added."""
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    for n in range(2):
        harness.start(orders, member=f"orders-{n}")
    wait_until(lambda: reported_rebalances(orders)[-1].ended_at_ms is not None, what="two workers share the partitions")
    before = len(reported_rebalances(orders))
    orders.grow_front(5)

    def since() -> tuple[Rebalance, ...]:
        return reported_rebalances(orders)[before:]

    def both_have_moved() -> bool:
        # there are two rebalances if the first worker that sees the new partition is not the leader of the group, which assigns them
        return sum(r.moved_partitions for r in since()) >= 2 and since()[-1].ended_at_ms is not None

    wait_until(both_have_moved, what="the third and the new partition have moved", evidence=since)
    assert sum(r.moved_partitions for r in since()) == 2
    assert {r.reason for r in since()} == {"TopicChanged"}


@pytest.mark.slow
def test_a_worker_that_is_stopped_while_the_group_waits_for_another_one_repeats_nothing(harness: WorkerHarness) -> None:
    """The group waits until the session of an ended worker is over. Until then, Kafka answers no commits of workers that have rejoined."""
    orders = harness.declare((0, 1), front_partitions=4, partitions=4)
    # with this assignor, workers keep their partitions while they join
    sticky: dict[str, Any] = {"protocol": "classic", "assignor": "Sticky"}
    ended, stopped = (harness.start(orders, member=f"orders-{n}", **sticky) for n in range(2))
    with steady_load(orders, per_second=200, levels=1) as sent:
        wait_until(lambda: len(set(owners_now(orders).values())) == 2, what="both workers have partitions")
        assert ended.terminate() == 0
        harness.start(orders, member="orders-2", ready=False, **sticky)
        wait_until(lambda: "orders-2" in members_now(orders), what="the third worker joins")
        wait_until(lambda: stopped.metric("delayedtopics_fence_open") == 0, what="the other worker has joined again")
        assert stopped.terminate() == 0
        wait_until(lambda: set(owners_now(orders).values()) == {"orders-2"}, what="the third worker has all partitions")

    assert doubled(all_ready(orders, sent, timeout_seconds=60)) == 0
