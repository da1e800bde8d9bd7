"""The audit accounts for records that request another ready topic. It ignores other records in such a topic."""

from dataclasses import replace

import pytest
from delayed_topics_audit.account import BlindSpot
from delayed_topics_audit.checks import offenders
from delayed_topics_audit_testing.rows import AT_MS, BOUNDS, Place, Row, Window, fates, flaws, judged
from delayed_topics_core.headers import Header, Root, origin
from delayed_topics_core_testing import copies
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OWN = replace(BOUNDS, front_id="id", delays_id="id", target_partitions={4: 3, 5: 2})
INVOICES, SHIPMENTS = "invoices", "shipments"


def asks(target: str) -> list[Header]:
    return [("dt-target", target.encode())]


def released(place: Place, target: str | None, *, topic_id: str = "id", wrote_ms: int = 0) -> list[Header]:
    headers, root = asks(target) if target is not None else [], Root(*place, topic_id)
    return copies.release(headers, root=root, origin=origin(*place), due_at_ms=AT_MS, released_at_ms=AT_MS + wrote_ms)


def forwarded(place: Place, target: str | None) -> list[Header]:
    """Headers of a release that Kafka Streams or Spring forwarded: they keep all headers and add their own."""
    return [*released(place, target), ("traceparent", b"00-1")]


def window(spark: SparkSession, front: list[str | None], **topics: list[Row]) -> Window:
    """Front records of partition 1. `front`: the ready topic that each requests; None: none. `topics`: rows of the ready topics."""
    rows: list[Row] = [(1, at, 0, asks(target) if target is not None else []) for at, target in enumerate(front)]
    bounds = replace(OWN, front_committed=(0, len(front)), delays_committed=(0, 0, 0))
    others = {name: topics.get(name, []) for name in (INVOICES, SHIPMENTS)}
    return Window(spark=spark, front=rows, ready=topics.get("ready", ()), others=others, bounds=bounds)


def test_a_record_that_came_out_where_it_asked_to_is_released(spark: SparkSession) -> None:
    found = window(
        spark,
        ["invoices", "shipments:0", None],
        invoices=[(1, 7, 1, released(("f", 1, 0), "invoices"))],
        shipments=[(0, 3, 1, released(("f", 1, 1), "shipments:0"))],
        ready=[(1, 0, 1, released(("f", 1, 2), None))],
    )
    assert fates(found) == {f"f:1:{at}": "released" for at in range(3)}
    assert flaws(found) == {}


def test_a_record_with_a_target_that_came_out_nowhere_is_lost(spark: SparkSession) -> None:
    assert flaws(window(spark, ["invoices"])) == {"lost": ["f:1:0"]}


def test_whatever_else_is_in_such_a_topic_is_passed_over(spark: SparkSession) -> None:
    """Such records come from applications and from other delayed topics."""
    found = window(
        spark,
        ["invoices"],
        invoices=[
            (1, 0, 0, []),
            (1, 1, 1, released(("f", 1, 0), "invoices")),
            (1, 2, 1, released(("f", 1, 0), "invoices", topic_id="of another")),
            (2, 0, 1, [("dt-root", b"junk"), ("dt-target", b"invoices")]),
        ],
    )
    assert (fates(found), flaws(found)) == ({"f:1:0": "released"}, {})


def test_a_record_that_came_out_elsewhere_than_it_asked_to_is_told(spark: SparkSession) -> None:
    cases = [
        ("invoices", "ready", 1),
        (None, "invoices", 1),
        ("shipments", "invoices", 1),
        ("invoices:2", "invoices", 1),
        ("invoices", "invoices", 2),
    ]
    topics: dict[str, list[Row]] = {"ready": [], "invoices": []}
    for at, (asked, topic, partition) in enumerate(cases):
        topics[topic].append((partition, at, 1, released(("f", 1, at), asked)))
    found = window(spark, [asked for asked, _, _ in cases], **topics)
    assert flaws(found) == {"wrong_partition": [f"f:1:{at}" for at in range(5)]}


def test_a_record_that_came_out_twice_is_told_with_the_topics_name(spark: SparkSession) -> None:
    twice: list[Row] = [(1, at, 1, released(("f", 1, 0), "invoices")) for at in (5, 6)]
    found = window(spark, ["invoices"], invoices=twice)
    assert flaws(found) == {"doubled": ["f:1:0"]}
    (named,) = offenders(found.places, "doubled", (INVOICES, SHIPMENTS)).collect()
    assert named.record == "f:1:0 invoices:1:5 invoices:1:6"


def test_a_copy_without_what_it_was_asked_for_is_changed(spark: SparkSession) -> None:
    found = window(spark, ["invoices:1"], invoices=[(1, 0, 1, released(("f", 1, 0), "invoices"))])
    assert flaws(found) == {"changed": ["f:1:0"]}


def test_a_release_that_an_application_forwards_into_another_such_topic_is_not_a_workers(spark: SparkSession) -> None:
    """The application keeps the headers. The audit once reported `Violated`: doubled, changed, and in the wrong topic."""
    found = window(
        spark,
        ["invoices", None],
        ready=[(1, 0, 1, released(("f", 1, 1), None))],
        invoices=[(1, 0, 1, released(("f", 1, 0), "invoices")), (0, 1, 9, forwarded(("f", 1, 1), None))],
        shipments=[(0, at, 9, forwarded(("f", 1, 0), "invoices")) for at in range(2)],
    )
    assert (fates(found), flaws(found)) == ({"f:1:0": "released", "f:1:1": "released"}, {})


def test_a_record_that_is_forwarded_when_an_audit_has_settled_it_is_not_a_workers(spark: SparkSession) -> None:
    settled = replace(OWN, front_from=(0, 1), front_committed=(0, 1), new_from={4: (0, 0, 0), 5: (0, 0)})
    found = window(spark, ["invoices"], shipments=[(0, 0, 9, forwarded(("f", 1, 0), "invoices"))])
    assert flaws(replace(found, bounds=settled)) == {}


def test_what_a_worker_releases_once_more_into_a_topic_that_it_was_not_asked_to_is_told(spark: SparkSession) -> None:
    """Each copy says when a worker wrote it, so this one is not a forwarded copy of the other."""
    found = window(
        spark,
        ["invoices"],
        invoices=[(1, 0, 1, released(("f", 1, 0), "invoices"))],
        shipments=[(1, 0, 9, released(("f", 1, 0), "invoices", wrote_ms=8))],
    )
    assert flaws(found) == {"wrong_partition": ["f:1:0"]}


def test_what_was_forwarded_is_no_broken_promise_once_its_release_cannot_be_seen(spark: SparkSession) -> None:
    """The topic of the release has a shorter retention, or was deleted. The verdict was once `Violated`."""
    hidden = BlindSpot(sentence="retention has removed records of invoices", hides_outcomes=True, only_losses=True)
    found = window(spark, ["invoices"], shipments=[(0, 0, 9, forwarded(("f", 1, 0), "invoices"))])
    assert judged(found, blind_spots=[hidden]).verdict == "Unknown"
    assert judged(found).verdict == "Violated", "nothing is hidden, so a worker wrote the copy"
    misplaced = window(spark, ["invoices"], ready=[(1, 0, 9, released(("f", 1, 0), "invoices"))])
    assert judged(misplaced, blind_spots=[hidden]).verdict == "Violated", "no application may write there"


def test_a_record_that_only_has_the_headers_of_a_release_in_part_is_not_a_workers(spark: SparkSession) -> None:
    in_part = [(name, value) for name, value in released(("f", 1, 0), "invoices") if name != "dt-released"]
    found = window(spark, ["invoices"], invoices=[(1, 0, 1, released(("f", 1, 0), "invoices")), (1, 1, 9, in_part)])
    assert flaws(found) == {}


def test_a_topic_that_does_not_have_the_brokers_time_is_named(spark: SparkSession) -> None:
    """The audit once named the ready topic instead."""
    found = window(
        spark,
        ["invoices", "shipments", None],
        invoices=[(1, 0, 1, released(("f", 1, 0), "invoices"))],
        shipments=[(1, 0, 1, released(("f", 1, 1), "shipments"))],
        ready=[(1, 0, 1, released(("f", 1, 2), None))],
    )
    said = judged(replace(found, others_stamped=False))
    assert said.verdict == "Unknown"
    assert "topic invoices has 1 record without the broker's time" in said.message.lower()
    assert "topic shipments has 1 record without the broker's time" in said.message.lower()
    assert "orders.ready has" not in said.message
