"""Measures the memory that a waiting record takes, from the whole process and not from the worker's own counts."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_bench.drain import HOP_DELAY_SECONDS, hop
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Memory", "memory"]

ROOMY_WINDOW_BYTES = 4 << 30
MAX_HELD = 16_000
"""The most records of a partition. A worker reads up to 20,000 offsets of a partition ahead, and keys are not spread evenly."""
SAME_SECONDS = 3.0
"""A worker whose number of held records has not changed for this long has stopped reading."""
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of a worker.

    `bytes_per_record`: the growth of the process per held record, of which `own_bytes` are the key, value and headers of the record.
    `idle_mib`: a worker that holds nothing. `full_mib`: a worker whose window, of standard size, is full with `full_held` records, while
    the others wait unread.
    """

    held: int
    bytes_per_record: float
    own_bytes: int
    idle_mib: float
    full_held: int
    full_mib: float


def memory(testbed: Testbed, *, held: int, size: int) -> Memory:
    """Lets new workers read the hopped records: one with room for all of them, and one with the standard window."""
    partitions = max(PARTITIONS, math.ceil(held / MAX_HELD))
    declared = partial(testbed.declared, (HOP_DELAY_SECONDS,), partitions=partitions)
    with declared() as nothing, testbed.workers(nothing, 1) as (idle,):
        idle_bytes = idle.resident_bytes()
    with declared() as topic:
        hop(testbed, topic, workers=1, records=held, size=size)
        some = testbed.harness.read(topic.names.delays, 1)[0]
        with testbed.workers(topic, 1, window_bytes=ROOMY_WINDOW_BYTES) as (roomy,):
            _await_held(roomy, topic, lambda count: count == held)
            roomy_bytes = roomy.resident_bytes()
        with testbed.workers(topic, 1) as (full,):
            full_held = _await_held(full, topic, _Unchanged())
            full_bytes = full.resident_bytes()
    return Memory(
        held=held,
        own_bytes=_own_bytes(some),
        bytes_per_record=(roomy_bytes - idle_bytes) / held,
        idle_mib=idle_bytes / 2**20,
        full_held=full_held,
        full_mib=full_bytes / 2**20,
    )


class _Unchanged:
    """Called repeatedly with a count: returns True once the count has stayed the same for a while."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.monotonic()

    def __call__(self, count: int) -> bool:
        if count != self._count:
            self._count, self._since = count, time.monotonic()
        return count > 0 and time.monotonic() - self._since > SAME_SECONDS


def _await_held(worker: WorkerProcess, topic: DeclaredTopic, enough: Callable[[int], bool]) -> int:
    """Waits until `enough` is true of the number of held records, and returns this number."""

    def held() -> int:
        return int(worker.metric("delayedtopics_waiting_records", topic=topic.names.front))

    wait_until(
        lambda: enough(held()),
        what=f"{worker.member} holds its records",
        timeout_seconds=TIMEOUT_SECONDS,
        evidence=worker.evidence,
    )
    return held()


def _own_bytes(record: Seen) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(n) + len(v or b"") for n, v in record.headers)
