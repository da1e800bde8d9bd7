"""Parses and formats times for people."""

import re
from datetime import UTC, datetime
from typing import Final

_SPAN: Final = re.compile(r"(\d{1,6})([smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_moment(text: str, *, now_ms: int, ahead: bool = False) -> int:
    """Returns milliseconds since the epoch, from a time such as `2026-11-25T04:00:00Z`, or from a span such as `90s`, `30m`, `2h` or `7d`.
    A span goes back from `now_ms`, or forward if `ahead` is set. Raises ValueError.
    """
    if (span := _SPAN.fullmatch(text)) is not None:
        span_ms = int(span[1]) * _UNIT_MS[span[2]]
        return now_ms + span_ms if ahead else now_ms - span_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{text!r} is not a time. Write either a time with its time zone, such as 2026-11-25T04:00:00Z, "
            f"or how long {'it is until then' if ahead else 'ago it was'}, such as 90s, 30m, 2h or 7d"
        )
    return int(moment.timestamp() * 1000)


def shown_moment(at_ms: int) -> str:
    """Returns the time in UTC with milliseconds, or only the number if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
