"""Threads beside the worker's own, for questions to Kafka that block."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

log = logging.getLogger(__name__)

MOST_BUSY: Final = 0.05
"""The share of a processor that looking again and again may take, with however many topics: it is done less often instead."""

CLOSING_SECONDS: Final = 1.0

T = TypeVar("T")


def closing(close: Callable[[], object]) -> None:
    """What takes longer is left behind: the end of a Kafka client waits for a name server, however long that takes to answer."""
    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(CLOSING_SECONDS)


class Repeated:
    """Calls `turn` on a thread of its own until `close`: every `interval_seconds`, unless that is None, and when it is hastened. A turn
    that takes long to compute is followed by a longer pause, see MOST_BUSY. An exception of a turn is logged, but only once while it
    stays the same, and does not prevent the next turn."""

    def __init__(self, name: str, turn: Callable[[], None], *, interval_seconds: float | None) -> None:
        self._turn = turn
        self._interval_seconds = interval_seconds
        self._asked = threading.Event()
        self._ended = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def hasten(self) -> None:
        """The next turn comes at once."""
        self._asked.set()

    def close(self) -> None:
        """The turn at hand is the last; it isn't waited for."""
        self._ended = True
        self._asked.set()

    def _run(self) -> None:
        while not self._ended:
            self._asked.clear()
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
            self._asked.wait(self._pause_seconds(time.thread_time() - began))

    def _pause_seconds(self, busy_seconds: float) -> float | None:
        return None if self._interval_seconds is None else max(self._interval_seconds, busy_seconds / MOST_BUSY)


class Watch(ABC, Generic[T]):
    """Answers what it was asked last, once, on a thread of its own."""

    def __init__(self, name: str) -> None:
        nothing: tuple[Sequence[T], int] = (), 0
        self._asked = self._answered = nothing
        self._thread = Repeated(name, self._answer, interval_seconds=None)

    def start(self) -> None:
        self._thread.start()

    def look(self, places: Sequence[T], now_ms: int) -> None:
        """Ask Kafka about these, and forget the others. `now_ms`: the broker's time."""
        self._asked = places, now_ms
        self._thread.hasten()

    def close(self) -> None:
        self._thread.close()

    def _answer(self) -> None:
        asked = self._asked
        if asked is not self._answered:
            self._answered = asked
            self.see(*asked)

    @abstractmethod
    def see(self, places: Sequence[T], now_ms: int) -> None:
        """On the watch's thread."""
