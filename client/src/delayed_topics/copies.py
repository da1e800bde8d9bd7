"""The copies that a consumer makes of a record: a retry for the front topic, or a dead letter for the dead-letter topic."""

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
"""Lets the partitioner choose the partition."""


class Copy(NamedTuple):
    """A record to write. `partition` is BY_KEY, or a number that is taken modulo the number of the target's partitions."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


class Outcome(NamedTuple):
    """The outcome of a handled record. One of `copies` is written: the next one is tried if Kafka refuses the one before as too large.
    Without copies, nothing is written."""

    record: Record
    copies: tuple[Copy, ...] = ()


def retry(record: Record, names: TopicNames, *, group: str, error: BaseException, done_at_ms: int) -> Outcome:
    """Returns an outcome that requests the next attempt. It does so above the retry cap, too: the worker decides what becomes of the
    record."""
    error_text = _ascii(f"{type(error).__name__}: {text_of(error)}")
    # a retry goes to the partition where the record first came in, because the producer may have used its own partitioner
    partition = record.root.partition if record.root is not None and record.root.topic_letter == "f" else BY_KEY
    headers = [
        *record.headers,
        *_identity(record, group, attempt=record.attempt + 1),
        (DONE_AT, b"%d" % done_at_ms),
        (ERROR, error_text),
    ]
    copy = Copy(names.front, partition, record.key, record.value, headers)
    return Outcome(record, (copy, *_too_large(record, names, group, error_text)))


def rejected(record: Record, names: TopicNames, *, group: str, reason: DeadLetterReason, error: object) -> Outcome:
    """Returns an outcome that makes a dead letter. The dead letter names the ready record as its origin, so that audits count it once."""
    error_text = _ascii(text_of(error))
    return Outcome(
        record,
        (_dead_letter(record, names, group, reason, error_text), *_too_large(record, names, group, error_text)[1:]),
    )


def _too_large(record: Record, names: TopicNames, group: str, error_text: bytes) -> tuple[Copy, ...]:
    """Returns the dead letter in three sizes: whole, without its value, and without value, key and foreign headers. The last always
    fits."""
    whole = _dead_letter(record, names, group, DeadLetterReason.TOO_LARGE, error_text)
    bare = whole._replace(key=None, value=None, headers=whole.headers[len(record.headers) :])
    return whole, whole._replace(value=None), bare


def _dead_letter(record: Record, names: TopicNames, group: str, reason: DeadLetterReason, error_text: bytes) -> Copy:
    headers = [
        *record.headers,
        *_identity(record, group, attempt=record.attempt),
        *([(ROOT, record.root.encode())] if record.root is not None else []),
        (ORIGIN, origin("r", record.partition, record.offset)),
        (REASON, reason.value.encode()),
        (ERROR, error_text),
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
