"""Times as the page tells them."""

from datetime import UTC, datetime
from typing import Final

from delayed_topics_core.events import MAX_AT_MS

SECONDS: Final = "%Y-%m-%d %H:%M:%S"


def told(ms: int, form: str = SECONDS) -> str:
    """UTC. A producer may ask for any time, also for one that no calendar has."""
    return "after 9999" if ms > MAX_AT_MS else datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
