"""The settings of a worker's Kafka clients."""

import pytest
from delayed_topics_worker.clients import Fetching


@pytest.mark.parametrize(
    ("partitions", "wait_ms", "statistics_seconds"), [(4, 100, 5), (800, 100, 6), (1_600, 200, 12), (40_000, 500, 30)]
)
def test_the_more_partitions_a_group_has_the_less_often_a_worker_asks_for_all_of_them(
    partitions: int, wait_ms: int, statistics_seconds: int
) -> None:
    fetching = Fetching(hurried=True, partitions=partitions)
    assert (fetching.wait_ms, fetching.statistics_seconds) == (wait_ms, statistics_seconds)


@pytest.mark.parametrize(
    ("partitions", "later", "again"),
    [
        (4, 900, False),
        (4, 1_600, True),
        (1_600, 3_100, False),
        (1_600, 3_200, True),
        (4_000, 2_100, False),
        (4_000, 4, True),
    ],
)
def test_a_worker_joins_again_only_when_its_group_has_twice_or_half_as_many_partitions(
    partitions: int, later: int, again: bool
) -> None:
    fetching, wanted = (Fetching(hurried=True, partitions=count) for count in (partitions, later))
    assert fetching.is_outgrown_by(wanted) == again


def test_a_worker_that_waits_for_more_records_joins_again_for_the_first_delay_of_0() -> None:
    slow, fast = (Fetching(hurried=hurried, partitions=4) for hurried in (False, True))
    assert (slow.is_outgrown_by(fast), fast.is_outgrown_by(slow)) == (True, False)
