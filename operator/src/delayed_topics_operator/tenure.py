"""For how long this process may act as the operator of its installation: what the lease gives, and every call out asks for."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import TypeVar

from delayed_topics_operator.errors import TenureOver

T = TypeVar("T")


class Tenure:
    """`check` may be called from any thread, all else from the event loop only. `clock` counts monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = -math.inf
        self.ended: str | None = None
        """Why it ended."""
        self.over = asyncio.Event()

    @classmethod
    def without_end(cls) -> "Tenure":
        """Of a process that shares with no other."""
        tenure = cls()
        tenure.extend(math.inf)
        return tenure

    def extend(self, until: float) -> None:
        """`until`: by the clock."""
        self._until = until

    @property
    def remaining_seconds(self) -> float:
        return self._until - self._clock()

    def check(self) -> None:
        """Right before each call that leaves this process: it may have been frozen since the last one. Raises TenureOver."""
        if self.ended is not None:
            raise TenureOver(self.ended)
        if self.remaining_seconds <= 0:
            raise TenureOver("the lease was not renewed in time, and another operator may act now")

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
