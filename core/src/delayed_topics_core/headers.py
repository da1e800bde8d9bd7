"""The own headers of a record: read, judged, and written again. Everything else in a record passes unchanged.

Own headers are ASCII, numbers are decimal, times are milliseconds since the epoch. Two kinds of reader exist:
a front partition takes only what a client may say; a delays partition also takes what a worker wrote there.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from delayed_topics_core.errors import UnreadableHeader
from delayed_topics_core.reasons import DeadLetterReason

Header = tuple[str, bytes | None]
"""As the Kafka client gives and takes it: name, value or null."""

PREFIX: Final = "dt-"
ID: Final = "dt-id"
ATTEMPT: Final = "dt-attempt"
GROUP: Final = "dt-group"
DELIVER_AT: Final = "dt-deliver-at"
DELAY_LEVEL: Final = "dt-delay-level"
TARGET: Final = "dt-target"
GENERATION: Final = "dt-generation"
CREATED_AT: Final = "dt-created-at"
DONE_AT: Final = "dt-done-at"
ROOT: Final = "dt-root"
ORIGIN: Final = "dt-origin"
DUE_AT: Final = "dt-due-at"
RELEASED: Final = "dt-released"
HOPS: Final = "dt-hops"
REASON: Final = "dt-reason"
ERROR: Final = "dt-error"

WORKER_HEADERS: Final = frozenset({ROOT, ORIGIN, DUE_AT, RELEASED, HOPS, REASON})
CLIENT_HEADERS: Final = frozenset(
    {ID, ATTEMPT, GROUP, DELIVER_AT, DELAY_LEVEL, TARGET, GENERATION, CREATED_AT, DONE_AT, ERROR}
)
OWN_HEADERS: Final = WORKER_HEADERS | CLIENT_HEADERS

MAX_NUMBER: Final = 2**63 - 1
MAX_ATTEMPT: Final = 2**31 - 1
MAX_PARTITION: Final = 2**31 - 1
MAX_OWN_BYTES: Final = 4096
MAX_ID_BYTES: Final = 256
MAX_GROUP_BYTES: Final = 249
MAX_ERROR_BYTES: Final = 2048


class Root(NamedTuple):
    """Where a record was first seen. Written as `f:<partition>:<offset>:<topic id>`; `d` for a direct write into a delays partition."""

    door: str  # "f" front, "d" delays
    partition: int
    offset: int
    topic_id: str

    def encode(self) -> bytes:
        return f"{self.door}:{self.partition}:{self.offset}:{self.topic_id}".encode()

    @classmethod
    def decode(cls, value: bytes) -> "Root":
        """Raises ValueError. A first copy has its root as its id, so a root that is longer than ids are is none."""
        door, partition, offset, topic_id = value.decode("ascii").split(":")
        if len(value) > MAX_ID_BYTES or door not in ("f", "d") or not (partition.isdigit() and offset.isdigit()):
            raise ValueError(value)
        root = cls(door, int(partition), int(offset), topic_id)
        if root.partition > MAX_PARTITION or root.offset > MAX_NUMBER:
            raise ValueError(value)
        return root


class OwnHeaders(NamedTuple):
    """What the own headers of a record say. `hopped` is true for a copy that a worker wrote into a delays partition."""

    id: bytes | None = None
    attempt: int = 0
    group: bytes | None = None
    deliver_at_ms: int | None = None
    delay_level: int | None = None
    target: bytes | None = None
    generation: int | None = None
    created_at_ms: int | None = None
    done_at_ms: int | None = None
    error: bytes | None = None
    root: Root | None = None
    due_at_ms: int | None = None
    hops: int = 0

    @property
    def hopped(self) -> bool:
        return self.root is not None


NO_OWN_HEADERS: Final = OwnHeaders()


def has_own(headers: Iterable[Header]) -> bool:
    return any(name in OWN_HEADERS for name, _ in headers)


def foreign(headers: Iterable[Header]) -> list[Header]:
    """The headers that are not ours, in order, duplicates included."""
    return [header for header in headers if header[0] not in OWN_HEADERS]


def read_front(headers: Sequence[Header]) -> OwnHeaders:
    """What a client says. Headers that only workers write are dropped, not punished: an ordinary retry copies them all.

    Of these only `dt-released` is looked at, and it can only raise: a copy whose attempt is not higher than that of the
    release it was made from counts as one higher. Raises UnreadableHeader.
    """
    own = [header for header in headers if header[0] in OWN_HEADERS]
    if not own:
        return NO_OWN_HEADERS
    said = _client_headers(own)
    raised = said.attempt
    for name, value in own:
        if name == RELEASED and (attempt := _released_attempt(value)) is not None:
            raised = max(raised, attempt + 1)
    return said._replace(attempt=raised) if raised > said.attempt else said


def read_delays(headers: Sequence[Header]) -> OwnHeaders:
    """As read_front, and believes a worker's hop. A hop never carries `dt-released`, every copy of a ready record does.

    Raises UnreadableHeader.
    """
    own = [header for header in headers if header[0] in OWN_HEADERS]
    names = {name for name, _ in own}
    if RELEASED in names or not {ROOT, ORIGIN, DUE_AT} <= names:
        return read_front(own)
    once = _once(own, (ROOT, DUE_AT, HOPS))
    try:
        root = Root.decode(once[ROOT] or b"")
    except ValueError as e:
        raise UnreadableHeader(
            DeadLetterReason.HEADER_UNREADABLE, f"{ROOT} must be door:partition:offset:topic id"
        ) from e
    return _client_headers(own)._replace(
        root=root,
        due_at_ms=_number(DUE_AT, once[DUE_AT]),
        hops=_number(HOPS, once.get(HOPS, b"0")),
    )


def write_hop(headers: Iterable[Header], own: OwnHeaders, *, root: Root, origin: bytes, due_at_ms: int) -> list[Header]:
    """Headers of the copy in a delays partition: the foreign ones, then ours."""
    place = root.encode()
    return [
        *foreign(headers),
        *_identity(own, place),
        (ROOT, place),
        (ORIGIN, origin),
        (DUE_AT, b"%d" % due_at_ms),
        (HOPS, b"%d" % (own.hops + 1)),
    ]


def write_release(
    headers: Iterable[Header], own: OwnHeaders, *, root: Root, origin: bytes, due_at_ms: int, released_at_ms: int
) -> list[Header]:
    """Headers of the copy in the ready topic. `released_at_ms` is the worker's cautious bound of the broker's time."""
    place = root.encode()
    return [
        *foreign(headers),
        *_identity(own, place),
        (ROOT, place),
        (ORIGIN, origin),
        (DUE_AT, b"%d" % due_at_ms),
        (RELEASED, b"%d:%d" % (own.attempt, released_at_ms)),
        (HOPS, b"%d" % own.hops),
    ]


def write_dead_letter(
    headers: Iterable[Header], own: OwnHeaders, *, root: Root, origin: bytes, reason: DeadLetterReason, error: str
) -> list[Header]:
    """Headers of the copy in the dead-letter topic; `error` is used when the record doesn't carry its consumer's."""
    detail = own.error if own.error is not None else error.encode("ascii", "backslashreplace")[:MAX_ERROR_BYTES]
    place = root.encode()
    return [
        *foreign(headers),
        *_identity(own._replace(error=None), place),
        (ROOT, place),
        (ORIGIN, origin),
        (REASON, reason.value.encode()),
        (ERROR, detail),
        (HOPS, b"%d" % own.hops),
    ]


def origin(door: str, partition: int, offset: int) -> bytes:
    """`f|d|r:<partition>:<offset>`: the record, in front, delays or ready, that a copy was made from."""
    return b"%c:%d:%d" % (ord(door), partition, offset)


def _identity(own: OwnHeaders, root: bytes) -> list[Header]:
    written: list[Header] = [(ID, own.id if own.id is not None else root), (ATTEMPT, b"%d" % own.attempt)]
    if own.group is not None:
        written.append((GROUP, own.group))
    if own.created_at_ms is not None:
        written.append((CREATED_AT, b"%d" % own.created_at_ms))
    if own.done_at_ms is not None:
        written.append((DONE_AT, b"%d" % own.done_at_ms))
    if own.error is not None:
        written.append((ERROR, own.error))
    return written


def _client_headers(own: Iterable[Header]) -> OwnHeaders:
    said = _once(own, CLIENT_HEADERS)
    size = 0
    for name, value in said.items():
        size += len(name) + len(value or b"")
    if size > MAX_OWN_BYTES:
        raise UnreadableHeader(
            DeadLetterReason.HEADERS_TOO_LARGE, f"own headers must have at most {MAX_OWN_BYTES} bytes, they have {size}"
        )
    level = _number_of(said, DELAY_LEVEL)
    if level == 0:
        raise UnreadableHeader(
            DeadLetterReason.HEADER_UNREADABLE,
            f"{DELAY_LEVEL} must be 1 or more: level 1 is the first entry of the delay list",
        )
    error = said.get(ERROR)
    return OwnHeaders(
        id=_text_of(said, ID, MAX_ID_BYTES),
        attempt=_number_of(said, ATTEMPT, MAX_ATTEMPT) or 0,
        group=_text_of(said, GROUP, MAX_GROUP_BYTES),
        deliver_at_ms=_number_of(said, DELIVER_AT),
        delay_level=level,
        target=_text_of(said, TARGET, MAX_GROUP_BYTES),
        generation=_number_of(said, GENERATION),
        created_at_ms=_number_of(said, CREATED_AT),
        done_at_ms=_number_of(said, DONE_AT),
        error=error[:MAX_ERROR_BYTES] if error is not None else None,
    )


def _once(headers: Iterable[Header], names: Container[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name not in names:
            continue
        if name in found:
            raise UnreadableHeader(DeadLetterReason.HEADER_TWICE, f"{name} must be there once, it is there twice")
        found[name] = value
    return found


def _number_of(said: dict[str, bytes | None], name: str, most: int = MAX_NUMBER) -> int | None:
    return _number(name, said[name], most) if name in said else None


def _text_of(said: dict[str, bytes | None], name: str, most: int) -> bytes | None:
    return _text(name, said[name], most) if name in said else None


def _number(name: str, value: bytes | None, most: int = MAX_NUMBER) -> int:
    # bytes.isdigit() is true for ASCII 0-9 only, so no sign, space, exponent or Arabic digit gets to int()
    if value is None or not value.isdigit() or len(value) > 19 or int(value) > most:
        raise UnreadableHeader(
            DeadLetterReason.HEADER_UNREADABLE,
            f"{name} must be a decimal number from 0 to {most}, it is {_shown(value)}",
        )
    return int(value)


def _text(name: str, value: bytes | None, most: int) -> bytes:
    if value is None or not value.isascii() or not 0 < len(value) <= most:
        raise UnreadableHeader(
            DeadLetterReason.HEADER_UNREADABLE, f"{name} must be 1 to {most} ASCII characters, it is {_shown(value)}"
        )
    return value


def _shown(value: bytes | None) -> str:
    return "null" if value is None else repr(value[:32])[1:]


def _released_attempt(value: bytes | None) -> int | None:
    attempt, separator, _ = (value or b"").partition(b":")
    return (
        int(attempt) if separator and attempt.isdigit() and len(attempt) <= 10 and int(attempt) <= MAX_ATTEMPT else None
    )
