"""The copies that a consumer makes of a record: a retry into the front topic, a dead letter into the dead-letter topic."""

from typing import NamedTuple

from delayed_topics_core.headers import (
    ATTEMPT,
    CREATED_AT,
    DONE_AT,
    ERROR,
    GROUP,
    ID,
    ORIGIN,
    REASON,
    ROOT,
    TARGET,
    Header,
    origin,
)
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason

from delayed_topics.errors import text_of
from delayed_topics.record import Record

MAX_ERROR_BYTES = 1024
BY_KEY = -1
"""The partition is the partitioner's to choose."""


class Copy(NamedTuple):
    """`partition` BY_KEY, or a number that is taken modulo the target's partitions."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Outcome(NamedTuple):
    """A record that is done with, and its copies, of which one is written: the next one is tried if Kafka finds the one before too large.
    Without copies nothing is written."""

    record: Record
    copies: tuple[Copy, ...] = ()


def retry(record: Record, names: TopicNames, *, group: str, error: BaseException, done_at_ms: int) -> Outcome:
    """One attempt more. Above the retry cap too: the worker decides what becomes of it."""
    said = _ascii(f"{type(error).__name__}: {text_of(error)}")
    # the partition that the record first came in by, so that a partitioner of the user's own holds for retries too
    partition = record.root.partition if record.root is not None and record.root.topic_letter == "f" else BY_KEY
    headers = [
        *record.headers,
        *_identity(record, group, attempt=record.attempt + 1),
        (DONE_AT, b"%d" % done_at_ms),
        (ERROR, said),
    ]
    copy = Copy(names.front, partition, record.key, record.value, headers)
    return Outcome(record, (copy, *_too_large(record, names, group, said)))


def rejected(record: Record, names: TopicNames, *, group: str, reason: DeadLetterReason, error: object) -> Outcome:
    """A dead letter that names its ready record as origin, so that an audit counts it once."""
    said = _ascii(text_of(error))
    return Outcome(
        record, (_dead_letter(record, names, group, reason, said), *_too_large(record, names, group, said)[1:])
    )


def _too_large(record: Record, names: TopicNames, group: str, said: bytes) -> tuple[Copy, ...]:
    """The dead letter in three sizes: whole; without its value; without value, key and the headers of the record. The last always fits."""
    whole = _dead_letter(record, names, group, DeadLetterReason.TOO_LARGE, said)
    bare = whole._replace(key=None, value=None, headers=whole.headers[len(record.headers) :])
    return whole, whole._replace(value=None), bare


def _dead_letter(record: Record, names: TopicNames, group: str, reason: DeadLetterReason, said: bytes) -> Copy:
    headers = [
        *record.headers,
        *_identity(record, group, attempt=record.attempt),
        *([(ROOT, record.root.encode())] if record.root is not None else []),
        (ORIGIN, origin("r", record.partition, record.offset)),
        (REASON, reason.value.encode()),
        (ERROR, said),
    ]
    partition = record.root.partition if record.root is not None else record.partition
    return Copy(names.dead_letter, partition, record.key, record.value, headers)


def _identity(record: Record, group: str, *, attempt: int) -> list[Header]:
    identity: list[Header] = [(ATTEMPT, b"%d" % attempt), (GROUP, group.encode())]
    if record.id is not None:
        identity.append((ID, record.id.encode()))
    if record.target is not None:
        identity.append((TARGET, record.target.encode()))
    if record.created_at_ms is not None:
        identity.append((CREATED_AT, b"%d" % record.created_at_ms))
    return identity


def _ascii(text: str) -> bytes:
    return text.encode("ascii", "backslashreplace")[:MAX_ERROR_BYTES]
