"""What the status says of rebalances: each is counted once, whoever was away meanwhile, and nothing is written when nothing changed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from delayed_topics_core.rebalances import Rebalance
from delayed_topics_crds import MAX_RECENT, RebalanceStatus
from delayed_topics_kafka.model import GroupInfo, GroupMember
from delayed_topics_operator.eventlog import WorkerNews
from delayed_topics_operator.reconcile.rebalances import rebalance_status

MINUTE_MS = 60_000


def rebalance(generation: int, **fields: Any) -> Rebalance:
    """One a minute."""
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


def seen(before: RebalanceStatus | None, *told: Rebalance, settled: bool = True) -> RebalanceStatus:
    place = ("orders", 0)
    member = GroupMember(
        member_id="id",
        instance_id=None,
        client_id="w-0",
        host="",
        assignment=(place,),
        target=(place,) if settled else (),
    )
    group = GroupInfo(
        group="g", state="Stable" if settled else "PreparingRebalance", protocol="classic", members=(member,)
    )
    return rebalance_status(before, group, WorkerNews(rebalances=told))


def generations(status: RebalanceStatus) -> list[int]:
    return [record.generation for record in status.recent]


def test_the_latest_comes_first_with_what_people_want_to_know() -> None:
    status = seen(None, rebalance(1), rebalance(4, reason="WorkerLost"))
    assert (status.count, generations(status)) == (2, [4, 1])
    latest = status.recent[0]
    assert (latest.reason, latest.started_at) == ("WorkerLost", datetime(1970, 1, 1, 0, 4, tzinfo=UTC))
    assert (latest.duration_ms, latest.moved_partitions) == (1234, 3)
    assert (latest.affected_workers, latest.unaffected_workers) == (2, 1)


def test_nothing_is_written_when_nothing_changed() -> None:
    told = [rebalance(n) for n in range(1, 30)]
    status = seen(None, *told)
    assert seen(status, *told) == status


def test_the_last_ten_are_kept_and_all_are_counted() -> None:
    status: RebalanceStatus | None = None
    for number in range(1, 26):
        status = seen(status, *(rebalance(n) for n in range(1, number + 1)))
    assert status is not None
    assert (status.count, len(status.recent), generations(status)[0]) == (25, MAX_RECENT, 25)


@pytest.mark.parametrize("oldest", [1, 4, 6])
def test_one_that_was_away_catches_up_also_when_kafka_has_removed_what_is_known(oldest: int) -> None:
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
