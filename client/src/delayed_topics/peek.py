"""Finds the records of the delays topic whose turn comes next, with a plain consumer that commits nothing."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.headers import ATTEMPT, ID
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.words import counted
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection

from delayed_topics.moments import shown_moment
from delayed_topics.positions import Note, read_positions
from delayed_topics.record import number_in
from delayed_topics.scan import Found, Range, Scanner
from delayed_topics.way_shown import record_as_dict, shown

MIN_READ: Final = 100
"""The least number of offsets to read at a time from a partition. With ExactlyOnce, up to half of them are transaction markers."""


class PartitionNotThere(DelayedTopicsError):
    """The delays topic has no such partition, or no partition with this delay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Next:
    """A waiting record. At `turn_at_ms`, a worker releases the record, or copies it on if `due_at_ms` is later."""

    record: Found
    delay_seconds: int
    due_at_ms: int

    @property
    def turn_at_ms(self) -> int:
        return min(self.due_at_ms, self.record.at_ms + self.delay_seconds * 1000)


def partitions_of(layout: LayoutRecord, *, partition: int | None, delay_seconds: int | None) -> list[int]:
    """Returns the partitions of the delays topic that match `partition` and `delay_seconds`. None matches all. Raises PartitionNotThere."""
    delays = layout.layout.partition_delays
    topic = TopicNames.of(layout.topic).delays
    if partition is not None and not 0 <= partition < len(delays):
        raise PartitionNotThere(
            f"{topic} has no partition {partition}. It has {counted(len(delays), 'partition')}, counted from 0"
        )
    if delay_seconds is not None and delay_seconds not in delays:
        had = ", ".join(f"{delay} s" for delay in sorted(set(delays)))
        raise PartitionNotThere(
            f"{topic} has no partition for a delay of {delay_seconds} s. It has partitions for {had}"
        )
    return [
        number for number, delay in enumerate(delays) if partition in (None, number) and delay_seconds in (None, delay)
    ]


def peek(
    connection: Connection, layout: LayoutRecord, scanner: Scanner, partitions: Collection[int], *, count: int
) -> tuple[list[Next], Sequence[Note]]:
    """Returns the next `count` records of these partitions of the delays topic, in the order of their turns, and notes on what is unknown.

    Of each partition, only the waiting records that were appended first are considered. If it is unknown which records of a partition are
    finished, all of them count as waiting. Raises KafkaCallError.
    """
    topic = TopicNames.of(layout.topic).delays
    places = [(topic, number) for number in partitions]
    admin = KafkaAdmin(connection, client_id="delayed-topics-client")
    positions = read_positions(connection, admin, layout.group, places)
    known = positions.known
    left = {place: known[place].unfinished if place in known else there for place, there in positions.there.items()}
    found: dict[TopicPartitionKey, list[Found]] = {place: [] for place in places}

    def take(record: Found) -> bool:
        place = (record.topic, record.partition)
        if place not in known or not known[place].is_finished(record.offset):
            found[place].append(record)
        return False

    while wanting := {p: span for p, span in left.items() if len(found[p]) < count and span.start < span.end}:
        spans = {p: Range(start, min(end, start + max(count, MIN_READ))) for p, (start, end) in wanting.items()}
        scanner.read(spans, take)
        left |= {place: Range(span.end, left[place].end) for place, span in spans.items()}
    waiting = [_next(record, layout) for records in found.values() for record in records[:count]]
    return sorted(waiting, key=lambda one: one.turn_at_ms)[:count], positions.notes


def peek_lines(waiting: Sequence[Next], *, now_ms: int, show_value: bool) -> Iterator[str]:
    for one in waiting:
        record, own = one.record, one.record.own
        due = "due since" if one.due_at_ms <= now_ms else "due"
        attempt = number_in(own.get(ATTEMPT)) or 0
        yield (
            f"{due} {shown_moment(one.due_at_ms)}  {record}  {one.delay_seconds} s  attempt {attempt}  "
            f"dt-id {shown(own[ID]) if ID in own else '-'}"
        )
        if show_value:
            yield f"    key {shown(record.key)}  value {shown(record.value)}"


def peek_as_json(waiting: Sequence[Next], *, show_value: bool) -> str:
    """Returns a JSON list. Times are milliseconds since the epoch. Keys and values are base64, and null where the record has none."""
    return json.dumps(
        [
            {
                "due_at_ms": one.due_at_ms,
                "delay_seconds": one.delay_seconds,
                **record_as_dict(one.record, show_value=show_value),
            }
            for one in waiting
        ],
        indent=2,
    )


def _next(record: Found, layout: LayoutRecord) -> Next:
    delay_seconds = layout.layout.partition_delays[record.partition]
    return Next(record=record, delay_seconds=delay_seconds, due_at_ms=record.due_at_ms(delay_seconds))
