"""The format of times on the page."""

from datetime import UTC, datetime
from typing import Final

from delayed_topics_core.events import MAX_AT_MS

SECONDS: Final = "%Y-%m-%d %H:%M:%S"


def format_time(ms: int, form: str = SECONDS) -> str:
    """Returns the time in UTC. A producer may request any time, even one after the year 9999."""
    return "after 9999" if ms > MAX_AT_MS else datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
