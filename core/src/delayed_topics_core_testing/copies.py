"""Headers of copies, for tests that stand in for a worker. Tests of the engine compare them with its own."""

from collections.abc import Iterable, Sequence

from delayed_topics_core.headers import (
    ATTEMPT,
    CREATED_AT,
    DELAY_LEVEL,
    DELIVER_AT,
    DUE_AT,
    ERROR,
    GROUP,
    HOPS,
    ID,
    ORIGIN,
    REASON,
    RELEASED,
    ROOT,
    TARGET,
    Header,
    Root,
    foreign,
)
from delayed_topics_core.reasons import DeadLetterReason


def hop(
    headers: Sequence[Header],
    *,
    root: Root,
    origin: bytes,
    due_at_ms: int,
    attempt: int = 0,
    hops: int = 1,
    group: bytes | None = None,
) -> list[Header]:
    """Of the copy in a delays partition."""
    due: Header = (DUE_AT, b"%d" % due_at_ms)
    copied = _copied(headers, root, origin, attempt=attempt, group=group)
    return [*copied, due, *_asked(headers), (HOPS, b"%d" % hops)]


def release(
    headers: Iterable[Header],
    *,
    root: Root,
    origin: bytes,
    due_at_ms: int,
    released_at_ms: int,
    attempt: int = 0,
    hops: int = 0,
    group: bytes | None = None,
    created_at_ms: int | None = None,
) -> list[Header]:
    """Of the copy in the ready topic."""
    return [
        *_copied(headers, root, origin, attempt=attempt, group=group, created_at_ms=created_at_ms),
        (DUE_AT, b"%d" % due_at_ms),
        (RELEASED, b"%d:%d" % (attempt, released_at_ms)),
        (HOPS, b"%d" % hops),
    ]


def dead_letter(
    headers: Sequence[Header],
    *,
    root: Root,
    origin: bytes,
    reason: DeadLetterReason,
    error: bytes,
    attempt: int = 0,
    hops: int = 0,
) -> list[Header]:
    """Of the copy in the dead-letter topic."""
    why: list[Header] = [(REASON, reason.value.encode()), (ERROR, error), (HOPS, b"%d" % hops)]
    return [*_copied(headers, root, origin, attempt=attempt), *_asked(headers), *why]


def _copied(
    headers: Iterable[Header],
    root: Root,
    origin: bytes,
    *,
    attempt: int,
    group: bytes | None = None,
    created_at_ms: int | None = None,
) -> list[Header]:
    """What copies of all kinds begin with; the id is the one that the record has, or its root."""
    headers = list(headers)
    said: list[Header] = [(ID, dict(headers).get(ID, root.encode())), (ATTEMPT, b"%d" % attempt)]
    if group is not None:
        said.append((GROUP, group))
    if (target := dict(headers).get(TARGET)) is not None:
        said.append((TARGET, target))
    if created_at_ms is not None:
        said.append((CREATED_AT, b"%d" % created_at_ms))
    return [*foreign(headers), *said, (ROOT, root.encode()), (ORIGIN, origin)]


def _asked(headers: Sequence[Header]) -> list[Header]:
    """What a record said of when it is to come out."""
    said = dict(headers)
    return [(name, said[name]) for name in (DELIVER_AT, DELAY_LEVEL) if name in said]
