"""What a process of its own grows by while it reads a topic."""

from collections import Counter
from pathlib import Path

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RegistryTooLarge
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.registry import RegistryFollower

SECONDS = 120


def reading_events(connection: Connection) -> tuple[int, int]:
    """How many there are, and by how many bytes reading them made this process grow."""
    kinds: Counter[str] = Counter()
    before = _most_bytes()
    with EventFollower(connection) as follower:
        follower.catch_up(SECONDS, lambda event: kinds.update([event.kind]))
    return kinds.total(), _most_bytes() - before


def reading_registry(connection: Connection, most_bytes: int) -> tuple[str, int]:
    """What was said of its size, and by how many bytes reading it made this process grow."""
    before = _most_bytes()
    with RegistryFollower(connection, most_bytes=most_bytes) as follower:
        try:
            follower.catch_up(SECONDS)
        except RegistryTooLarge as e:
            return str(e), _most_bytes() - before
    return "", _most_bytes() - before


def _most_bytes() -> int:
    """That were ever resident. What `getrusage` says of a process includes what its parent was when it was begun."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
