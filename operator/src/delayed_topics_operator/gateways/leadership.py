"""For how long this process may act as the operator of its installation. The lease extends it, and every call to the outside checks it."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

from delayed_topics_operator.errors import LeadershipLost

T = TypeVar("T")


class Leadership:
    """`check` may be called from any thread, all else from the event loop only. `clock` counts monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -math.inf
        self.ended: str | None = None
        """Why it ended."""
        self.over = asyncio.Event()

    @classmethod
    def without_end(cls) -> "Leadership":
        """Of a process that shares with no other."""
        leadership = cls()
        leadership.extend(math.inf)
        return leadership

    def extend(self, until: float) -> None:
        """`until`: by the clock."""
        self._until = until

    @property
    def remaining_seconds(self) -> float:
        return self._until - self._clock()

    def check(self) -> None:
        """Right before each call that leaves this process: it may have been frozen since the last one. Raises LeadershipLost."""
        if self.ended is not None:
            raise LeadershipLost(self.ended)
        if self.remaining_seconds <= 0:
            raise LeadershipLost("the lease was not renewed in time, so another operator may act now")

    def bound(self, call: Callable[[], T]) -> Callable[[], T]:
        """For a thread, where `call` may have to wait, or be frozen, before it begins."""

        def checked() -> T:
            self.check()
            return call()

        return checked

    def end(self, why: str) -> None:
        """For good. `why`: a sentence."""
        self.ended = self.ended or why
        self.over.set()
