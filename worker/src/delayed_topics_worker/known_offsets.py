"""Asks Kafka every few seconds, on a thread of its own, which offsets some partitions have."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError

from delayed_topics_worker.background import Repeated

ASK_SECONDS: Final = 5.0


class Offsets(NamedTuple):
    """`first`: the first offset of the partition. `stable_end`: the offset from which on Kafka delivers no committed records."""

    first: int
    stable_end: int


class KnownOffsets:
    """`found` has the answers about the requested partitions. It is replaced as a whole: by this thread, and by the worker's thread, which
    removes an old answer about a partition that is requested again."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self.found: Mapping[TopicPartitionKey, Offsets | KafkaCallError] = {}
        self._admin = admin
        self._asked: frozenset[TopicPartitionKey] = frozenset()
        self._thread = Repeated("known-offsets", self._see, interval_seconds=ASK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def look(self, places: Iterable[TopicPartitionKey]) -> None:
        """Asks about these partitions from now on, and at once if one of them is new."""
        before, self._asked = self._asked, frozenset(places)
        if self._asked - before:
            self.found = {place: found for place, found in self.found.items() if place in before}
            self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def _see(self) -> None:
        asked = self._asked
        if not asked:
            self.found = {}
            return
        first = self._admin.list_offsets(list(asked), "earliest")
        ends = self._admin.list_offsets(list(asked), "latest", isolation="read_committed")
        self.found = {place: _offsets(first[place], ends[place]) for place in asked}


def _offsets(first: int | KafkaCallError, stable_end: int | KafkaCallError) -> Offsets | KafkaCallError:
    if isinstance(first, KafkaCallError):
        return first
    return stable_end if isinstance(stable_end, KafkaCallError) else Offsets(first, stable_end)
