"""How long this process may act as the operator of its installation. The lease extends this time, and every outgoing call checks it."""

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
        """Returns the leadership of a process that never shares its installation with another."""
        leadership = cls()
        leadership.extend(math.inf)
        return leadership

    def extend(self, until: float) -> None:
        """`until`: a time of the monotonic clock, in seconds."""
        self._until = until

    @property
    def remaining_seconds(self) -> float:
        return self._until - self._clock()

    def check(self) -> None:
        """Must be called right before each call that leaves this process, since the process may have been frozen for a while. Raises
        LeadershipLost."""
        if self.ended is not None:
            raise LeadershipLost(self.ended)
        if self.remaining_seconds <= 0:
            raise LeadershipLost("the lease was not renewed in time, so another operator may act now")

    def bound(self, call: Callable[[], T]) -> Callable[[], T]:
        """Returns `call` with a check before it, for a thread in which the call may wait, or be frozen, before it begins."""

        def checked() -> T:
            self.check()
            return call()

        return checked

    def end(self, why: str) -> None:
        """Ends the leadership for good. `why`: a sentence."""
        self.ended = self.ended or why
        self.over.set()
