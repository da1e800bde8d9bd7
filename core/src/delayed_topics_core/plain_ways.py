"""Headers on the short ways, which nearly all records of nearly all topics take: a client's record with no own header, or only
a level, and a hop as `write_hop` writes it for such a one. Nothing is judged here and little is read; the outcome is that of `headers`
and `routing`, whatever the headers are, or "take the long way".
"""

from collections.abc import Sequence
from typing import Final

from delayed_topics_core.headers import (
    ATTEMPT,
    DELAY_LEVEL,
    DUE_AT,
    HOPS,
    ID,
    MAX_ID_BYTES,
    ORIGIN,
    OWN_HEADERS,
    RELEASED,
    ROOT,
    Header,
)

_FIRST: Final[Header] = (ATTEMPT, b"0")
_NO_HOP: Final[Header] = (HOPS, b"0")
_ONE_HOP: Final[Header] = (HOPS, b"1")
PLAIN_HOP_HEADERS: Final = 6
"""As many own headers as a plain hop has."""
_SMALL: Final = {b"%d" % n: n for n in range(1000)}
"""Numbers as they are written, for reading those that are small without doubting them."""
_DUE_DIGITS: Final = 13
"""The years 2001 to 2286."""
_OFFSET_DIGITS: Final = 18
"""Fewer than the largest number has, so that none of them is larger."""


def plain_level(headers: Sequence[Header]) -> int:
    """The entry of the delay list, from 1, that a client's record asks for; 0 for everything else. `headers` have one own one
    at most."""
    for name, value in headers:
        if name in OWN_HEADERS:
            return _SMALL.get(value, 0) if name == DELAY_LEVEL and value is not None else 0
    return 1


def plain_hop(headers: Sequence[Header]) -> tuple[int, int]:
    """Due time in milliseconds and the root's partition of a plain hop; a negative due time for everything else. `headers`
    have PLAIN_HOP_HEADERS own ones."""
    name_1, identity = headers[-6]
    name_2, attempt = headers[-5]
    name_3, root = headers[-4]
    name_5, due = headers[-2]
    name_6, hops = headers[-1]
    if (
        name_6 != HOPS
        or name_5 != DUE_AT
        or headers[-3][0] != ORIGIN
        or name_3 != ROOT
        or name_2 != ATTEMPT
        or name_1 != ID
        or identity is None
        or root is None
        or due is None
        or attempt not in _SMALL
        or hops not in _SMALL
        or not 0 < len(identity) <= MAX_ID_BYTES
        or not identity.isascii()
        or len(due) != _DUE_DIGITS
        or not due.isdigit()
        or due[0] == 0x30
    ):
        return -1, 0
    parts = root.split(b":")
    if len(parts) != 4 or not root.isascii() or len(root) > MAX_ID_BYTES:
        return -1, 0
    door, partition, offset, _ = parts
    if (door != b"f" and door != b"d") or partition not in _SMALL or not offset.isdigit():
        return -1, 0
    if (offset[0] == 0x30 and len(offset) > 1) or len(offset) > _OFFSET_DIGITS:
        return -1, 0
    return int(due), _SMALL[partition]


def write_plain_hop(headers: Sequence[Header], *, root: bytes, origin: bytes, due_at: Header) -> list[Header]:
    """As write_hop of a record of which `headers` are the foreign ones. `due_at`: the whole header."""
    return [*headers, (ID, root), _FIRST, (ROOT, root), (ORIGIN, origin), due_at, _ONE_HOP]


def write_plain_release(
    headers: Sequence[Header], *, root: bytes, origin: bytes, due_at: Header, released: Header
) -> list[Header]:
    """As write_release of a record of which `headers` are the foreign ones. `due_at`, `released`: the whole headers."""
    return [*headers, (ID, root), _FIRST, (ROOT, root), (ORIGIN, origin), due_at, released, _NO_HOP]


def write_hopped_release(headers: Sequence[Header], *, origin: bytes, released_at_ms: bytes) -> list[Header]:
    """As write_release of a plain hop."""
    written = list(headers)
    written[-3] = (ORIGIN, origin)
    written.insert(-1, (RELEASED, (headers[-5][1] or b"0") + b":" + released_at_ms))
    return written


def due_header(due_at_ms: int) -> Header:
    """For all records that are due at the same time."""
    return DUE_AT, b"%d" % due_at_ms


def released_header(released_at_ms: int) -> Header:
    """For all first attempts that are released at the same time."""
    return RELEASED, b"0:%d" % released_at_ms
