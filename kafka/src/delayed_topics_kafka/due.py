"""Finds out when waiting records have their turn, from the offsets that Kafka has for timestamps. No record is read."""

from collections.abc import Callable, Mapping
from typing import Final

from delayed_topics_core.offsets import TopicPartitionKey

DUE_WITHIN_SECONDS: Final = (0, 60, 600, 3600, 86_400)
"""Waiting records are counted by when they have their turn: now, or within a minute, ten minutes, an hour or a day."""

OffsetsForTimes = Callable[[Mapping[TopicPartitionKey, int]], Mapping[TopicPartitionKey, int | None]]
"""As `KafkaAdmin.offsets_for_times`, but without errors: a partition without an answer is left out."""


def offsets_due_within(
    offsets_for_times: OffsetsForTimes,
    waits_ms: Mapping[TopicPartitionKey, int],
    ends: Mapping[TopicPartitionKey, int],
    *,
    now_ms: int,
) -> dict[TopicPartitionKey, tuple[int, ...]]:
    """Returns for each partition and each of DUE_WITHIN_SECONDS the offset below which records have their turn by then.

    `waits_ms` is how long the records of each partition wait. `ends` has the end offset of each partition.
    """
    found: dict[TopicPartitionKey, tuple[int, ...]] = dict.fromkeys(ends, ())
    for seconds in DUE_WITHIN_SECONDS:
        since_ms = {key: max(0, now_ms - waits_ms[key] + seconds * 1000 + 1) for key in found}
        # if records wait no longer than `seconds`, all of them have their turn by then, whenever they were appended
        lookups = {key: at_ms for key, at_ms in since_ms.items() if seconds * 1000 < waits_ms[key] or not seconds}
        first_later = offsets_for_times(lookups) if lookups else {}
        answered = found.keys() - lookups.keys() | first_later.keys()
        found = {
            key: (*found[key], ends[key] if (offset := first_later.get(key)) is None else min(offset, ends[key]))
            for key in found
            if key in answered
        }
    return found
