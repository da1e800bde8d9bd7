"""Partitions that have something to read and give nothing: a transaction is open, or a batch can't be decoded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaDoorError
from delayed_topics_kafka.model import TopicPartitionKey

from delayed_topics_worker.background import Repeated
from delayed_topics_worker.owned import Owned

UNREADABLE_SECONDS: Final = 30.0
SUSPECT_SECONDS: Final = 10.0
"""Then Kafka is asked why, so that the reason is known when it is said."""
ASK_SECONDS: Final = 5.0
MOST_AT_ONCE_SECONDS: Final = 2.0
"""Of the time between two looks: a worker that stood still has not waited in vain meanwhile."""


class Span(NamedTuple):
    """What is unread of a partition: from `position` up to `end`, as far as the client knows without asking. An end below 0
    isn't known."""

    position: int
    end: int

    @property
    def unread(self) -> int:
        return max(0, self.end - self.position)


class Silent(NamedTuple):
    """A partition from which nothing was read for so long, though there is something."""

    place: TopicPartitionKey
    span: Span
    seconds: float


def unread_span(consumer: Consumer, owned: Owned) -> Span:
    """Markers of transactions count as read: the client passes them in silence, and tells by its own position only."""
    if owned.window is None:
        return Span(0, -1)
    position, place = owned.window.position, TopicPartition(owned.topic, owned.partition)
    try:
        _, end = consumer.get_watermark_offsets(place, cached=True)
        if owned.takes_in and end > position:
            position = max(position, consumer.position([place])[0].offset)
    except KafkaException:
        return Span(position, -1)
    return Span(position, end)


class Silence:
    """For how long each partition has given nothing. `now`: seconds of any steady clock."""

    def __init__(self) -> None:
        self._quiet: dict[TopicPartitionKey, tuple[Span, float]] = {}
        self._looked_at: float | None = None

    def look(
        self,
        reading: Mapping[TopicPartitionKey, Span],
        rewinding: Iterable[TopicPartitionKey] = (),
        *,
        now: float,
    ) -> list[Silent]:
        """Those that are silent for long enough to be suspected. `reading`: all that should be read now. `rewinding`: those
        that are about to be read again; their time stands still. Others are forgotten."""
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, MOST_AT_ONCE_SECONDS)
        self._looked_at = now
        before = self._quiet
        self._quiet = {place: before[place] for place in rewinding if place in before}
        for place, span in reading.items():
            last, seconds = before.get(place, (span, 0.0))
            silent = span.unread and last.unread and span.position == last.position
            self._quiet[place] = span, seconds + passed if silent else 0.0
        return [
            Silent(place, span, seconds) for place, (span, seconds) in self._quiet.items() if seconds >= SUSPECT_SECONDS
        ]


class StableEnds:
    """`ends`, of the partitions asked about: the offset from which on Kafka gives no committed records. Replaced as a whole by a
    thread of its own and read by the worker's."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self.ends: Mapping[TopicPartitionKey, int | KafkaDoorError] = {}
        self._admin = admin
        self._asked: Sequence[TopicPartitionKey] = ()
        self._thread = Repeated("stable-ends", self._see, interval_seconds=ASK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def look(self, places: Sequence[TopicPartitionKey]) -> None:
        """From now on about these."""
        self._asked = tuple(places)

    def close(self) -> None:
        self._thread.close()

    def _see(self) -> None:
        asked = self._asked
        self.ends = self._admin.list_offsets(asked, "latest", isolation="read_committed") if asked else {}
