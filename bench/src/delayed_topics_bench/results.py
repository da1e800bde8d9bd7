"""bench/results/relay.json: what was measured, by part; a run replaces what it has measured and leaves the rest."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.paths import REPOSITORY

from delayed_topics_bench.samples import Verdict

__all__ = ["RESULTS", "Entry", "Results"]

RESULTS = REPOSITORY / "bench" / "results" / "relay.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A figure, or some that belong together: `relay.json[part][key] = figures`; without a key, `relay.json[part]`."""

    part: str
    key: str | None = None
    figures: Mapping[str, Any]
    verdict: Verdict | None = None


class Results:
    """The file; `body` is its content."""

    def __init__(self, file: Path = RESULTS) -> None:
        self._file = file
        self.body: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

    def add(self, entry: Entry, *, others: float) -> None:
        """Take in an entry, and write the file: what was measured stays when a later part fails. `others`: the share of the
        machine that other programs took meanwhile."""
        if entry.key is None:
            self.body[entry.part] = dict(entry.figures)
        else:
            self.body.setdefault(entry.part, {})[entry.key] = dict(entry.figures)
        name = "/".join(filter(None, (entry.part, entry.key)))
        note: dict[str, Any] = {
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            "commit": _commit(),
            "others": round(others, 3),
        }
        if entry.verdict is not None:
            note["checked"] = asdict(entry.verdict)
        self.body.setdefault("runs", {})[name] = note
        self.body["machine"] = _machine()
        self.body.update(_totals(self.body["runs"]))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.body, indent=2) + "\n")


def _totals(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Of all runs of the relay; a peer's faults are its own."""
    total = sum((Verdict(**r["checked"]) for r in runs.values() if "checked" in r), Verdict())
    return {"early": total.early, "lost": total.lost, "doubled": total.doubled}


def _commit() -> str:
    return run("git", "-C", REPOSITORY, "describe", "--always", "--dirty", "--abbrev=12").strip()


def _machine() -> dict[str, Any]:
    model = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(gib, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
