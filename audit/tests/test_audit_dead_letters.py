"""A dead letter is held against the record that it was made from, and against the cap of its time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from delayed_topics_audit.places import CLOCKS_MS, Declared
from delayed_topics_audit_testing.rows import AT_MS, DELAYS_MS, PROMISE, Row, Window, dead_letter, flaws, retry
from delayed_topics_core.headers import Header
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EDITED_MS = 2 * CLOCKS_MS
"""After AT_MS."""


def caps(*declared: int) -> tuple[Declared, ...]:
    """One after the other, EDITED_MS each."""
    begins = [AT_MS + at * EDITED_MS if at else 0 for at in range(len(declared))]
    return tuple(
        Declared(list_ms=DELAYS_MS, retry_cap=cap, from_ms=begin, until_ms=end)
        for cap, begin, end in zip(declared, begins, (*begins[1:], None), strict=True)
    )


def died(
    spark: SparkSession, *letters: tuple[int, Sequence[Header], Sequence[Header]], retry_caps: Sequence[int] = (5,)
) -> Window:
    """Records of the front topic and what is in the dead-letter topic of each: when, headers, headers."""
    front: list[Row] = [(0, at, ms, headers) for at, (ms, headers, _) in enumerate(letters)]
    dead: list[Row] = [(0, at, ms + 1, headers) for at, (ms, _, headers) in enumerate(letters)]
    return Window(spark=spark, front=front, dead=dead, promise=replace(PROMISE, lists=caps(*retry_caps)))


def exceeded(offset: int, attempt: int) -> list[Header]:
    return dead_letter(("f", 0, offset), attempt=attempt, reason=DeadLetterReason.RETRY_CAP_EXCEEDED)


def test_a_record_that_the_cap_allowed_another_attempt_was_wrongly_dead_lettered(spark: SparkSession) -> None:
    window = died(spark, (0, retry(6), exceeded(0, 6)), (0, retry(5), exceeded(1, 5)))
    assert flaws(window) == {"wrongly_dead_lettered": ["f:0:1"]}


def test_what_the_letter_itself_says_of_its_attempt_is_not_believed(spark: SparkSession) -> None:
    assert flaws(died(spark, (0, retry(5), exceeded(0, 6)))) == {
        "wrong_attempt": ["f:0:0"],
        "wrongly_dead_lettered": ["f:0:0"],
    }


def test_the_cap_is_that_of_the_time_with_some_minutes_before_and_after_an_edit(spark: SparkSession) -> None:
    at_ms = (0, EDITED_MS - CLOCKS_MS // 2, EDITED_MS + CLOCKS_MS // 2, EDITED_MS + CLOCKS_MS + 1)
    lowered = died(spark, *((ms, retry(3), exceeded(at, 3)) for at, ms in enumerate(at_ms)), retry_caps=(5, 2))
    assert flaws(lowered) == {"wrongly_dead_lettered": ["f:0:0"]}
    raised = died(spark, *((ms, retry(3), exceeded(at, 3)) for at, ms in enumerate(at_ms)), retry_caps=(2, 5))
    assert flaws(raised) == {"wrongly_dead_lettered": ["f:0:3"]}


def test_what_was_declared_before_anybody_noted_it_is_nobodys_fault(spark: SparkSession) -> None:
    window = died(spark, (0, retry(5), exceeded(0, 5)))
    assert flaws(replace(window, promise=PROMISE)) == {}


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (DeadLetterReason.RETRY_CAP_EXCEEDED, {"changed": ["f:0:0"]}),
        (DeadLetterReason.HEADER_TWICE, {"changed": ["f:0:0"]}),
        (DeadLetterReason.TOO_LARGE, {}),
        (DeadLetterReason.HEADER_UNREADABLE, {}),
    ],
)
def test_a_dead_letter_without_a_header_of_its_record_is_changed_unless_it_had_to_be_cut(
    spark: SparkSession, reason: DeadLetterReason, found: dict[str, list[str]]
) -> None:
    letter = dead_letter(("f", 0, 0), attempt=6, reason=reason)
    assert flaws(died(spark, (0, [*retry(6), ("trace", b"1")], letter))) == found
