"""What is done again and again at a steady pace, beside what a test or a benchmark does meanwhile."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

__all__ = ["paced"]

TICK_SECONDS = 0.002


@contextmanager
def paced(do: Callable[[int], None], per_second: Callable[[], float]) -> Iterator[None]:
    """Calls `do(0)`, `do(1)` … in a thread until the block ends. Where it falls behind, it catches up.

    `per_second` is asked all the time. What `do` raises ends it, and is raised where the block ends.
    """
    ended = Event()

    def run() -> None:
        number, owed, last = 0, 0.0, time.monotonic()
        while not ended.wait(TICK_SECONDS):
            now = time.monotonic()
            owed, last = owed + (now - last) * per_second(), now
            while owed >= 1:
                do(number)
                number, owed = number + 1, owed - 1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        running.result()
