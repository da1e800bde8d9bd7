"""When records that wait have their turn, by the offsets for times that Kafka knows: no record is read."""

from collections.abc import Callable, Mapping
from typing import Final

from delayed_topics_core.offsets import TopicPartitionKey

DUE_WITHIN_SECONDS: Final = (0, 60, 600, 3600, 86_400)
"""Records that wait are counted by when they have their turn: now, within a minute, ten minutes, an hour, a day."""

OffsetsForTimes = Callable[[Mapping[TopicPartitionKey, int]], Mapping[TopicPartitionKey, int | None]]
"""As `KafkaAdmin.offsets_for_times`, without errors; a partition that was not answered is left out."""


def offsets_due_within(
    offsets_for_times: OffsetsForTimes,
    waits_ms: Mapping[TopicPartitionKey, int],
    ends: Mapping[TopicPartitionKey, int],
    *,
    now_ms: int,
) -> dict[TopicPartitionKey, tuple[int, ...]]:
    """By partition: below which offset records have their turn, for each of DUE_WITHIN_SECONDS.

    `waits_ms`: how long the records of each partition wait. `ends`: of its offsets.
    """
    found: dict[TopicPartitionKey, tuple[int, ...]] = dict.fromkeys(ends, ())
    for seconds in DUE_WITHIN_SECONDS:
        since_ms = {key: max(0, now_ms - waits_ms[key] + seconds * 1000 + 1) for key in found}
        # what waits no longer than that has its turn within it, whenever it came
        asked = {key: at_ms for key, at_ms in since_ms.items() if seconds * 1000 < waits_ms[key] or not seconds}
        first_later = offsets_for_times(asked) if asked else {}
        answered = found.keys() - asked.keys() | first_later.keys()
        found = {
            key: (*found[key], ends[key] if (offset := first_later.get(key)) is None else min(offset, ends[key]))
            for key in found
            if key in answered
        }
    return found
