"""Sends dead letters to the front topic again, each once: one transaction writes the copies and commits the offsets of the originals."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition
from delayed_topics_core.headers import (
    CREATED_AT,
    DELAY_LEVEL,
    DELIVER_AT,
    GROUP,
    ID,
    OWN_HEADERS,
    REASON,
    ROOT,
    TARGET,
    Root,
)
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import (
    FENCED,
    RAISED,
    KafkaCallError,
    TopicMissing,
    call_error,
    kafka_error,
    making_client,
    values_of,
)
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS

from delayed_topics.copies import BY_KEY, Copy
from delayed_topics.errors import RedriveOvertaken
from delayed_topics.producers import producer_properties
from delayed_topics.scan import Found, Progress, Range, Ranges, Scanner
from delayed_topics.sent import TIMEOUT_SECONDS, Sent, begun, committed, is_wanted
from delayed_topics.transacting import CopyTransactions
from delayed_topics.way import RecordNotFound, RecordPlace

_silent_log = logging.getLogger(f"{__name__}.librdkafka")
_silent_log.addHandler(logging.NullHandler())
_silent_log.propagate = False

KEPT: Final = frozenset({ID, GROUP, DELIVER_AT, DELAY_LEVEL, TARGET, CREATED_AT})
"""Own headers that the copy keeps. Without the others, the copy is a first attempt."""
NO_REASON: Final = "none"
"""Stands for the reason of a record in the dead-letter topic that has no `dt-reason`."""
MAX_AT_ONCE: Final = 500
MAX_BYTES_AT_ONCE: Final = 8 << 20
"""The limits of one transaction: the number of dead letters, and the bytes of their values. The last one may exceed the limit of bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Redriven:
    """The number of dead letters by reason. Those in `left` were not wanted, or have a header whose name is not UTF-8, which no client can
    write, or are too large for the front topic."""

    sent: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def redrive(
    connection: Connection,
    layout: LayoutRecord,
    *,
    reasons: Collection[str] = (),
    places: Sequence[RecordPlace] = (),
    from_beginning: bool = False,
    assume_sent_until_ms: int | None = None,
    count: int | None = None,
    dry_run: bool = False,
    progress: Progress = lambda *_: None,
) -> Redriven:
    """Sends dead letters from where the last redrive of the topic ended, for each reason, to the present end of the dead-letter topic.

    reasons         send the dead letters with these values of `dt-reason`; if empty, all but those in sent.LEFT_UNLESS_ASKED_FOR
    places          send these dead letters, whatever their reason and whether or not they were sent before, and commit no offsets
    from_beginning  begin with the first dead letter that the topic still has
    assume_sent_until_ms  where Kafka does not know where the last redrive ended, begin with what was appended at this time or later
    count           end after this many dead letters
    dry_run         send nothing, and return what would be sent

    Raises KafkaCallError, RecordNotFound for a place, RedrivePositionUnknown if dead letters may have been sent before, and
    RedriveOvertaken if another redrive begins meanwhile. What was sent by then stays sent.
    """
    names = TopicNames.of(layout.topic)
    with ExitStack() as stack:
        scanner = stack.enter_context(Scanner(connection, progress))
        sender = None if dry_run else stack.enter_context(_Sender(connection, layout))
        # only after the sender has ended the transaction that another redrive may have left open
        admin = KafkaAdmin(connection, client_id="delayed-topics-client")
        dead_letters = _described(admin, names.dead_letter)
        there = _there(admin, dead_letters)
        known = committed(connection, names, dead_letters)
        all_wanted = from_beginning or bool(places)
        sent = begun(admin, there, known, assume_sent_until_ms=assume_sent_until_ms, all_wanted=all_wanted)
        unsent = {place: Range(max(span.start, sent[place].of_all(reasons)), span.end) for place, span in there.items()}
        wanted = [_range_of(place, there) for place in places] or [there if from_beginning else unsent]
        one = _Redrive(
            connection=connection,
            dead_letters=dead_letters,
            sender=sender,
            positions=sent,
            reasons=reasons,
            named=bool(places),
            all_wanted=all_wanted,
            count=count,
        )
        for ranges in wanted:
            scanner.read(ranges, one.take)
        one.send()
    return one.done


@dataclass(kw_only=True, slots=True)
class _Redrive:
    """One call of `redrive`.

    `positions` says by partition up to where dead letters are sent. Each write commits the positions of all partitions. `next_offsets` says
    up to where partitions were read since the last write. `named` is True if the caller gave the places.
    """

    connection: Connection
    dead_letters: TopicInfo
    sender: "_Sender | None"
    positions: dict[TopicPartitionKey, Sent]
    reasons: Collection[str]
    named: bool
    all_wanted: bool
    count: int | None
    batch: list[Found] = field(default_factory=list)
    next_offsets: dict[TopicPartitionKey, int] = field(default_factory=dict)
    done: Redriven = field(default_factory=Redriven)

    def take(self, record: Found) -> bool:
        reason, place = _reason(record), (record.topic, record.partition)
        if not (self.named or is_wanted(reason, self.reasons)) or record.headers is None:
            self.done.left[reason] += 1
        elif self.all_wanted or record.offset >= self.positions[place].of(reason):
            self.batch.append(record)
            self.done.sent[reason] += 1
        self.next_offsets[place] = record.offset + 1
        if len(self.batch) >= MAX_AT_ONCE or sum(len(r.value or b"") for r in self.batch) >= MAX_BYTES_AT_ONCE:
            self.send()
        return self.count is not None and self.done.sent.total() >= self.count

    def send(self) -> None:
        if self.sender is not None and not self._write(self.batch, self.next_offsets):
            # Kafka refuses a whole batch if one of its records is too large
            for record in self.batch:
                if not self._write([record], {(record.topic, record.partition): record.offset + 1}):
                    self.done.sent[_reason(record)] -= 1
                    self.done.left[_reason(record)] += 1
            self._write([], self.next_offsets)
        self.batch.clear()
        self.next_offsets.clear()

    def _write(self, batch: Sequence[Found], offsets: Mapping[TopicPartitionKey, int]) -> bool:
        """Sends a batch, and commits the positions. Returns False if a record is too large for the front topic."""
        assert self.sender is not None
        # commits all partitions, because Kafka forgets the offset of a partition some time after its last commit
        moved = {place: at.moved(offsets.get(place, 0), self.reasons) for place, at in self.positions.items()}
        if self.named:
            moved = {}
        points = [TopicPartition(*place, at.others, at.metadata(self.dead_letters.id)) for place, at in moved.items()]
        if not self.sender.send(batch, points):
            # the sender has begun again with its transactional id, perhaps after another redrive that has sent these records
            found = committed(self.connection, self.sender.names, self.dead_letters)
            if any(at != self.positions[place] for place, at in found.items()):
                raise _overtaken(self.sender.names)
            return False
        self.positions |= moved
        return True


def _overtaken(names: TopicNames) -> RedriveOvertaken:
    return RedriveOvertaken(
        f"this redrive of {names.front} has ended early, and what it has sent stays sent. Either another redrive of the topic has begun, "
        f"or this one stood still for more than {TRANSACTION_TIMEOUT_MS // 1000} s, and Kafka ended its transaction. If no other one runs, "
        "run the command again to continue"
    )


def _reason(record: Found) -> str:
    return record.own.get(REASON, b"").decode("ascii", "backslashreplace") or NO_REASON


def _described(admin: KafkaAdmin, name: str) -> TopicInfo:
    """Describes the topic. Raises KafkaCallError, and in particular TopicMissing."""
    info = values_of(admin.describe_topics([name]))[name]
    if info is None:
        raise TopicMissing(
            f"topic {name} does not exist. See the conditions of the DelayedTopic for what to do", code=""
        )
    return info


def _there(admin: KafkaAdmin, dead_letters: TopicInfo) -> Ranges:
    """Returns the offsets of the dead letters that the topic has. Raises KafkaCallError."""
    places = [(dead_letters.name, partition) for partition in range(dead_letters.partitions)]
    first = values_of(admin.list_offsets(places, "earliest"))
    ends = values_of(admin.list_offsets(places, "latest", isolation="read_committed"))
    return {place: Range(first[place], ends[place]) for place in places}


def _range_of(place: RecordPlace, there: Ranges) -> Ranges:
    """Returns the range of one record. Raises RecordNotFound."""
    key = (place.topic, place.partition)
    first, end = there.get(key, Range(0, 0))
    if not first <= place.offset < end:
        raise RecordNotFound(
            f"{place.topic} [{place.partition}] has no committed record at offset {place.offset}. It has offsets from {first} up to, and "
            f"without, {end}"
        )
    return {key: Range(place.offset, place.offset + 1)}


class _Sender(Closing):
    def __init__(self, connection: Connection, layout: LayoutRecord) -> None:
        """Raises KafkaCallError, and RedriveOvertaken."""
        self._bootstrap_servers = connection.bootstrap_servers
        self.names = TopicNames.of(layout.topic)
        self._front_partitions = layout.front_partitions
        name = self.names.redrive_group
        self._transactions = CopyTransactions(
            {
                **producer_properties(connection),
                "client.id": "delayed-topics-client",
                "logger": _silent_log,  # the producer would log at any level that it was fenced; what matters is raised
            },
            name,
            bootstrap_servers=connection.bootstrap_servers,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        self._take_over()
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer({**connection.client_config(), "group.id": name})

    def send(self, records: Iterable[Found], points: list[TopicPartition]) -> bool:
        """Writes copies and commits the points, all or nothing. Returns False if a copy is too large for the front topic. Raises
        KafkaCallError, and RedriveOvertaken."""
        try:
            written = self._transactions.write(map(self._copy, records), points, self._consumer)
        except RAISED as e:
            raise self._error(kafka_error(e)) from e
        if written == "too large":
            self._take_over()
        return written == "done"

    def close(self) -> None:
        self._consumer.close()

    def _take_over(self) -> None:
        try:
            self._transactions.take_over()
        except RAISED as e:
            raise self._error(kafka_error(e)) from e

    def _copy(self, record: Found) -> Copy:
        headers = [h for h in record.headers or () if h[0] not in OWN_HEADERS or h[0] in KEPT]
        return Copy(self.names.front, self._front_partition(record), record.key, record.value, headers)

    def _front_partition(self, record: Found) -> int:
        """Returns the partition where the record first came in, because its producer may have used its own partitioner, or BY_KEY if
        that is unknown."""
        try:
            root = Root.decode(record.own.get(ROOT, b""))
        except ValueError:
            return BY_KEY
        return root.partition % self._front_partitions if root.topic_letter == "f" else BY_KEY

    def _error(self, error: KafkaError) -> KafkaCallError | RedriveOvertaken:
        name = self.names.redrive_group
        if error.code() in FENCED:
            return _overtaken(self.names)
        return call_error(
            error,
            doing=f"writing dead letters to {self.names.front} as transactional id {name}, and committing offsets of group {name}",
            bootstrap_servers=self._bootstrap_servers,
        )
