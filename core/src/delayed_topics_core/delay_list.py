"""The delays and the retry cap that a manifest declared at one time, as the registry keeps them for audits of records of that time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayList:
    """The delay list and retry cap that a manifest declared, valid since `from_ms` by the operator's clock. 0 means from the beginning.

    `max_delay_seconds` is how far ahead a due time may lie. None means that there is no ladder, so records can't set a due time.
    """

    delay_seconds: tuple[int, ...]
    retry_cap: int
    from_ms: int
    max_delay_seconds: int | None = None


def decode_list(body: Mapping[str, Any]) -> DelayList:
    """Raises KeyError, TypeError."""
    return DelayList(
        delay_seconds=tuple(body["delay_seconds"]),
        retry_cap=body["retry_cap"],
        from_ms=body["from_ms"],
        max_delay_seconds=body["max_delay_seconds"],
    )
