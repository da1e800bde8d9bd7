"""Keeps a consumer's membership in its group while the user's code handles a record.

If a consumer does not poll for `max.poll.interval.ms` (5 minutes unless set), Kafka revokes its partitions, and the member that gets
them begins with the same record. A thread therefore polls in place of the user's code, once half of that time has passed.

A rebalance waits equally long for each member before it continues without it. The thread therefore does not give up the partition of
the current record at once. The user's code gets some time to finish, as it does in a consumer without such a thread.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread

POLL_SECONDS = 0.1
POLL_AFTER, AWAIT, CHECK_EVERY = 0.5, 0.3, 0.05
"""Fractions of the interval. The thread polls once the user's code has worked for POLL_AFTER, which it checks every CHECK_EVERY. A
rebalance waits up to AWAIT for the user's code. The rest of the interval is for a busy machine, and for settling the outcomes."""


class KeptMembership:
    """Polls a consumer from a thread of its own. Only a thread that holds `turn` may use the consumer."""

    def __init__(self, poll: Callable[[], None], *, max_poll_interval_ms: float) -> None:
        """The thread calls `poll` while it holds the turn. `poll` must hand out no records."""
        self.turn = Condition()
        self._poll = poll
        self._interval_seconds = max_poll_interval_ms / 1000
        self._handling_since: float | None = None
        """When the user's code began to handle a record; None while it requests the next one."""
        self._polling = False
        self._ended = Event()
        """Set when the loop that receives the records ends."""
        self._problem: Exception | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enter this while a loop receives records. A loop that was left early may exit this after the next loop has entered it."""
        self._ended.set()
        ended = self._ended = Event()
        Thread(target=self._keep, args=(ended,), name="keeps-membership", daemon=True).start()
        try:
            yield
        finally:
            # must not wait for anything: if an abandoned generator is garbage-collected, this runs in an arbitrary thread
            ended.set()
            if ended is self._ended:
                self._handling_since = None

    def begin_handling(self) -> None:
        """Call this before the user's code gets a record."""
        self._handling_since = time.monotonic()

    def end_handling(self) -> Exception | None:
        """Call this with the turn when the user's code requests the next record. Waits until the thread has stopped polling. Returns the
        exception that its polling raised, or None."""
        self._handling_since = None
        self.turn.notify_all()
        self.turn.wait_for(lambda: not self._polling)
        problem, self._problem = self._problem, None
        return problem

    def await_end_of_handling(self) -> None:
        """Call this in the callbacks of a rebalance. Gives the user's code some time to finish."""
        self.turn.wait_for(lambda: self._handling_since is None, AWAIT * self._interval_seconds)

    def _keep(self, ended: Event) -> None:
        while not ended.wait(CHECK_EVERY * self._interval_seconds):
            with self.turn:
                self._polling = True
                try:
                    while self._must_poll():
                        self._poll()
                        self.turn.wait(POLL_SECONDS)
                except Exception as e:  # noqa: BLE001  the user's code gets it when it requests the next record
                    self._problem = e
                    return
                finally:
                    self._polling = False
                    self.turn.notify_all()

    def _must_poll(self) -> bool:
        since = self._handling_since
        return since is not None and time.monotonic() - since > POLL_AFTER * self._interval_seconds
