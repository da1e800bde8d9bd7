"""Counts, for metrics, how many records of the owned delays partitions have their turn within which time. The counts come from offsets;
no record is read."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.due import offsets_due_within

from delayed_topics_worker.background import Watch
from delayed_topics_worker.questions import ask

Pending = Mapping[tuple[str, int], tuple[int, ...]]
"""By front topic and delay in seconds: the number of records that have their turn within each of DUE_WITHIN_SECONDS, and of all records."""


class Unfinished(NamedTuple):
    """A delays partition. All its records below `offset` are released or have hopped on."""

    topic: str
    place: TopicPartitionKey
    delay_seconds: int
    offset: int


class PendingWatch(Watch[Unfinished]):
    """Counts on a thread of its own, which replaces `found` as a whole. The worker's thread reads it."""

    def __init__(self, admin: KafkaAdmin) -> None:
        super().__init__("pending-watch")
        self.found: Pending = {}
        self._admin = admin

    def see(self, places: Sequence[Unfinished], now_ms: int) -> None:
        ends = ask(
            lambda part: self._admin.list_offsets(part, "latest", isolation="read_committed"),
            [one.place for one in places],
        )
        below = offsets_due_within(
            lambda times_ms: ask(
                lambda part: self._admin.offsets_for_times({place: times_ms[place] for place in part}), times_ms
            ),
            {one.place: one.delay_seconds * 1000 for one in places},
            ends,
            now_ms=now_ms,
        )
        counts: dict[tuple[str, int], list[int]] = defaultdict(list)
        for one in places:
            if one.place not in below:
                continue
            each = [max(0, offset - one.offset) for offset in (*below[one.place], ends[one.place])]
            before = counts[one.topic, one.delay_seconds] or [0] * len(each)
            counts[one.topic, one.delay_seconds] = [a + b for a, b in zip(before, each, strict=True)]
        self.found = {key: tuple(each) for key, each in counts.items()}
