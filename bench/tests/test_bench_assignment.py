"""Partitions are distributed evenly, by the simulation and by a group of real workers."""

from collections import Counter
from pathlib import Path

import pytest
from delayed_topics_bench.assignment import ASSIGNORS, Owners, balance, sticky
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.generations import owners_now
from delayed_topics_worker_testing.harness import WorkerHarness

WORKERS = 3


def shares(owners: Owners) -> set[frozenset[tuple[str, int]]]:
    """Returns the set of partitions of each worker, without the workers."""
    return {frozenset(place for place in owners if owners[place] == worker) for worker in set(owners.values())}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_has_a_worker_and_none_has_many_more_than_another(name: str) -> None:
    owners = ASSIGNORS[name]({"orders": 5, "orders.delays": 7}, WORKERS, {})
    assert len(owners) == 12
    counts = Counter(owners.values())
    assert max(counts.values()) - min(counts.values()) <= (2 if name == "Range" else 0)


def test_sticky_moves_no_more_than_a_new_worker_gets() -> None:
    before = sticky({"orders": 12}, 3, {})
    after = sticky({"orders": 12}, 4, before)
    assert {place for place in before if before[place] != after[place]} == {
        p for p, worker in after.items() if worker == 3
    }
    assert sorted(Counter(after.values()).values()) == [3, 3, 3, 3]


def test_the_busiest_worker_is_told_as_a_multiple_of_the_average() -> None:
    assert balance({("a", 0): 0, ("a", 1): 1}, {("a", 0): 3, ("a", 1): 1}, 2) == 1.5


@pytest.mark.broker
@pytest.mark.parametrize(
    "name", [name if name == "Sticky" else pytest.param(name, marks=pytest.mark.slow) for name in ASSIGNORS]
)
def test_a_group_of_workers_has_what_the_simulation_says(broker: Broker, tmp_path: Path, name: str) -> None:
    with WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness:
        orders = harness.declare((0, 10, 60), front_partitions=5, partitions=7, lanes_per_delay=2)
        topics = {orders.names.front: 5, orders.names.delays: 7}
        simulated = ASSIGNORS[name](topics, WORKERS, {})
        for number in range(WORKERS):
            harness.start(orders, member=f"orders-{number}", assignor=name, ready=False)

        def real() -> Owners:
            return {place: int(member[-1]) for place, member in owners_now(orders).items()}

        wait_until(
            lambda: len(real()) == 12 and len(set(real().values())) == WORKERS, what="all workers have partitions"
        )
        if name == "Sticky":  # the first worker had all partitions for a moment
            assert {len(share) for share in shares(real())} == {len(share) for share in shares(simulated)}
        else:
            assert shares(real()) == shares(simulated)
