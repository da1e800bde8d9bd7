"""Measures the speed of the processors during a measurement.

On a shared host, a processor may be half as fast as at other times. Only the time that the same work takes shows this.
"""

import threading
import time
from statistics import quantiles
from typing import Self

from delayed_topics_kafka.closing import Closing

__all__ = ["Pace", "slowed_share"]

SLOW = 1.25
"""Work is slow if it takes this many times as long as when nothing disturbs it."""
EVERY_SECONDS = 0.25
STEPS = 100_000
"""These take some 2 ms, so that all repetitions take less than 1 % of one processor."""


class Pace(Closing):
    """Repeats the same work in a thread of its own, and records the processor time of each repetition."""

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
        """The number of repetitions so far."""
        return len(self._seconds)

    def slowed_since(self, count: int) -> float:
        """Returns the share of slow repetitions since the first `count` ones."""
        return slowed_share(self._seconds[count:], of=self._seconds)

    def _run(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            began = time.thread_time()
            for _ in range(STEPS):
                pass
            self._seconds.append(time.thread_time() - began)


def slowed_share(seconds: list[float], *, of: list[float]) -> float:
    """Returns the share of `seconds` that took much longer than the fastest tenth of all repetitions, which are in `of`."""
    if len(of) < 2 or not seconds:
        return 0.0
    usual = quantiles(of, n=10)[0]
    return sum(one > usual * SLOW for one in seconds) / len(seconds)
