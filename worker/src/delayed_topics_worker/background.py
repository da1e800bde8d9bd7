"""Threads beside the worker's own, for requests to Kafka that block."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

log = logging.getLogger(__name__)

MAX_BUSY: Final = 0.05
"""The share of a processor that a repeated task may take. If it needs more, for example with many topics, it runs less often."""

CLOSING_SECONDS: Final = 1.0

T = TypeVar("T")


def closing(close: Callable[[], object]) -> None:
    """Calls `close`, but waits only for CLOSING_SECONDS, because a Kafka client that closes waits for a name server, however long that
    takes to answer."""
    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(CLOSING_SECONDS)


class Repeated:
    """Calls `turn` on a thread of its own until `close`: every `interval_seconds`, unless that is None, and after each `hasten`. A turn
    that takes long to compute is followed by a longer pause, see MAX_BUSY. An exception of a turn is logged, but only once while it
    stays the same, and does not prevent the next turn."""

    def __init__(self, name: str, turn: Callable[[], None], *, interval_seconds: float | None) -> None:
        self._turn = turn
        self._interval_seconds = interval_seconds
        self._hastened = threading.Event()
        self._ended = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def hasten(self) -> None:
        """Makes the next turn start at once."""
        self._hastened.set()

    def close(self) -> None:
        """Makes the current turn the last, and does not wait for it."""
        self._ended = True
        self._hastened.set()

    def _run(self) -> None:
        while not self._ended:
            self._hastened.clear()
            began = time.thread_time()
            try:
                self._turn()
                self._problem = ""
            except Exception as e:
                problem = f"{type(e).__name__}: {e}"
                if problem != self._problem:
                    log.warning(
                        "thread %s caught an error, and continues: %s", self._thread.name, problem, exc_info=True
                    )
                self._problem = problem
            self._hastened.wait(self._pause_seconds(time.thread_time() - began))

    def _pause_seconds(self, busy_seconds: float) -> float | None:
        return None if self._interval_seconds is None else max(self._interval_seconds, busy_seconds / MAX_BUSY)


class Watch(ABC, Generic[T]):
    """Handles the latest request, once, on a thread of its own. An older request that was not handled yet is dropped."""

    def __init__(self, name: str) -> None:
        nothing: tuple[Sequence[T], int] = (), 0
        self._requested = self._handled = nothing
        self._thread = Repeated(name, self._handle, interval_seconds=None)

    def start(self) -> None:
        self._thread.start()

    def look(self, places: Sequence[T], now_ms: int) -> None:
        """Makes the watch ask Kafka about these places, and forget earlier ones. `now_ms`: the broker's time."""
        self._requested = places, now_ms
        self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def _handle(self) -> None:
        requested = self._requested
        if requested is not self._handled:
            self._handled = requested
            self.see(*requested)

    @abstractmethod
    def see(self, places: Sequence[T], now_ms: int) -> None:
        """Asks Kafka about these places. Runs on the watch's thread."""
