"""The number of records that are due within each time, as it follows from Kafka's offsets for times."""

from collections.abc import Mapping

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.due import DUE_WITHIN_SECONDS, offsets_due_within

NOW_MS = 1_000_000_000
MAIN, HOUR = ("orders.delays", 0), ("orders.delays", 1)
APPENDED_MS = {MAIN: [NOW_MS - 5], HOUR: [NOW_MS - 3_700_000, NOW_MS - 3_600_000, NOW_MS - 3_599_999, NOW_MS - 1]}


def offsets_for_times(times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
    """Answers as Kafka does: with the first offset that was appended at the time or later."""
    return {
        key: next((offset for offset, appended_ms in enumerate(APPENDED_MS[key]) if appended_ms >= at_ms), None)
        for key, at_ms in times_ms.items()
    }


def test_records_are_counted_by_when_their_delay_is_over() -> None:
    ends = {key: len(appended) for key, appended in APPENDED_MS.items()}
    found = offsets_due_within(offsets_for_times, {MAIN: 0, HOUR: 3_600_000}, ends, now_ms=NOW_MS)
    assert dict(zip(DUE_WITHIN_SECONDS, found[HOUR], strict=True)) == {0: 2, 60: 3, 600: 3, 3600: 4, 86_400: 4}
    assert found[MAIN] == (1, 1, 1, 1, 1)


def test_what_came_after_the_end_was_read_is_not_counted() -> None:
    found = offsets_due_within(offsets_for_times, {HOUR: 3_600_000}, {HOUR: 1}, now_ms=NOW_MS)
    assert found == {HOUR: (1, 1, 1, 1, 1)}


def test_a_partition_that_is_not_answered_is_left_out() -> None:
    assert offsets_due_within(lambda _: {}, {MAIN: 0, HOUR: 3_600_000}, {MAIN: 1, HOUR: 4}, now_ms=NOW_MS) == {}
