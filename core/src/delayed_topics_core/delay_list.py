"""What was declared of delays and retries at one time, as the registry notes it for audits of records of that time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class DelayList:
    """What was declared of delays and retries, and from when on, by the operator's clock. 0: from the begin.

    `max_delay_seconds`: how far ahead a due time may lie; None: there is no ladder, so there are none.
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
