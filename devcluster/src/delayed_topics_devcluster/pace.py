"""Repeats an action in a thread, beside the body of a test or a benchmark."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event

__all__ = ["paced", "repeated"]

TICK_SECONDS = 0.002


@contextmanager
def repeated(do: Callable[[], None]) -> Iterator[None]:
    """Calls `do` again and again in a thread until the block ends. An exception ends the calls, and is raised at the end of the
    block."""
    ended = Event()

    def run() -> None:
        while not ended.is_set():
            do()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        running.result()


def paced(do: Callable[[int], None], per_second: Callable[[], float]) -> AbstractContextManager[None]:
    """Like `repeated`, but calls `do(0)`, `do(1)` … at a steady pace. If the calls fall behind, they catch up.

    `per_second` returns the present pace, and is called every 2 ms.
    """
    number, owed, last = 0, 0.0, time.monotonic()

    def catch_up() -> None:
        nonlocal number, owed, last
        time.sleep(TICK_SECONDS)
        now = time.monotonic()
        owed, last = owed + (now - last) * per_second(), now
        while owed >= 1:
            do(number)
            number, owed = number + 1, owed - 1

    return repeated(catch_up)
