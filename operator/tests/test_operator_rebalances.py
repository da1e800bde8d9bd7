"""Rebalances in the status: each is counted once, even if somebody was away meanwhile, and nothing is written when nothing changed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from delayed_topics_core.reasons import Condition
from delayed_topics_core.rebalances import Rebalance
from delayed_topics_crds import MAX_RECENT, RebalanceStatus
from delayed_topics_kafka.model import GroupInfo, GroupMember
from delayed_topics_operator.delayed_topic.reconcile.rebalances import ended_slowly, rebalance_status, slow
from delayed_topics_operator.values.eventlog import WorkerNews
from delayed_topics_operator_testing.simulation import Simulation, member, resource

MINUTE_MS = 60_000
NOW = datetime(1970, 1, 1, 2, tzinfo=UTC)


def rebalance(generation: int, **fields: Any) -> Rebalance:
    """Returns the rebalance with this generation. There is one rebalance a minute."""
    at_ms = generation * MINUTE_MS
    known: dict[str, Any] = {
        "generation": generation,
        "reason": "WorkerJoined",
        "started_at_ms": at_ms,
        "ended_at_ms": at_ms + 1234,
        "moved_partitions": 3,
        "affected_workers": 2,
        "unaffected_workers": 1,
    }
    return Rebalance(**{**known, **fields})


def seen(before: RebalanceStatus | None, *rebalances: Rebalance, settled: bool = True) -> RebalanceStatus:
    place = ("orders", 0)
    member = GroupMember(client_id="w-0", assignment=(place,), target=(place,) if settled else ())
    group = GroupInfo(
        group="g", state="Stable" if settled else "PreparingRebalance", protocol="classic", members=(member,)
    )
    return rebalance_status(before, group, WorkerNews(rebalances=rebalances), now=NOW)


def generations(status: RebalanceStatus) -> list[int]:
    return [record.generation for record in status.recent]


def test_the_latest_comes_first_with_what_people_want_to_know() -> None:
    status = seen(None, rebalance(1), rebalance(4, reason="WorkerLost"))
    assert (status.count, generations(status)) == (2, [4, 1])
    latest = status.recent[0]
    assert (latest.reason, latest.started_at) == ("WorkerLost", datetime(1970, 1, 1, 0, 4, tzinfo=UTC))
    assert (latest.duration_ms, latest.moved_partitions) == (1234, 3)
    assert (latest.affected_workers, latest.unaffected_workers) == (2, 1)


def test_the_records_that_one_has_delayed_are_told_when_they_have_come_out() -> None:
    status = seen(None, rebalance(1))
    assert status.recent[0].delayed_records is None
    after = seen(status, rebalance(1, delayed_records=17))
    assert (after.count, after.recent[0].delayed_records) == (1, 17)


def test_the_records_that_may_come_twice_are_told_also_when_a_lost_worker_tells_of_them_later() -> None:
    status = seen(None, rebalance(1, reason="WorkerLost"))
    assert status.recent[0].in_flight_records is None
    after = seen(status, rebalance(1, reason="WorkerLost", in_flight_records=40))
    assert (after.count, after.recent[0].in_flight_records) == (1, 40)


def test_one_of_which_the_cause_is_known_later_is_still_one() -> None:
    """Only when a worker is back is it known that it left for an edited spec."""
    status = seen(None, rebalance(1, reason="WorkerLeft"))
    after = seen(status, rebalance(1, reason="SpecChanged"), rebalance(2, reason="SpecChanged"))
    assert [record.reason for record in after.recent] == ["SpecChanged", "SpecChanged"]
    assert after.count == 2


def test_nothing_is_written_when_nothing_changed() -> None:
    rebalances = [rebalance(n) for n in range(1, 30)]
    status = seen(None, *rebalances)
    assert seen(status, *rebalances) == status


def test_the_last_ten_are_kept_and_all_are_counted() -> None:
    status: RebalanceStatus | None = None
    for number in range(1, 26):
        status = seen(status, *(rebalance(n) for n in range(1, number + 1)))
    assert status is not None
    assert (status.count, len(status.recent), generations(status)[0]) == (25, MAX_RECENT, 25)


@pytest.mark.parametrize("oldest", [1, 4, 6])
def test_an_operator_that_was_away_catches_up_also_when_kafka_has_removed_what_is_known(oldest: int) -> None:
    status = seen(None, *(rebalance(n) for n in range(1, 6)))
    status = seen(status, *(rebalance(n) for n in range(oldest, 9)))
    assert (status.count, generations(status)) == (8, [8, 7, 6, 5, 4, 3, 2, 1])


def test_while_one_is_under_way_it_is_not_told_and_then_with_all_of_it() -> None:
    status = seen(None, rebalance(1))
    partly = rebalance(2, moved_partitions=1, ended_at_ms=None)
    under_way = seen(status, rebalance(1), partly, settled=False)
    assert (under_way.state, under_way.count, generations(under_way)) == ("Rebalancing", 1, [1])
    status = seen(under_way, rebalance(1), partly)
    assert (status.count, status.recent[0].duration_ms) == (2, None)
    status = seen(status, rebalance(1), rebalance(2))
    assert (status.count, status.recent[0].duration_ms, status.recent[0].moved_partitions) == (2, 1234, 3)


def test_what_is_known_is_not_replaced_by_the_half_that_kafka_still_has() -> None:
    status = seen(None, rebalance(1), rebalance(2))
    assert seen(status, rebalance(2, moved_partitions=1)) == status


def test_two_within_a_second_are_two() -> None:
    first = rebalance(7)
    second = replace(rebalance(8), started_at_ms=first.started_at_ms + 300)
    status = seen(seen(None, first), first, second)
    assert (status.count, generations(status)) == (2, [8, 7])


def test_a_group_that_was_made_again_begins_to_count_generations_anew() -> None:
    status = seen(None, rebalance(57))
    again = replace(rebalance(1), started_at_ms=60 * MINUTE_MS)
    status = seen(status, rebalance(57), again)
    assert (status.count, generations(status)) == (2, [1, 57])
    assert seen(status, rebalance(57), again) == status


def slow_ones(before: RebalanceStatus | None, after: RebalanceStatus) -> list[int]:
    return [record.generation for record in ended_slowly(before, after, slow_seconds=30)]


def test_a_rebalance_that_took_too_long_is_told_once_when_it_has_ended() -> None:
    first = seen(None, rebalance(1))
    slowly = rebalance(2, ended_at_ms=2 * MINUTE_MS + 30_001)
    under_way = seen(first, rebalance(1), replace(slowly, ended_at_ms=None))
    assert slow_ones(first, under_way) == []
    ended = seen(under_way, rebalance(1), slowly)
    assert slow_ones(under_way, ended) == [2]
    assert slow_ones(first, ended) == [2]
    assert slow_ones(ended, seen(ended, rebalance(1), slowly, rebalance(3))) == []
    assert slow_ones(None, ended) == [], "these events are about a resource that is gone"


@pytest.mark.parametrize("settled", [False, True])
def test_a_rebalance_that_is_under_way_for_too_long_is_said(settled: bool) -> None:
    """This includes the time in which the group has not agreed yet, and the time in which workers do not serve yet."""
    began = NOW - timedelta(seconds=10)
    rebalances = (rebalance(1, started_at_ms=int(began.timestamp()) * 1000, ended_at_ms=None),) if settled else ()
    status = seen(None, *rebalances, settled=settled)
    since = began if settled else NOW
    assert slow(status, now=since + timedelta(seconds=30), slow_seconds=30) is None
    assert "slowSeconds" in (slow(status, now=since + timedelta(seconds=31), slow_seconds=30) or "")
    later = seen(status, *rebalances, settled=settled)
    assert later == status, "the time since when it is known stays"
    ended = [replace(one, ended_at_ms=one.started_at_ms + 40_000) for one in rebalances]
    assert slow(seen(status, *ended), now=NOW + timedelta(days=1), slow_seconds=30) is None


def test_a_slow_rebalance_raises_an_alarm_until_it_has_ended_and_an_event_tells_how_long_it_took() -> None:
    simulation = Simulation(resource(rebalance={"slowSeconds": 5}))
    simulation.settle()
    simulation.workers_come_up()
    simulation.kafka.members[f"delayedtopics.{simulation.owner.name}"] = (member(f"{simulation.name}-0"),)
    began_at_ms = int(simulation.now.timestamp() * 1000)
    under_way = rebalance(1, started_at_ms=began_at_ms, ended_at_ms=None)
    simulation.news = WorkerNews(rebalances=(under_way,))
    assert simulation.settle().wake_seconds == 5

    simulation.later(6)
    simulation.settle()

    condition = simulation.condition(Condition.ALARM)
    assert (condition.status, condition.reason) == ("True", "RebalanceSlow")
    assert simulation.condition(Condition.READY).reason == "RebalanceSlow"

    simulation.news = WorkerNews(rebalances=(replace(under_way, ended_at_ms=began_at_ms + 6_700),))
    (notice,) = simulation.settle().notices

    assert (notice.type, notice.reason, "took 6.7 s" in notice.message) == ("Warning", "RebalanceSlow", True)
    assert simulation.condition(Condition.ALARM).status == "False"
    assert simulation.settle().notices == ()
