"""How fast the processors are while something is measured: on a shared host each may get half of what it has at other times,
and nothing but its own pace tells."""

import threading
import time
from statistics import quantiles
from typing import Self

from delayed_topics_kafka.closing import Closing

__all__ = ["Pace", "slowed_share"]

SLOW = 1.25
"""Times the time that the same work takes when nothing disturbs it."""
EVERY_SECONDS = 0.25
STEPS = 100_000
"""Some 2 ms, so that all of it takes less than 1 % of one processor."""


class Pace(Closing):
    """Does the same work again and again, in a thread of its own, and notes the processor time that it takes."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def count(self) -> int:
        """How many times so far."""
        return len(self._seconds)

    def slowed_since(self, count: int) -> float:
        """Of those since then, the share that was slow."""
        return slowed_share(self._seconds[count:], of=self._seconds)

    def _run(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            began = time.thread_time()
            for _ in range(STEPS):
                pass
            self._seconds.append(time.thread_time() - began)


def slowed_share(seconds: list[float], *, of: list[float]) -> float:
    """How many of these took longer than the fastest tenth `of` all did, by far."""
    if len(of) < 2 or not seconds:
        return 0.0
    usual = quantiles(of, n=10)[0]
    return sum(one > usual * SLOW for one in seconds) / len(seconds)
