"""A record of the ready topic, as a handler gets it."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Message
from delayed_topics_core.headers import (
    ATTEMPT,
    CREATED_AT,
    DUE_AT,
    GROUP,
    ID,
    OWN_HEADERS,
    RELEASED,
    ROOT,
    TARGET,
    Header,
    Root,
    foreign,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Times are milliseconds since the epoch, by the broker's clock.

    key, value, headers   as they were produced; `headers` without those of delayed topics
    attempt               how often the record was handed to consumers before: 0 the first time
    id                    the same for all attempts
    group                 the consumer group whose retry this is; None for a record that is for every group
    due_at_ms             when the record was due
    released_at_ms        when a worker released the record, by the worker's lower bound of the broker's clock
    appended_at_ms        when the record was appended to the ready topic
    created_at_ms         when the record was made, by the clock of the client that sent it; None if the client did not set it
    target                the topic that the record was read from, or topic:partition, if that is not the delayed topic's own ready topic
    topic, partition,     where the record was read
    offset
    root                  the topic, partition and offset where this attempt was first seen; None for a record that no worker released
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    attempt: int = 0
    id: str | None = None
    group: str | None = None
    due_at_ms: int
    released_at_ms: int
    appended_at_ms: int
    created_at_ms: int | None = None
    target: str | None = None
    root: Root | None = None
    topic: str
    partition: int
    offset: int

    @property
    def late_ms(self) -> int:
        """The time from the due time to the append to the ready topic, in milliseconds."""
        return self.appended_at_ms - self.due_at_ms


def read_record(message: Message, headers: Sequence[Header]) -> Record:
    """Makes a Record. Own headers that are missing or can't be parsed get their defaults, because anyone may write to a ready topic."""
    own = {name: value or b"" for name, value in headers if name in OWN_HEADERS}
    appended_at_ms = message.timestamp()[1]
    return Record(
        key=message.key(),
        value=message.value(),
        headers=tuple(foreign(headers)),
        attempt=number_in(own.get(ATTEMPT)) or 0,
        id=_text(own.get(ID)),
        group=_text(own.get(GROUP)),
        due_at_ms=number_in(own.get(DUE_AT)) or appended_at_ms,
        released_at_ms=number_in(own.get(RELEASED, b"").partition(b":")[2]) or appended_at_ms,
        appended_at_ms=appended_at_ms,
        created_at_ms=number_in(own.get(CREATED_AT)),
        target=_text(own.get(TARGET)),
        root=_root(own.get(ROOT)),
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
    )


def number_in(value: bytes | None) -> int | None:
    return int(value) if value and value.isdigit() and len(value) < 20 else None


def _text(value: bytes | None) -> str | None:
    return value.decode() if value and value.isascii() else None


def _root(value: bytes | None) -> Root | None:
    try:
        return Root.decode(value) if value else None
    except ValueError:
        return None
