"""A dead letter is checked against the headers and the size of its record, and against the retry cap of that time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from delayed_topics_audit.promise import CLOCKS_MS, Declared
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    DELAYS_MS,
    PROMISE,
    Row,
    Window,
    dead_letter,
    fates,
    flaws,
    hop,
    level,
    release,
    retry,
)
from delayed_topics_core.headers import Header
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EDITED_MS = 2 * CLOCKS_MS
"""The time of the first edit, in milliseconds after AT_MS."""


def caps(*declared: int) -> tuple[Declared, ...]:
    """Declarations that follow each other, each of which applies for EDITED_MS."""
    begins = [AT_MS + at * EDITED_MS if at else 0 for at in range(len(declared))]
    return tuple(
        Declared(list_ms=DELAYS_MS, retry_cap=cap, from_ms=begin, until_ms=end)
        for cap, begin, end in zip(declared, begins, (*begins[1:], None), strict=True)
    )


def died(
    spark: SparkSession, *letters: tuple[int, Sequence[Header], Sequence[Header]], retry_caps: Sequence[int] = (5,)
) -> Window:
    """Front records that became dead letters. `letters`: append time, headers of the record, headers of the dead letter."""
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
    noted = replace(PROMISE.lists[0], from_ms=AT_MS)
    assert flaws(replace(window, promise=replace(PROMISE, lists=[noted]))) == {}


def test_after_more_edits_than_are_noted_the_cap_still_holds_for_what_came_in_since(spark: SparkSession) -> None:
    """The operator notes 50 delay lists. The audit once checked no dead letter against the cap after the 51st."""
    times_ms = (-2 * CLOCKS_MS, CLOCKS_MS - 1, CLOCKS_MS)
    window = died(spark, *((ms, retry(5), exceeded(at, 5)) for at, ms in enumerate(times_ms)))
    noted = replace(PROMISE.lists[0], from_ms=AT_MS)
    assert flaws(replace(window, promise=replace(PROMISE, lists=[noted]))) == {"wrongly_dead_lettered": ["f:0:2"]}


TWICE: list[Header] = [("dt-error", b"x"), ("dt-error", b"y")]


def died_of(offset: int, reason: DeadLetterReason, foreign: Sequence[Header] = (), attempt: int = 0) -> list[Header]:
    return [*foreign, *dead_letter(("f", 0, offset), attempt=attempt, reason=reason)]


def test_a_reason_that_the_records_own_headers_do_not_bear_out_is_none(spark: SparkSession) -> None:
    """A reason that no worker writes is wrong, too, and so is that of a consumer, whose dead letters name no front record. Only the first
    two dead letters are right."""
    invented = [(name, b"Whatever" if name == "dt-reason" else value) for name, value in exceeded(6, 6)]
    window = died(
        spark,
        (0, TWICE, died_of(0, DeadLetterReason.HEADER_TWICE)),
        (0, [*TWICE, ("dt-attempt", b"9")], died_of(1, DeadLetterReason.HEADER_TWICE)),
        (0, TWICE, died_of(2, DeadLetterReason.HEADER_UNREADABLE)),
        (0, [], died_of(3, DeadLetterReason.HEADER_TWICE)),
        (0, [*TWICE, *retry(6)], exceeded(4, 0)),
        (0, retry(6), died_of(5, DeadLetterReason.REJECTED, attempt=6)),
        (0, retry(6), invented),
    )
    assert flaws(window) == {"wrongly_dead_lettered": [f"f:0:{offset}" for offset in range(2, 7)]}


def test_a_record_that_no_topic_refuses_is_not_too_large(spark: SparkSession) -> None:
    """A record can be too large by its value or by its headers. Only the first record is small enough for every topic. If a dead letter
    has no value, nothing but the size of its record is checked."""
    large = b"x" * 20_000
    headers: list[Sequence[Header]] = [[], [("trace", large)], [], [], [], retry(2)]
    letters = [died_of(at, DeadLetterReason.TOO_LARGE, foreign=kept) for at, kept in enumerate(headers[:5])]
    letters.append(died_of(5, DeadLetterReason.TOO_LARGE, attempt=3))
    window = replace(
        died(spark, *((0, kept, letter) for kept, letter in zip(headers, letters, strict=True))),
        bounds=replace(BOUNDS, least_limit_bytes=30_000),
        front_values={2: large, 3: large, 4: large, 5: large},
        dead_values={0: None, 2: large, 3: None, 4: b"altered", 5: None},
    )
    assert flaws(window) == {"changed": ["f:0:4"], "wrong_attempt": ["f:0:5"], "wrongly_dead_lettered": ["f:0:0"]}


def test_a_dead_letter_without_a_header_of_its_record_is_changed(spark: SparkSession) -> None:
    window = died(
        spark,
        (0, [*retry(6), ("trace", b"1")], exceeded(0, 6)),
        (0, [*TWICE, ("trace", b"1")], died_of(1, DeadLetterReason.HEADER_TWICE)),
    )
    assert flaws(window) == {"changed": ["f:0:0", "f:0:1"]}


def test_where_a_key_may_be_no_utf_8_the_headers_are_not_judged_and_other_reasons_are(spark: SparkSession) -> None:
    """Java shows such a key with a replacement character, which a valid key may also contain."""
    unreadable: list[Header] = [("tr\ufffdce", b"1"), *retry(3)]
    window = died(
        spark,
        (0, unreadable, died_of(0, DeadLetterReason.HEADER_UNREADABLE)),
        (0, unreadable, died_of(1, DeadLetterReason.HEADER_TWICE)),
    )
    assert flaws(window) == {"wrongly_dead_lettered": ["f:0:1"]}


def test_where_there_are_more_headers_than_a_worker_reads_they_are_not_judged_and_other_reasons_are(
    spark: SparkSession,
) -> None:
    """The last record has the maximum that a worker reads."""
    most: list[Header] = [("h", None)] * 99_983
    letters = [died_of(at, DeadLetterReason.HEADER_UNREADABLE) for at in range(3)]
    letters[1] = died_of(1, DeadLetterReason.HEADER_TWICE)
    headers = [[*most, ("h", None)], [*most, ("h", None)], most]
    window = died(spark, *((0, said, letter) for said, letter in zip(headers, letters, strict=True)))
    found = flaws(window)
    assert found["wrongly_dead_lettered"] == ["f:0:1", "f:0:2"]
    assert found.get("changed") in (None, ["f:0:2"])


def test_a_record_whose_headers_had_to_be_refused_and_that_came_out_was_wrongly_released(spark: SparkSession) -> None:
    """The audit once asked only whether a dead letter had a reason. Of the third record it is not known which headers a worker sees."""
    illegible: Header = ("dt-deliver-at", b"tomorrow")
    records: list[Sequence[Header]] = [[illegible], [*level(1), *level(1)], [("tr\ufffdce", b"1"), illegible], []]
    window = Window(
        spark=spark,
        front=[(0, at, at, headers) for at, headers in enumerate(records)],
        ready=[(0, at, at, release(("f", 0, at), at)) for at in range(len(records))],
    )
    assert flaws(window) == {"wrongly_released": ["f:0:0", "f:0:1"]}


REQUEST = b"cancel"


def test_a_cancelled_record_is_held_against_the_control_topic_and_against_itself(spark: SparkSession) -> None:
    """The first four are right. They were cancelled by root, by id, by a request that was withdrawn later, and by a request for an
    earlier attempt, of which only the answer is left. For the fifth there is only the worker's own answer. The others were requested,
    but their dead letters are wrong."""
    of_customer: list[Header] = [("dt-id", b"order-42")]
    records: list[Sequence[Header]] = [[], of_customer, [], [], [], of_customer, TWICE, retry(1), []]
    letters = [
        dead_letter(("f", 0, at), attempt=2 if at == 7 else 0, reason=DeadLetterReason.CANCELLED, client=headers)
        for at, headers in enumerate(records)
    ]
    letters[5] = dead_letter(("f", 0, 5), reason=DeadLetterReason.CANCELLED, client=[("dt-id", b"f:0:0:id")])
    window = replace(
        died(spark, *((10, kept, letter) for kept, letter in zip(records, letters, strict=True))),
        control=[
            *((b"f:0:%d:id" % at, REQUEST, 0) for at in (0, 2, 6, 7, 8)),
            (b"order-42", b"too-late", 5),
            (b"f:0:2:id", None, 12),
            (b"f:0:3:id", b"cancelled", 9),
            (b"f:0:4:id", b"cancelled", 12),
            (None, REQUEST, 0),
        ],
        dead_values={8: b"altered"},
    )
    assert flaws(window) == {
        "wrong_attempt": ["f:0:7"],
        "changed": ["f:0:5", "f:0:8"],
        "wrongly_dead_lettered": ["f:0:4", "f:0:6"],
    }
    without_requests = replace(window, control=None)
    assert flaws(without_requests)["wrongly_dead_lettered"] == [f"f:0:{at}" for at in range(9)]


def test_a_request_to_cancel_that_came_afterwards_or_a_request_of_another_kind_excuses_no_dead_letter(
    spark: SparkSession,
) -> None:
    """The audit once took any value for a request to cancel, whenever it came."""
    values = (b"cancel", b"deliver-at 1", b"too-far 1", b"no-room", b"cancel")
    letters = [dead_letter(("f", 0, at), reason=DeadLetterReason.CANCELLED) for at in range(len(values))]
    window = replace(
        died(spark, *((10, [], letter) for letter in letters)),
        control=[(b"f:0:%d:id" % at, value, 12 if at == 0 else 11) for at, value in enumerate(values)],
    )
    assert flaws(window) == {"wrongly_dead_lettered": [f"f:0:{at}" for at in range(4)]}


def test_what_hopped_and_was_cancelled_in_its_delays_partition_is_in_the_account_of_that(spark: SparkSession) -> None:
    hopped = hop(("f", 0, 0), 10_000)
    letter = dead_letter(("d", 1, 0), root=("f", 0, 0), reason=DeadLetterReason.CANCELLED)
    window = Window(
        spark=spark,
        front=[(0, 0, 0, level(2))],
        delays=[(1, 0, 1, hopped)],
        dead=[(0, 0, 10_000, letter)],
        control=[(b"f:0:0:id", REQUEST, 5)],
    )
    assert (fates(window), flaws(window)) == ({"f:0:0": "hopped", "d:1:0": "cancelled"}, {})


def test_what_was_released_and_is_cancelled_too_is_doubled_and_its_release_is_early_only_if_it_is(
    spark: SparkSession,
) -> None:
    """A worker cancelled both records before they were due and crashed. The request was withdrawn, and the next worker released them."""
    cancelled = [dead_letter(("f", 0, at), reason=DeadLetterReason.CANCELLED) for at in range(2)]
    window = Window(
        spark=spark,
        front=[(0, 0, 0, level(2)), (0, 1, 0, level(2))],
        ready=[(0, at, ms, release(("f", 0, at), 10_000)) for at, ms in enumerate((10_001, 9_999))],
        dead=[(0, at, 5_000, letter) for at, letter in enumerate(cancelled)],
        control=[(b"f:0:%d:id" % at, REQUEST, 0) for at in range(2)],
    )
    assert flaws(window) == {"doubled": ["f:0:0", "f:0:1"], "early": ["f:0:1"]}
    assert set(fates(window).values()) == {"released"}
