"""Measures the processor time of a worker by thread, as the kernel counts it: the engine's thread, and those of librdkafka."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from delayed_topics_worker_testing.process import WorkerProcess, seconds_of

__all__ = ["IN_ALL", "SECTIONS", "Watch", "section_of"]

ENGINE, BROKERS, MAIN, OTHER = "engine", "librdkafka, brokers", "librdkafka, main", "Python"
SECTIONS = (ENGINE, BROKERS, MAIN, OTHER)
IN_ALL = "in all"


def section_of(thread: str) -> str:
    """Returns the section of a thread, by the name of the thread."""
    if thread == "engine":
        return ENGINE
    if thread.startswith("rdk:broker"):
        return BROKERS
    return MAIN if thread.startswith("rdk:main") else OTHER


class Watch:
    """Watches a drain of one worker. Each leg of the drain adds an entry to `legs`: section → µs per record."""

    def __init__(self, *, records: int) -> None:
        self.legs: list[dict[str, float]] = []
        self._records = records

    @contextmanager
    def __call__(self, workers: Sequence[WorkerProcess]) -> Iterator[None]:
        (worker,) = workers
        before = _spent(worker.pid)
        yield
        after = _spent(worker.pid)
        spent = {section: (after[section] - before[section]) / self._records * 1e6 for section in SECTIONS}
        self.legs.append({**{s: round(us, 2) for s, us in spent.items()}, IN_ALL: round(sum(spent.values()), 2)})


def _spent(pid: int) -> dict[str, float]:
    """Returns the processor seconds so far by section, of the threads that exist now."""
    found = dict.fromkeys(SECTIONS, 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        found[section_of(name)] += seconds_of(task / "stat")
    return found
