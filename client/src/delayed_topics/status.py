"""Counts the records of a delayed topic by where they are, from offsets only."""

import time
from collections.abc import Collection
from dataclasses import dataclass
from operator import add
from typing import Final

from delayed_topics_core.layout import Role, format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.due import DUE_WITHIN_SECONDS, offsets_due_within
from delayed_topics_kafka.errors import values_of
from delayed_topics_kafka.model import TopicInfo

from delayed_topics.positions import Note, Position, read_positions
from delayed_topics.scan import Found, Ranges, Scanner

FEW: Final = 10
"""If a partition has at most this many unfinished offsets, all of them may be transaction markers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """`waiting` is the number of records that are not released, hopped or dead-lettered yet. `due_within` has how many of them have their
    turn within each of DUE_WITHIN_SECONDS, by this machine's clock."""

    waiting: int
    due_within: tuple[int, ...]

    def __add__(self, other: "Backlog") -> "Backlog":
        due_within = tuple(map(add, self.due_within, other.due_within))
        return Backlog(waiting=self.waiting + other.waiting, due_within=due_within)


NOTHING: Final = Backlog(waiting=0, due_within=(0,) * len(DUE_WITHIN_SECONDS))


@dataclass(frozen=True, kw_only=True, slots=True)
class KindStatus:
    """The backlog of one delay, in seconds, in its partitions (written as ranges). `backlog` is None if that of a partition is unknown."""

    delay_seconds: int
    role: Role
    partitions: str
    backlog: Backlog | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicStatus:
    """`ready` and `dead_letters` are the numbers of records in these topics. Unknown values are None, and `notes` say why."""

    layout: LayoutRecord
    front: Backlog | None
    kinds: tuple[KindStatus, ...]
    ready: int | None
    dead_letters: int | None
    workers: str
    notes: tuple[Note, ...]


def read_status(connection: Connection, layout: LayoutRecord) -> TopicStatus:
    """Reads the status of a delayed topic. Raises KafkaCallError.

    Counts are differences of offsets and therefore include transaction markers: the copy of a retry and its marker count as two.
    Partitions that have only markers count as empty. To find these, partitions with few unfinished offsets are read.
    """
    admin = KafkaAdmin(connection, client_id="delayed-topics-client")
    names = TopicNames.of(layout.topic)
    now_ms = int(time.time() * 1000)
    waits_ms = layout.waits_ms
    positions = read_positions(connection, admin, layout.group, waits_ms)
    due_within = offsets_due_within(
        lambda times_ms: values_of(admin.offsets_for_times(times_ms)),
        waits_ms,
        {key: there.end for key, there in positions.there.items()},
        now_ms=now_ms,
    )
    backlogs = {key: _backlog(at, due_within[key]) for key, at in positions.known.items()}
    unfinished = {key: at.unfinished for key, at in positions.known.items()}
    few = {key: span for key, span in unfinished.items() if 0 < span.end - span.start <= FEW}
    backlogs |= dict.fromkeys(_without_records(connection, few), NOTHING)

    def backlog(places: list[TopicPartitionKey]) -> Backlog | None:
        known = [backlogs[place] for place in places if place in backlogs]
        return sum(known, NOTHING) if len(known) == len(places) else None

    outputs = values_of(admin.describe_topics([names.ready, names.dead_letter]))
    missing = [name for name, info in outputs.items() if info is None]
    held = {name: _held(admin, info) for name, info in outputs.items() if info is not None}
    return TopicStatus(
        layout=layout,
        front=backlog([(names.front, p) for p in range(layout.front_partitions)]),
        kinds=tuple(
            KindStatus(
                delay_seconds=kind.delay_seconds,
                role=layout.layout.role(kind),
                partitions=format_ranges(kind.partitions),
                backlog=backlog([(names.delays, p) for p in kind.partitions]),
            )
            for kind in layout.layout.kinds
        ),
        ready=held.get(names.ready),
        dead_letters=held.get(names.dead_letter),
        workers=_workers(admin, layout.group, {names.front, names.delays}),
        notes=(*positions.notes, *(Note(topic=name, partitions=None, message="it does not exist") for name in missing)),
    )


def _backlog(at: Position, due_within: tuple[int, ...]) -> Backlog:
    start, end = at.unfinished
    finished = [offset for offset in at.finished if offset >= start]

    def below(offset: int) -> int:
        return max(0, offset - start - sum(done < offset for done in finished))

    return Backlog(waiting=below(end), due_within=tuple(map(below, due_within)))


def _without_records(connection: Connection, ranges: Ranges) -> set[TopicPartitionKey]:
    """Returns the partitions whose ranges have only transaction markers."""
    found: set[TopicPartitionKey] = set()

    def take(record: Found) -> bool:
        found.add((record.topic, record.partition))
        return False

    with Scanner(connection, lambda *_: None) as scanner:
        scanner.read(ranges, take)
    return ranges.keys() - found


def _held(admin: KafkaAdmin, topic: TopicInfo) -> int:
    partitions = [(topic.name, partition) for partition in range(topic.partitions)]
    first = values_of(admin.list_offsets(partitions, "earliest"))
    end = values_of(admin.list_offsets(partitions, "latest", isolation="read_committed"))
    return sum(end[key] - first[key] for key in partitions)


def _workers(admin: KafkaAdmin, group: str, sources: Collection[str]) -> str:
    """Returns how many workers have partitions of the topic, as text. The group may serve other topics, too."""
    info = values_of(admin.describe_groups([group]))[group]
    serving = [member for member in info.members if any(topic in sources for topic, _ in member.assignment)]
    return f"{len(serving)} in group {group}, {info.state}"
