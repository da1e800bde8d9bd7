"""Measures how much memory a process needs to read a topic. Call these functions in a process of their own."""

from collections import Counter
from pathlib import Path

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RegistryTooLarge
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.registry import RegistryFollower

SECONDS = 120


def reading_events(connection: Connection) -> tuple[int, int]:
    """Returns the number of events, and by how many bytes this process grew while it read them."""
    kinds: Counter[str] = Counter()
    before = _most_bytes()
    with EventFollower(connection) as follower:
        follower.catch_up(SECONDS, lambda event: kinds.update([event.kind]))
    return kinds.total(), _most_bytes() - before


def reading_registry(connection: Connection, most_bytes: int) -> tuple[str, int]:
    """Returns the message of RegistryTooLarge, empty if it was not raised, and by how many bytes this process grew while it read."""
    before = _most_bytes()
    with RegistryFollower(connection, most_bytes=most_bytes) as follower:
        try:
            follower.catch_up(SECONDS)
        except RegistryTooLarge as e:
            return str(e), _most_bytes() - before
    return "", _most_bytes() - before


def _most_bytes() -> int:
    """Returns the peak resident size of this process. `getrusage` would include the size that its parent had when it started this one."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
