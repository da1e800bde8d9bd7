"""Records that have the headers of a copy but no worker wrote, and copies of records that never existed."""

from dataclasses import replace

import pytest
from delayed_topics_audit_testing.rows import (
    BOUNDS,
    Place,
    Window,
    dead_letter,
    fates,
    flaws,
    front_of,
    hop,
    ready_of,
    release,
    totals,
)
from delayed_topics_core.audit_table import DELAYS
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_consumer_that_forwards_a_release_with_its_headers_has_neither_forged_nor_doubled_it(
    spark: SparkSession,
) -> None:
    """Spring's `DeadLetterPublishingRecoverer` forwards records in this way."""
    kept = [*release(("f", 0, 1), 1), ("kafka_dlt-exception-message", b"no")]
    window = Window(spark=spark, front=front_of(2), ready=ready_of(0, 1), dead=[(0, 0, 9, kept), (0, 1, 9, kept)])
    assert (flaws(window), set(fates(window.committed(2)).values())) == ({}, {"released"})
    assert totals(window)["rejected"] == 2


@pytest.mark.slow
def test_an_outcome_of_a_record_that_never_was_is_forged_wherever_it_says_that_it_was(spark: SparkSession) -> None:
    """The named record would lie in a partition that does not exist, or above the end of its partition."""
    nowhere: list[Place] = [("f", 0, 90), ("f", 2, 0), ("d", 3, 0)]
    forged = {"forged": ["f:0:90", "f:2:0", "d:3:0"]}
    released = [(1, at, 5, release(place, 5)) for at, place in enumerate(nowhere)]
    bounds = replace(BOUNDS, front_committed=(2, 0), front_end=(2, 0), delays_end=(0, 0, 0))
    window = Window(spark=spark, front=front_of(2), ready=[*ready_of(0, 1), *released], bounds=bounds)
    assert flaws(window) == forged
    dead = [(0, at, 5, dead_letter(place)) for at, place in enumerate(nowhere)]
    assert flaws(replace(window, ready=ready_of(0, 1), dead=dead)) == forged
    window = replace(window, ready=ready_of(0, 1), bounds=replace(bounds, delays_committed=(0, 0, 0)))
    hops = [(1, at, 5, hop(place, 9_000)) for at, place in enumerate(nowhere)]
    assert flaws(replace(window, delays=hops)) == forged
    before = replace(window.bounds, new_from={DELAYS: (0, 3, 0)})
    assert flaws(replace(window, delays=hops, bounds=before)) == {}, "an earlier audit has reported the hops"
    came_since = [(1, 0, 5, hop(("d", 0, 90), 9_000, root=("f", 0, 1)))]
    assert flaws(replace(window, delays=came_since)) == {}, "the ends of partitions are read at different moments"


def test_what_came_out_and_is_not_committed_yet_is_the_next_audits(spark: SparkSession) -> None:
    bounds = replace(BOUNDS, front_committed=(1, 0), front_end=(2, 0), delays_end=(0, 0, 0))
    window = Window(spark=spark, front=front_of(2), ready=ready_of(0, 1), bounds=bounds)
    assert (flaws(window), fates(window)) == ({}, {"f:0:0": "released", "f:0:1": "pending"})


@pytest.mark.parametrize("root", [("f", 20_000, 1), ("d", 0, 2**43)], ids=["a high partition", "a high offset"])
def test_a_hop_whose_root_has_no_number_in_an_audit_is_not_lost(spark: SparkSession, root: Place) -> None:
    """A worker accepts higher numbers in the root of a hop. The verdict was once `Violated`."""
    delays = [(1, 0, 5, hop(("f", 0, 0), 10_000, root=root)), (2, 0, 9, hop(("d", 1, 0), 10_000, root=root))]
    ready = [(0, 0, 10_000, release(("d", 2, 0), 10_000, root=root)), (0, 1, 10_000, release(("f", 0, 1), root=root))]
    window = Window(spark=spark, delays=delays, ready=ready[:1], bounds=replace(BOUNDS, front_from=(1, 0)))
    assert (fates(window), flaws(window)) == ({"d:1:0": "hopped", "d:2:0": "released"}, {})
    assert window.places.where("root is not null").count() == 0
    assert flaws(replace(window, front=front_of(2)[1:], ready=ready)) == {"forged": ["f:0:1"]}


@pytest.mark.parametrize("origin", [b"x", b"r:0:1", b"d:20000:0", None])
def test_a_hop_that_names_no_record_as_its_origin_is_forged(spark: SparkSession, origin: bytes | None) -> None:
    """The first audit that reads it reports it. No audit once did."""
    headers = [(name, origin if name == "dt-origin" else value) for name, value in hop(("f", 0, 0), 10_000)]
    window = Window(spark=spark, delays=[(1, 0, 5, headers)], bounds=replace(BOUNDS, delays_committed=(0, 0, 0)))
    assert (fates(window), flaws(window)) == ({"d:1:0": "pending"}, {"forged": ["d:1:0"]})
    assert flaws(replace(window, bounds=replace(window.bounds, new_from={DELAYS: (0, 1, 0)}))) == {}
