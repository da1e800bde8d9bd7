"""Windows that form a chain, and the mutation test with one seed. `make audit-mutations` runs a hundred seeds."""

import random
from dataclasses import replace

import pytest
from delayed_topics_audit.place import name_of
from delayed_topics_audit.places import places_of
from delayed_topics_audit_testing.made import Made
from delayed_topics_audit_testing.mutations import judge
from delayed_topics_audit_testing.rows import facts_of
from delayed_topics_core.audit_table import FATES
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 2_400


def cuts(committed: list[int], chance: random.Random, windows: int) -> list[list[int]]:
    """Returns the offsets at which each window begins or ends: ascending for each partition, from 0 to the committed offset."""
    per_partition = [[0, *sorted(chance.randrange(end + 1) for _ in range(windows - 1)), end] for end in committed]
    return [list(of_window) for of_window in zip(*per_partition, strict=True)]


def test_windows_that_chain_account_for_every_offset_exactly_once(spark: SparkSession) -> None:
    chance, windows = random.Random(1), 3
    made = Made(spark=spark, records=RECORDS, partitions=2)
    topics = (made.front(), made.delays(), made.ready(), made.dead_letters())
    front = cuts(list(made.bounds.front_committed), chance, windows)
    delays = cuts(list(made.bounds.delays_committed), chance, windows)
    settled: dict[str, str] = {}
    pending: set[str] = set()
    for window in range(windows):
        bounds = replace(
            made.bounds,
            front_from=front[window],
            front_committed=front[window + 1],
            delays_from=delays[window],
            delays_committed=delays[window + 1],
        )
        every = facts_of(topics, bounds)
        places = places_of(every, bounds, made.promise, shuffle_partitions=1)
        rows = places.where("fate is not null or flaws <> 0").select(
            name_of(sf.col("place")).alias("name"), "fate", "flaws"
        )
        found = {row.name: row for row in rows.collect()}
        assert not [row for row in found.values() if row.flaws]
        now_settled = {name: FATES[row.fate] for name, row in found.items() if FATES[row.fate] != "pending"}
        assert not settled.keys() & now_settled.keys(), "two windows account for the same offset"
        settled.update(now_settled)
        pending = found.keys() - now_settled.keys()
    hops = sum(1 for fate in settled.values() if fate == "hopped")
    assert len(settled.keys() | pending) == len(settled) + len(pending) == RECORDS + hops


@pytest.mark.timeout(1800)
def test_mutations_are_found_where_they_are_and_nothing_else_is(spark: SparkSession) -> None:
    judged = judge(spark, records=24_000, seed=0)
    assert set(judged.right.values()) == {True}, judged
