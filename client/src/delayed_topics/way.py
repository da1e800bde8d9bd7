"""Finds out what became of one record: its hops, releases and dead letters, which name it in `dt-origin`.

The partition of a copy follows from the record's root. A copy was appended when a worker had read the record, or when the record was due.
Therefore only a few offsets of that partition have to be read. If they have no copy and the record's offset is committed, everything that
was appended after the record is read.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.headers import (
    ATTEMPT,
    DELAY_LEVEL,
    ID,
    ORIGIN,
    REASON,
    ROOT,
    TARGET,
    Root,
    Target,
    origin,
)
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.words import counted
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import values_of

from delayed_topics.positions import read_positions
from delayed_topics.record import number_in
from delayed_topics.scan import Found, Range, Ranges, Scanner

T = TypeVar("T")
State = Literal["Released", "DeadLettered", "Cancelled", "Pending", "Missing"]
_SPELLED: Final = re.compile(
    r"(?P<topic_letter>[fdr]):(?P<p1>\d{1,9}):(?P<o1>\d{1,18})(:(?P<id>[\w-]+))?|((?P<topic>[\w.-]+)-)?(?P<p2>\d{1,9})@(?P<o2>\d{1,18})"
)


class RecordNotFound(DelayedTopicsError):
    """There is no such record, or it no longer exists."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordPlace:
    """The place of a record. `topic_id` is the id of its topic, if that is known."""

    topic: str
    partition: int
    offset: int
    topic_id: str | None = None

    @classmethod
    def parse(cls, text: str, names: TopicNames) -> "RecordPlace":
        """Parses a value of `dt-root` or `dt-origin`, or `<topic>-<partition>@<offset>`. Without a topic, this is the front topic.

        Raises ValueError.
        """
        match = _SPELLED.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a place of a record. Write {names.front}-0@42, or 0@42 for the same, or a value of dt-root, "
                "such as f:0:42:…"
            )
        if match["topic_letter"]:
            topic = {"f": names.front, "d": names.delays, "r": names.ready}[match["topic_letter"]]
            return cls(topic=topic, partition=int(match["p1"]), offset=int(match["o1"]), topic_id=match["id"])
        topic = match["topic"] or names.front
        if topic not in names.topics:
            raise ValueError(f"{topic} is not one of the topics {', '.join(names.topics)}")
        return cls(topic=topic, partition=int(match["p2"]), offset=int(match["o2"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """The way of one attempt. `records` has the record that came in, and its copies in the order in which they were made.

    `due_at_ms` is the earliest time at which a pending record comes out.
    """

    records: tuple[Found, ...]
    state: State
    due_at_ms: int | None = None


class Ways:
    """Finds the ways of records. `announce` gets a sentence about what is read, before each read of more than one offset."""

    def __init__(
        self,
        connection: Connection,
        layout: LayoutRecord,
        scanner: Scanner,
        *,
        announce: Callable[[str], object],
        all_copies: bool = False,
    ) -> None:
        self._connection = connection
        self._admin = KafkaAdmin(connection, client_id="delayed-topics-client")
        self._layout = layout
        self._names = TopicNames.of(layout.topic)
        self._scanner = scanner
        self._announce = announce
        self._all_copies = all_copies
        infos = values_of(self._admin.describe_topics(self._names.topics))
        self._ids = {name: info.id for name, info in infos.items() if info is not None}
        self._partitions = {name: 0 if info is None else info.partitions for name, info in infos.items()}

    def at(self, place: RecordPlace) -> Way:
        """Returns the way of the attempt that the record at this place belongs to. The way begins at this place if the record that came in
        no longer exists.

        Raises RecordNotFound, KafkaCallError.
        """
        record = self._record(place)
        root = _decoded(Root.decode, record.own.get(ROOT)) if record.topic != self._names.front else None
        came_in = self._rooted(root) if root is not None else None
        return self._way(came_in or record)

    def of_id(self, record_id: str, *, since_ms: int | None, until_ms: int | None) -> list[Way]:
        """Returns the ways of all attempts with this id that came in by the front topic in this time. Raises RecordNotFound,
        KafkaCallError."""
        wanted = os.fsencode(record_id)  # a foreign producer may have written any bytes
        first = self._first_of(wanted)
        found: list[Found] = [first] if first is not None else []
        if since_ms is None and first is not None:
            since_ms = first.at_ms

        def take(record: Found) -> bool:
            if record.own.get(ID) == wanted:
                found.append(record)
            return False

        self._read(self._ranges(self._all(self._names.front), since_ms, until_ms), take)
        if not found:
            raise RecordNotFound(
                f"{self._names.front} has no committed record with the dt-id {record_id!r} in the time that was searched. "
                "Records that were written into a delays partition, or got their dt-id from a worker, are found only by their place"
            )
        return [self._way(record) for record in sorted(found, key=lambda r: r.at_ms)]

    def _first_of(self, record_id: bytes) -> Found | None:
        """Returns the record at the place that the id names, if there is one: a record that came in without an id gets its root as its
        id."""
        try:
            return self._rooted(Root.decode(record_id))
        except ValueError:
            return None

    def _rooted(self, root: Root) -> Found | None:
        """Returns the record that came in at this root, None if it no longer exists."""
        topic = self._names.front if root.topic_letter == "f" else self._names.delays
        try:
            return self._record(
                RecordPlace(topic=topic, partition=root.partition, offset=root.offset, topic_id=root.topic_id)
            )
        except RecordNotFound:
            return None

    def _record(self, place: RecordPlace) -> Found:
        key = (place.topic, place.partition)
        count = self._count(place.topic)
        if place.partition >= count:
            raise RecordNotFound(
                f"{place.topic} has no partition {place.partition}. It has {counted(count, 'partition')}, counted from 0"
            )
        if place.topic_id not in (None, self._ids[place.topic]):
            raise RecordNotFound(
                f"the record was in a former topic {place.topic} with the id {place.topic_id}. The present topic has the id "
                f"{self._ids[place.topic]}"
            )
        (span,) = self._ranges([key], None, None).values()
        if not span.start <= place.offset < span.end:
            there = (
                f"It has committed records from offset {span.start} to {span.end - 1}"
                if span.start < span.end
                else "It has no committed records"
            )
            raise RecordNotFound(
                f"{place.topic} [{place.partition}] has no committed record at offset {place.offset}. {there}. Either retention removed "
                "the record, or it is not written or committed yet"
            )
        found: list[Found] = []

        def take(record: Found) -> bool:
            found.append(record)
            return True

        self._scanner.read({key: Range(place.offset, place.offset + 1)}, take)
        if not found:
            raise RecordNotFound(
                f"{place.topic} [{place.partition}] has no committed record at offset {place.offset}. The offset belongs to the mark of a "
                "transaction, or to a transaction that was aborted"
            )
        return found[0]

    def _way(self, first: Found) -> Way:
        records, waits = [first], None
        for record in records:  # the loop itself appends to the list
            if record.topic in (self._names.front, self._names.delays):
                settled, due_at_ms = self._settled(record), self._due_at_ms(record)
                waits = None if settled else due_at_ms
                not_yet = record.topic == self._names.delays and not settled and due_at_ms > time.time() * 1000
                copies = [] if not_yet else self._copies(record, due_at_ms, search=settled)
            else:
                copies = self._rejections(record) if record.topic != self._names.dead_letter else []
            records += [copy for copy in copies if copy not in records]
        topics = {record.topic for record in records}
        if self._names.dead_letter in topics:
            reasons = {record.own.get(REASON) for record in records if record.topic == self._names.dead_letter}
            cancelled = reasons == {DeadLetterReason.CANCELLED.encode()}
            return Way(records=tuple(records), state="Cancelled" if cancelled else "DeadLettered")
        if topics & {self._names.ready, *self._layout.all_targets}:
            return Way(records=tuple(records), state="Released")
        return Way(records=tuple(records), state="Missing" if waits is None else "Pending", due_at_ms=waits)

    def _copies(self, source: Found, due_at_ms: int, *, search: bool) -> list[Found]:
        """Returns the copies that were made of this record. With `search`, reads all partitions if no copy is where it should be."""
        hops, releases = self._expected(source)
        due_at_ms = due_at_ms if source.topic == self._names.delays else source.at_ms
        expected = {
            **self._ranges(releases, due_at_ms, None),
            **self._ranges(hops, source.at_ms, None),
            **self._ranges(self._all(self._names.dead_letter), source.at_ms, None),
        }
        copies = self._copies_naming(source, expected)
        if copies or not search:
            return copies
        # only records with a target are released into other ready topics, which this user may have no right to read
        targets = self._layout.all_targets if TARGET in source.own else ()
        names = (self._names.delays, self._names.dead_letter, self._names.ready, *targets)
        everywhere = [key for name in names for key in self._all(name)]
        after = self._ranges(everywhere, source.at_ms, None)
        return self._copies_naming(source, {key: _unread(span, expected.get(key)) for key, span in after.items()})

    def _rejections(self, ready: Found) -> list[Found]:
        """Returns the dead letters that a consumer made of a released record."""
        return self._copies_naming(ready, self._ranges(self._all(self._names.dead_letter), ready.at_ms, None))

    def _copies_naming(self, source: Found, ranges: Ranges) -> list[Found]:
        """Returns the copies that name the record as their origin: the first one, or all of them."""
        topic_letter = {self._names.front: "f", self._names.delays: "d"}.get(source.topic, "r")
        named = origin(topic_letter, source.partition, source.offset)
        # several ready topics may have this partition and offset, so the root has to match, too
        root = source.own.get(ROOT) if topic_letter == "r" else None
        copies: list[Found] = []

        def take(record: Found) -> bool:
            if record.own.get(ORIGIN) == named and root in (None, record.own.get(ROOT)):
                copies.append(record)
            return bool(copies) and not self._all_copies

        self._read(ranges, take)
        return sorted(copies, key=lambda record: record.at_ms)

    def _expected(self, source: Found) -> tuple[list[TopicPartitionKey], list[TopicPartitionKey]]:
        """Returns the partitions that may have a hop, and those that may have a release. For a record that a client wrote into the delays
        topic, these are all partitions."""
        in_front = Root("f", source.partition, source.offset, "")
        in_delays = source.topic == self._names.delays
        root = _decoded(Root.decode, source.own.get(ROOT)) if in_delays else in_front
        target = _decoded(Target.decode, source.own.get(TARGET))
        ready = target.topic if target is not None and target.topic in self._layout.all_targets else self._names.ready
        if root is None or root.topic_letter == "d":
            return self._all(self._names.delays), self._all(ready)
        layout = self._layout.layout
        lanes = {layout.partition_for(kind.delay_seconds, root.partition) for kind in layout.kinds}
        count = self._layout.ready_partitions if ready == self._names.ready else self._count(ready)
        if target is not None and ready == target.topic and target.partition is not None:
            releases = [(ready, target.partition)] if target.partition < count else []
        else:
            releases = [(ready, root.partition % count)] if count else []
        return [(self._names.delays, lane) for lane in sorted(lanes)], releases

    def _due_at_ms(self, source: Found) -> int:
        """Returns the due time of a record in the front or the delays topic, from its own headers or else from the present layout."""
        layout = self._layout.layout
        if source.topic == self._names.delays:
            if source.partition >= layout.partition_count:
                raise RecordNotFound(
                    f"somebody added partition {source.partition} of {source.topic}, which no layout contains. No worker releases the "
                    "records in it. Send them to the front topic instead"
                )
            return source.due_at_ms(layout.partition_delays[source.partition])
        level, attempt = number_in(source.own.get(DELAY_LEVEL)), number_in(source.own.get(ATTEMPT)) or 0
        return source.requested_due_at_ms(layout.delay_for_level(level) if level else layout.delay_for_attempt(attempt))

    def _settled(self, source: Found) -> bool:
        key = (source.topic, source.partition)
        positions = read_positions(self._connection, self._admin, self._layout.group, [key])
        return key in positions.known and positions.known[key].is_finished(source.offset)

    def _all(self, topic: str) -> list[TopicPartitionKey]:
        return [(topic, partition) for partition in range(self._count(topic))]

    def _count(self, topic: str) -> int:
        """Returns the number of the topic's partitions, 0 if the topic is missing."""
        if topic not in self._partitions:
            info = values_of(self._admin.describe_topics([topic]))[topic]
            self._partitions[topic] = 0 if info is None else info.partitions
        return self._partitions[topic]

    def _ranges(
        self, keys: Iterable[TopicPartitionKey], since_ms: int | None, until_ms: int | None
    ) -> dict[TopicPartitionKey, Range]:
        """Returns the offsets that were appended between the two times. The clocks of brokers may differ by `broker_skew_ms`."""
        partitions, skew_ms = list(keys), self._layout.broker_skew_ms
        stable = values_of(self._admin.list_offsets(partitions, "latest", isolation="read_committed"))
        starts: Mapping[TopicPartitionKey, int | None]
        ends: Mapping[TopicPartitionKey, int | None] = stable
        if since_ms is None:
            starts = values_of(self._admin.list_offsets(partitions, "earliest"))
        else:
            starts = values_of(self._admin.offsets_for_times(dict.fromkeys(partitions, max(0, since_ms - skew_ms))))
        if until_ms is not None:
            ends = values_of(self._admin.offsets_for_times(dict.fromkeys(partitions, until_ms + skew_ms)))
        return {key: _range(starts[key], ends[key], stable[key]) for key in partitions}

    def _read(self, ranges: Ranges, take: Callable[[Found], bool]) -> None:
        offsets = sum(max(0, span.end - span.start) for span in ranges.values())
        if offsets > 1:
            topics = sorted({topic for (topic, _), span in ranges.items() if span.start < span.end})
            self._announce(f"reading at most {offsets} offsets of {', '.join(topics)}")
        self._scanner.read(ranges, take)


def _range(start: int | None, end: int | None, stable: int) -> Range:
    """Returns the range between two offsets that were looked up by time. None means that no record of the partition is that new."""
    return Range(stable if start is None else start, stable if end is None else min(end, stable))


def _unread(span: Range, read: Range | None) -> Range:
    return span if read is None else Range(span.start, min(span.end, read.start))


def _decoded(decode: Callable[[bytes], T], value: bytes | None) -> T | None:
    try:
        return decode(value or b"")
    except ValueError:
        return None
