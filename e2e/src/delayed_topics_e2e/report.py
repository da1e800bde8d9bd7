"""Figures of a test run, printed at its end and kept in the user's cache. Stories assert counts and only report times."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from delayed_topics_devcluster.paths import cache_dir

__all__ = ["REPORTED", "Report"]

REPORTED = "reported"
"""The name of the test property that holds a line. Properties reach the end of the run from whichever process ran the test."""


@dataclass(frozen=True)
class Report:
    """The figures of one test."""

    record_property: Callable[[str, object], None]

    def add(self, story: str, text: str, **figures: Any) -> None:
        """Adds one line for people, and the figures for programs, to reports/e2e.jsonl in the cache."""
        self.record_property(REPORTED, f"reported: {story}: {text}")
        entry = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "story": story, "text": text, **figures}
        with (cache_dir("reports") / "e2e.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
