"""What callers of `send`, `cancel` and `reschedule` give. Raises ValueError for what can't be."""

from collections.abc import Iterable

from delayed_topics_core.headers import MAX_ID_BYTES, MAX_NUMBER, OWN_HEADERS, Header


def foreign_headers(headers: Iterable[Header]) -> list[Header]:
    given = list(headers)
    own = [name for name, _ in given if name in OWN_HEADERS]
    if own:
        raise ValueError(f"header {own[0]} is reserved for delayed topics. Use the arguments of send instead")
    return given


def level(delay_level: int) -> int:
    if delay_level < 1:
        raise ValueError(
            f"delay_level must be 1 or more, but it is {delay_level}. Level 1 is the first entry of the delay list"
        )
    return delay_level


def time_ms(name: str, at_ms: int) -> int:
    if not 0 <= at_ms <= MAX_NUMBER:
        raise ValueError(f"{name} must be milliseconds since the epoch, but it is {at_ms}")
    return at_ms


def record_id(text: str) -> bytes:
    if not text.isascii() or not 0 < len(text) <= MAX_ID_BYTES:
        raise ValueError(f"id must be 1 to {MAX_ID_BYTES} ASCII characters, but it is {text[:32]!r}")
    return text.encode()
