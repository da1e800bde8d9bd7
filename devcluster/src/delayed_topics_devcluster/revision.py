"""The commit with which a figure was measured."""

from pathlib import Path
from typing import Final

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.paths import REPOSITORY

__all__ = ["revision"]

WRITTEN: Final = ("bench/results", "faults/results", "docs/performance*.md", "docs/fault-results.md")
"""Files that measurements write."""


def revision(repository: Path = REPOSITORY) -> str:
    """The commit of this work tree, with the suffix `-dirty` if files differ from it, other than those that measurements write."""
    commit = run("git", "-C", repository, "rev-parse", "--short=12", "HEAD").strip()
    others = [f":(exclude){path}" for path in WRITTEN]
    changed = run("git", "-C", repository, "status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    return f"{commit}-dirty" if changed.strip() else commit
