"""Headers of copies, for tests that stand in for a worker. Tests of the engine compare these headers with those that the engine writes."""

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
    """Returns the headers of the copy in a partition of the delays topic."""
    due: Header = (DUE_AT, b"%d" % due_at_ms)
    copied = _copied(headers, root, origin, attempt=attempt, group=group)
    return [*copied, due, *_requested_due_time(headers), (HOPS, b"%d" % hops)]


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
    """Returns the headers of the copy in the ready topic."""
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
    """Returns the headers of the copy in the dead-letter topic."""
    why: list[Header] = [(REASON, reason.value.encode()), (ERROR, error), (HOPS, b"%d" % hops)]
    return [*_copied(headers, root, origin, attempt=attempt), *_requested_due_time(headers), *why]


def _copied(
    headers: Iterable[Header],
    root: Root,
    origin: bytes,
    *,
    attempt: int,
    group: bytes | None = None,
    created_at_ms: int | None = None,
) -> list[Header]:
    """Returns the headers that copies of all kinds begin with. The id is that of the record; a record without one gets its root as id."""
    headers = list(headers)
    own: list[Header] = [(ID, dict(headers).get(ID, root.encode())), (ATTEMPT, b"%d" % attempt)]
    if group is not None:
        own.append((GROUP, group))
    if (target := dict(headers).get(TARGET)) is not None:
        own.append((TARGET, target))
    if created_at_ms is not None:
        own.append((CREATED_AT, b"%d" % created_at_ms))
    return [*foreign(headers), *own, (ROOT, root.encode()), (ORIGIN, origin)]


def _requested_due_time(headers: Sequence[Header]) -> list[Header]:
    """Returns the headers by which the record requests a due time or a delay level."""
    by_name = dict(headers)
    return [(name, by_name[name]) for name in (DELIVER_AT, DELAY_LEVEL) if name in by_name]
