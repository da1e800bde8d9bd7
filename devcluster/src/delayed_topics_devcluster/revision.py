"""What a figure was measured with."""

from delayed_topics_devcluster.commands import run
from delayed_topics_devcluster.paths import REPOSITORY

__all__ = ["revision"]


def revision() -> str:
    """The commit of this work tree; it ends in `-dirty` where files differ from it."""
    return run("git", "-C", REPOSITORY, "describe", "--always", "--dirty", "--abbrev=12").strip()
