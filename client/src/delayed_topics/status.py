"""Where the records of a delayed topic are, by the offsets that Kafka has."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, TopicPartition
from delayed_topics_core.commit_metadata import decode_metadata
from delayed_topics_core.layout import Role, format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaDoorError
from delayed_topics_kafka.model import CommittedOffset, TopicPartitionKey

LOOK_SECONDS = 5

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """`waiting`: not released, hopped or dead-lettered yet; `due`: those of them whose turn has come by this machine's clock.

    None where the workers have not begun a partition.
    """

    waiting: int | None
    due: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class KindStatus:
    """A delay, in seconds, and what lies in its partitions (written as ranges)."""

    delay_seconds: int
    role: Role
    partitions: str
    backlog: Backlog


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicStatus:
    """`ready` and `dead_letters`: how many records these topics hold."""

    layout: LayoutRecord
    front: Backlog
    kinds: tuple[KindStatus, ...]
    ready: int
    dead_letters: int
    workers: str


def read_status(connection: Connection, layout: LayoutRecord) -> TopicStatus:
    """Raises KafkaDoorError.

    Counts are differences of offsets, so the marks that transactions leave are among them: a retry's copy and its mark
    count as two. Partitions with nothing but marks count as empty.
    """
    admin = KafkaAdmin(connection, client_id="delayed-topics-client")
    names = TopicNames.of(layout.topic)
    now_ms = int(time.time() * 1000)
    waits_ms = layout.waits_ms
    sources = list(waits_ms)
    committed = committed_offsets(connection, layout.group, sources)
    ends = values_of(admin.list_offsets(sources, "latest", isolation="read_committed"))
    not_due = values_of(admin.offsets_for_times({key: now_ms - wait_ms for key, wait_ms in waits_ms.items()}))
    backlogs = {key: _backlog(committed.get(key), ends[key], not_due[key]) for key in sources}
    starts = {key: at.offset for key, at in committed.items() if backlogs[key].waiting}
    backlogs |= dict.fromkeys(_without_records(connection, starts), Backlog(waiting=0, due=0))
    held = {
        topic: _held(admin, [(topic, p) for p in range(_partition_count(admin, topic))])
        for topic in (names.ready, names.dead_letter)
    }
    return TopicStatus(
        layout=layout,
        front=_sum([backlogs[names.front, p] for p in range(layout.front_partitions)]),
        kinds=tuple(
            KindStatus(
                delay_seconds=kind.delay_seconds,
                role=layout.layout.role(kind),
                partitions=format_ranges(kind.partitions),
                backlog=_sum([backlogs[names.delays, p] for p in kind.partitions]),
            )
            for kind in layout.layout.kinds
        ),
        ready=held[names.ready],
        dead_letters=held[names.dead_letter],
        workers=_workers(admin, layout.group, {names.front, names.delays}),
    )


def _backlog(committed: CommittedOffset | None, end: int, first_not_due: int | None) -> Backlog:
    if committed is None:
        return Backlog(waiting=None, due=None)
    finished = decode_metadata(committed.offset, committed.metadata)
    turn_has_come = end if first_not_due is None else min(first_not_due, end)
    return Backlog(
        waiting=max(0, end - committed.offset - len(finished)),
        due=max(0, turn_has_come - committed.offset - sum(offset < turn_has_come for offset in finished)),
    )


def _without_records(connection: Connection, starts: Mapping[TopicPartitionKey, int]) -> set[TopicPartitionKey]:
    """Those of the partitions where nothing can be read from the offset on: what is there are marks of transactions."""
    if not starts:
        return set()
    consumer = Consumer(
        {
            **connection.client_config(),
            "group.id": "delayedtopics.readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 1,
        }
    )
    consumer.assign([TopicPartition(*key, offset) for key, offset in starts.items()])
    unanswered, empty = set(starts), set[TopicPartitionKey]()
    deadline = Deadline(LOOK_SECONDS)
    while unanswered and not deadline.over:
        message = consumer.poll(deadline.remaining_seconds)
        if message is None:
            break
        key, error = (message.topic() or "", message.partition() or 0), message.error()
        if key in unanswered and (error is None or error.code() == KafkaError._PARTITION_EOF):
            unanswered.remove(key)
            if error is not None:
                empty.add(key)
    consumer.close()
    return empty


def _sum(backlogs: list[Backlog]) -> Backlog:
    begun = [b for b in backlogs if b.waiting is not None]
    if not begun:
        return Backlog(waiting=None, due=None)
    return Backlog(waiting=sum(b.waiting or 0 for b in begun), due=sum(b.due or 0 for b in begun))


def _held(admin: KafkaAdmin, partitions: list[TopicPartitionKey]) -> int:
    first = values_of(admin.list_offsets(partitions, "earliest"))
    end = values_of(admin.list_offsets(partitions, "latest", isolation="read_committed"))
    return sum(end[key] - first[key] for key in partitions)


def _partition_count(admin: KafkaAdmin, topic: str) -> int:
    info = values_of(admin.describe_topics([topic]))[topic]
    return 0 if info is None else info.partitions


def _workers(admin: KafkaAdmin, group: str, sources: Collection[str]) -> str:
    """Those that have partitions of it: the group may serve other topics, too."""
    info = values_of(admin.describe_groups([group]))[group]
    serving = [member for member in info.members if any(topic in sources for topic, _ in member.assignment)]
    return f"{len(serving)} in group {group}, {info.state}"


def values_of(outcomes: Mapping[K, V | KafkaDoorError]) -> dict[K, V]:
    values: dict[K, V] = {}
    for item, outcome in outcomes.items():
        if isinstance(outcome, KafkaDoorError):
            raise outcome
        values[item] = outcome
    return values
