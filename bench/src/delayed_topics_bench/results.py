"""The results files bench/results/*.json: all runs, by part and key. A new series of runs replaces the one before."""

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from delayed_topics_devcluster.paths import REPOSITORY
from delayed_topics_devcluster.revision import revision

from delayed_topics_bench.samples import Verdict

__all__ = [
    "NOT_RECEIVED",
    "NOT_TO_BE_HAD",
    "PATIENCE_SECONDS",
    "RESULTS",
    "Entry",
    "Figure",
    "Results",
    "merged",
    "runs_of",
]

RESULTS = REPOSITORY / "bench" / "results"
PATIENCE_SECONDS = 60
"""How long to wait for the records of peers after the last sending."""
NOT_RECEIVED = f"not_received_in_{PATIENCE_SECONDS}_s"
NOT_TO_BE_HAD = "not_to_be_had"
"""The figure of a peer that could not be started; its value is the reason."""

Run = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The figures of one run, which are added to `body["parts"][part][key]`. `problem`: why the run is not valid."""

    key: str
    figures: Mapping[str, Any]
    verdict: Verdict | None = None
    problem: str | None = None


class Results:
    """A results file. `body` is its content."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun: set[tuple[str, str]] = set()
        self.body: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}}

    def add(self, part: str, entry: Entry, *, others: float, slowed: float) -> None:
        """Adds a run and writes the file, so that the run stays if a later one fails. The first run of a series removes the series before.

        `others`: the share of the machine that other programs took during the run. `slowed`: the share of the time in which the
        processors were slower than usual.
        """
        run: dict[str, Any] = {
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            "commit": revision(),
            "cpu": _cpu(),
            "others": round(others, 3),
            "slowed": round(slowed, 3),
            "figures": dict(entry.figures),
        }
        if entry.verdict is not None:
            run["checked"] = asdict(entry.verdict)
        if entry.problem is not None:
            run["problem"] = entry.problem
        series = self.body["parts"].setdefault(part, {})
        if (part, entry.key) not in self._begun:
            self._begun.add((part, entry.key))
            series[entry.key] = []
        series[entry.key].append(run)
        self.body["machine"] = _machine()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(_text(self.body) + "\n")


class Figure(NamedTuple):
    """A number that several runs have measured."""

    median: float
    lowest: float
    highest: float


def merged(values: list[Any]) -> Any:
    """Merges the figures of several runs. Numbers become a Figure; of all other values, the first run's is taken.

    A figure that some runs lack is merged from those that have it.
    """
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: merged([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, int | float) and not isinstance(first, bool):
        return Figure(median(values), min(values), max(values))
    return first


def runs_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Run]]:
    """Yields all runs, each with the part and the key that it measured."""
    for part, series in body["parts"].items():
        for key, runs in series.items():
            for one in runs:
                yield f"{part} {key}", one


def _text(body: Mapping[str, Any]) -> str:
    """Formats as JSON, with each list of numbers on one line, because timelines have thousands of numbers."""
    lists = r"\[\n[-+.,\deE\snul]*\]"
    return re.sub(lists, lambda found: json.dumps(json.loads(found[0])), json.dumps(body, indent=2))


def _cpu() -> str:
    model = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return model[0] if model else platform.machine()


def _machine() -> dict[str, Any]:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(gib, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
