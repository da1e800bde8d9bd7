"""Finds out from the committed offsets of the workers which records of a delayed topic are finished, or why that is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from delayed_topics_core.commit_metadata import committed_topic_id, decode_metadata
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import values_of

from delayed_topics.scan import Range


class Position(NamedTuple):
    """How far workers are in a partition. Kafka has the offsets `there`. All offsets below `committed` are finished, and above it those in
    `finished`."""

    there: Range
    committed: int
    finished: frozenset[int]

    @property
    def unfinished(self) -> Range:
        """The offsets from `committed` on, including those in `finished`."""
        return Range(max(self.there.start, self.committed), self.there.end)

    @property
    def removed(self) -> int:
        """How many offsets Kafka removed before they were finished."""
        first = self.there.start
        return max(0, first - self.committed - sum(offset < first for offset in self.finished))

    def is_finished(self, offset: int) -> bool:
        return offset < self.committed or offset in self.finished


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What is wrong with partitions of a topic, for people. `partitions` is written as ranges, and None means the whole topic."""

    topic: str
    partitions: str | None
    message: str

    def __str__(self) -> str:
        where = self.topic if self.partitions is None else f"{self.topic} [{self.partitions}]"
        return f"{where}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Positions:
    """`there` has the offsets of all requested partitions, up to the last stable offset. `known` has the partitions with a usable commit.
    `notes` are about the other partitions, and about those from which Kafka removed unfinished records."""

    there: Mapping[TopicPartitionKey, Range]
    known: Mapping[TopicPartitionKey, Position]
    notes: tuple[Note, ...]


def read_positions(
    connection: Connection, admin: KafkaAdmin, group: str, partitions: Iterable[TopicPartitionKey]
) -> Positions:
    """Reads the offsets of the partitions and the commits of the group. Raises KafkaCallError."""
    places = list(partitions)
    topics = values_of(admin.describe_topics(sorted({topic for topic, _ in places})))
    # in this order, so that records which workers finish and Kafka removes meanwhile do not count as removed before they were finished
    first = values_of(admin.list_offsets(places, "earliest"))
    committed = committed_offsets(connection, group, places)
    ends = values_of(admin.list_offsets(places, "latest", isolation="read_committed"))
    there = {place: Range(first[place], ends[place]) for place in places}
    known: dict[TopicPartitionKey, Position] = {}
    affected: dict[tuple[str, str], list[int]] = {}
    for place in places:
        topic, partition = place
        info = topics[topic]
        # a partition that never had a record has none that waits, whether or not a worker has begun there
        at = committed.get(place, OffsetAndMetadata(0) if ends[place] == 0 else None)
        message = _unknown(at, ends[place], info.id if info is not None else None)
        if at is not None and message is None:
            position = known[place] = Position(there[place], at.offset, decode_metadata(at.offset, at.metadata))
            if position.removed:
                message = f"{position.removed:,} offsets from {at.offset} on were removed before they were released"
        if message is not None:
            affected.setdefault((topic, message), []).append(partition)
    notes = (
        Note(topic=topic, partitions=format_ranges(numbers), message=message)
        for (topic, message), numbers in affected.items()
    )
    return Positions(there=there, known=known, notes=tuple(notes))


def _unknown(committed: OffsetAndMetadata | None, end: int, topic_id: str | None) -> str | None:
    """Returns why the commit does not tell which records are finished, or None if it does."""
    if committed is None:
        why = "there is no committed offset. Either no worker has begun here yet, or the offset is gone"
    elif (made_for := committed_topic_id(committed.metadata)) is not None and made_for != topic_id:
        why = "the committed offset is of another topic, which had this name before"
    elif committed.offset > end:
        why = (
            f"the committed offset {committed.offset} is above the end {end}. Either the topic was created again, or Kafka lost its last "
            "records"
        )
    else:
        return None
    return f"it is not known what waits, because {why}"
