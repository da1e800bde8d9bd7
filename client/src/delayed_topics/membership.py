"""A consumer's membership in its group, kept while the code that uses it works on a record.

Kafka takes the partitions of a consumer that doesn't poll for `max.poll.interval.ms` (5 minutes unless set), and whoever gets
them begins with the same record. So a thread polls instead, once half of that time is over.

A rebalance waits for each member as long, too, before it goes on without it. So the thread doesn't give the partition of the record
at hand back at once: the user's code gets some time to finish, as it has where nobody else polls.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread

POLL_SECONDS = 0.1
REST, AWAIT, LOOK = 0.5, 0.3, 0.05
"""Parts of the interval. The thread polls once REST is over, which it looks for every LOOK. A rebalance waits up to AWAIT for the user's
code. What REST and AWAIT leave is for a busy machine, and for settling what is done."""


class KeptMembership:
    """Only a thread that holds `turn` may use the consumer."""

    def __init__(self, poll: Callable[[], None], *, max_poll_interval_ms: float) -> None:
        """`poll` is called in the thread, with the turn, and hands out nothing."""
        self.turn = Condition()
        self._poll = poll
        self._interval_seconds = max_poll_interval_ms / 1000
        self._left_at: float | None = None
        """When the user's code went to work; None while it asks for records."""
        self._polling = False
        self._ended = Event()
        """Of the loop that records are handed out to."""
        self._problem: Exception | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """To be entered while records are handed out. A loop that was left early may leave this after the next loop has entered it."""
        self._ended.set()
        ended = self._ended = Event()
        Thread(target=self._keep, args=(ended,), name="keeps-membership", daemon=True).start()
        try:
            yield
        finally:
            # waits for nothing: when a generator that was forgotten is collected, this runs in any thread
            ended.set()
            if ended is self._ended:
                self._left_at = None

    def leave(self) -> None:
        """To be called before the user's code gets a record."""
        self._left_at = time.monotonic()

    def come_back(self) -> Exception | None:
        """To be called with the turn, when the user's code asks for the next record: the thread stops polling. Returns what its polling
        raised."""
        self._left_at = None
        self.turn.notify_all()
        self.turn.wait_for(lambda: not self._polling)
        problem, self._problem = self._problem, None
        return problem

    def await_return(self) -> None:
        """For callbacks of a rebalance: gives the user's code some time to finish."""
        self.turn.wait_for(lambda: self._left_at is None, AWAIT * self._interval_seconds)

    def _keep(self, ended: Event) -> None:
        while not ended.wait(LOOK * self._interval_seconds):
            with self.turn:
                self._polling = True
                try:
                    while self._has_rested():
                        self._poll()
                        self.turn.wait(POLL_SECONDS)
                except Exception as e:  # noqa: BLE001  the user's code gets it when it comes back
                    self._problem = e
                    return
                finally:
                    self._polling = False
                    self.turn.notify_all()

    def _has_rested(self) -> bool:
        left_at = self._left_at
        return left_at is not None and time.monotonic() - left_at > REST * self._interval_seconds
