"""A copy has the key, the value, the foreign headers and the identity headers of its record."""

from dataclasses import replace

import pytest
from delayed_topics_audit_testing.rows import BOUNDS, Row, Window, fates, flaws, front_of, named, ready_of, release
from delayed_topics_core.headers import Header
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.slow
def test_a_header_that_changed(spark: SparkSession) -> None:
    cases: list[tuple[list[Header], list[Header]]] = [
        ([("trace", b"1")], [("trace", b"2")]),
        ([("trace", b"1")], []),
        ([("a", b"1"), ("b", b"2")], [("b", b"2"), ("a", b"1")]),
        ([], [("added", None)]),
    ]
    front = [(0, at, 0, produced) for at, (produced, _) in enumerate(cases)]
    ready = [(0, at, 0, release(("f", 0, at), foreign=released)) for at, (_, released) in enumerate(cases)]
    assert flaws(Window(spark=spark, front=front, ready=ready)) == {"changed": [f"f:0:{at}" for at in range(4)]}


def test_foreign_headers_pass_and_do_not_confuse_it(spark: SparkSession) -> None:
    foreign: list[Header] = [
        ("", b""),
        ("trace", None),
        ("trace", b"\xff"),
        ("DT-ORIGIN", b"f:9:9"),
        ("dt-origin-x", b"f:8:8"),
    ]
    produced = [*foreign[:2], ("dt-generation", b"7"), *foreign[2:], ("dt-delay-level", b"1")]
    window = Window(spark=spark, front=[(0, 0, 0, produced)], ready=[(0, 0, 0, release(("f", 0, 0), foreign=foreign))])
    assert (fates(window.committed(1)), flaws(window)) == ({"f:0:0": "released"}, {})


def test_a_header_behind_ours_is_a_change_too(spark: SparkSession) -> None:
    ready = [(0, 0, 0, [*release(("f", 0, 0)), ("added", b"1")])]
    assert flaws(Window(spark=spark, front=front_of(1), ready=ready)) == {"changed": ["f:0:0"]}


def test_who_a_client_says_that_it_is_passes_unchanged(spark: SparkSession) -> None:
    """Id, group and two times. The id of a record without one is its root, and numbers lose their leading zeros."""
    said: list[Header] = [("dt-id", b"i"), ("dt-group", b"g"), ("dt-created-at", b"007"), ("dt-done-at", b"9")]
    copied = [(name, b"7" if value == b"007" else value) for name, value in said]

    def kept(at: int, *headers: Header) -> list[Header]:
        return [*headers, *(header for header in release(("f", 0, at)) if header[0] not in dict(headers))]

    every: list[tuple[list[Header], list[Header]]] = [(said, kept(0, *copied)), ([], kept(1))]  # these two are right
    for at, (name, _) in enumerate(copied):
        every.append((said, kept(2 + at, *copied[:at], (name, b"1"), *copied[at + 1 :])))
    for at in range(len(copied)):
        every.append((said, kept(6 + at, *copied[:at], *copied[at + 1 :])))
    every.append(([("dt-group", b"x")], kept(10, ("dt-id", b"x"))))
    every.append(([], kept(11, ("dt-id", b"x"))))
    every.append(([], kept(12, ("dt-group", b"x"))))
    front: list[Row] = [(0, at, 0, headers) for at, (headers, _) in enumerate(every)]
    ready: list[Row] = [(0, at, 0, headers) for at, (_, headers) in enumerate(every)]
    assert flaws(Window(spark=spark, front=front, ready=ready)) == {"changed": [f"f:0:{at}" for at in range(2, 13)]}


def test_an_id_that_is_the_root_which_its_producer_has_guessed_is_unchanged_too(spark: SparkSession) -> None:
    bounds = replace(BOUNDS, front_id="id")
    front = [(0, 0, 0, [("dt-id", b"f:0:0:id")]), (0, 1, 0, [("dt-id", b"f:0:0:id")])]
    ready = [(0, 0, 0, release(("f", 0, 0))), (0, 1, 0, release(("f", 0, 1)))]
    assert flaws(Window(spark=spark, front=front, ready=ready, bounds=bounds)) == {"changed": ["f:0:1"]}


def test_a_value_that_changed(spark: SparkSession) -> None:
    window = Window(spark=spark, front=front_of(3), ready=ready_of(0, 1, 2), ready_values={1: b"VALUE"})
    assert flaws(window) == {"changed": ["f:0:1"]}
    assert named(window, "changed") == ["f:0:1 r:0:1"]


def test_a_copy_has_what_workers_see_of_a_header_key_with_a_zero_byte(spark: SparkSession) -> None:
    """librdkafka cuts the key there. Any producer could once make the audit report `Violated`. A worker writes no such key, so what is in
    the ready topic is not cut."""
    sent: list[Header] = [("trace\0x", b"1"), ("\0", b"2"), ("dt-delay-level\0y", b"2"), ("trace", b"\0")]
    seen: list[Header] = [("trace", b"1"), ("", b"2"), ("trace", b"\0")]
    front: list[Row] = [(0, at, 0, sent) for at in range(2)]
    delays: list[Row] = [(1, 0, 0, sent)]
    kept = [release(place, 10_000, foreign=seen) for place in (("f", 0, 0), ("d", 1, 0))]
    altered = release(("f", 0, 1), 10_000, foreign=[("trace\0z", b"1"), *seen[1:]])
    ready = [(0, at, 10_000, headers) for at, headers in enumerate((*kept, altered))]
    assert flaws(Window(spark=spark, front=front, delays=delays, ready=ready)) == {"changed": ["f:0:1"]}
