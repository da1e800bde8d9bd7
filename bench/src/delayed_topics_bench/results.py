"""bench/results/*.json: what was measured, by part and key, each run of it; a new series replaces the one before."""

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
"""With records of peers."""
NOT_RECEIVED = f"not_received_in_{PATIENCE_SECONDS}_s"
NOT_TO_BE_HAD = "not_to_be_had"
"""The figure of a peer that could not be started: why."""

Run = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one run has measured of one thing, as `body["parts"][part][key]` gets it. `problem`: why it is no valid run."""

    key: str
    figures: Mapping[str, Any]
    verdict: Verdict | None = None
    problem: str | None = None


class Results:
    """The file; `body` is its content."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun: set[tuple[str, str]] = set()
        self.body: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"parts": {}}

    def add(self, part: str, entry: Entry, *, others: float, slowed: float) -> None:
        """Take in a run, and write the file: what was measured stays when a later one fails. The first of this series ends the
        one before. `others`: the share of the machine that other programs took meanwhile. `slowed`: of that time, how
        much of it the processors were slower than usual."""
        note: dict[str, Any] = {
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            "commit": revision(),
            "cpu": _cpu(),
            "others": round(others, 3),
            "slowed": round(slowed, 3),
            "figures": dict(entry.figures),
        }
        if entry.verdict is not None:
            note["checked"] = asdict(entry.verdict)
        if entry.problem is not None:
            note["problem"] = entry.problem
        series = self.body["parts"].setdefault(part, {})
        if (part, entry.key) not in self._begun:
            self._begun.add((part, entry.key))
            series[entry.key] = []
        series[entry.key].append(note)
        self.body["machine"] = _machine()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(_text(self.body) + "\n")


class Figure(NamedTuple):
    """A number of several runs."""

    median: float
    lowest: float
    highest: float


def merged(values: list[Any]) -> Any:
    """The same thing of several runs: numbers become a Figure, all else is the first run's. What a run doesn't have is of the others."""
    first = values[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: merged([value[name] for value in values if name in value]) for name in names}
    if isinstance(first, int | float) and not isinstance(first, bool):
        return Figure(median(values), min(values), max(values))
    return first


def runs_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Run]]:
    """Each with the name of what it has measured."""
    for part, series in body["parts"].items():
        for key, runs in series.items():
            for one in runs:
                yield f"{part} {key}", one


def _text(body: Mapping[str, Any]) -> str:
    """As JSON, with a list of numbers on one line: timelines have thousands."""
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
