"""Measures what the operator and the servers that it calls use: processor time, memory, calls to the API server and to Kafka."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from delayed_topics_kafka.closing import Closing
from prometheus_client.parser import text_string_to_metric_families

from delayed_topics_bench.others import family, seconds_of_family

__all__ = ["Meter", "counted", "cpu_seconds", "peak_mib"]

EVERY_SECONDS = 1.0


class Meter(Closing):
    """Measures the operator and its helper processes once a second, in a thread of its own.

    `peak_mib`: the peaks of the resident memory of these processes, summed. `samples`: seconds since the start, resident MiB, and
    the processor seconds so far.
    """

    def __init__(self, pid: int) -> None:
        self.peak_mib = 0.0
        self.samples: list[tuple[float, float, float]] = []
        self._pid = pid
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            ticks = family(self._pid)
            self.peak_mib = max(self.peak_mib, peak_mib(ticks))
            passed = time.monotonic() - self._began
            cpu = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
            self.samples.append((round(passed, 1), round(_mib(ticks, "VmRSS:"), 1), round(cpu, 2)))
            if self._ended.wait(EVERY_SECONDS):
                return


def peak_mib(pids: Iterable[int]) -> float:
    """Returns the sum of the peaks of the resident memory of these processes."""
    return _mib(pids, "VmHWM:")


def _mib(pids: Iterable[int], field: str) -> float:
    return sum(_kib(pid, field) for pid in pids) / 1024


def _kib(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0  # the process has ended
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Returns the processor time so far of these processes and their descendants, by name."""
    return {name: seconds_of_family(pid) for name, pid in pids.items()}


def counted(exposition: str, counter: str, *by: str) -> Counter[tuple[str, ...]]:
    """Sums the series of a counter in Prometheus' text format by these labels."""
    # parse only these lines, because an API server has 10,000 others
    lines = "\n".join(line for line in exposition.splitlines() if line.startswith(counter))
    totals: Counter[tuple[str, ...]] = Counter()
    for metric in text_string_to_metric_families(lines + "\n"):
        for sample in metric.samples:
            if sample.name == counter:
                totals[tuple(sample.labels.get(label, "") for label in by)] += int(sample.value)
    return totals
