"""Ends processes that a killed test leaves behind: each is recorded in a folder, which also names the owner."""

import os
import shutil
import tempfile
from pathlib import Path

from delayed_topics_devcluster.processes import Process

__all__ = ["owned_folder", "remove_orphans"]

PREFIX = "delayed-topics-mine-"
OWNER = "owner.json"


def owned_folder(kind: str, parent: Path | None = None) -> Path:
    """Makes a folder that this process owns, in the folder for temporary files unless `parent` is given. The owner has to record each
    process that it starts: `Process.write(folder / "NAME.json")`.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent))
    Process.of(os.getpid()).write(folder / OWNER)
    return folder


def remove_orphans(parent: Path | None = None) -> None:
    """Ends the recorded processes of all owners that are gone, and removes their folders."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        owner = Process.read(folder / OWNER)
        if owner is None or owner.alive():
            continue
        for file in folder.glob("*.json"):
            orphan = Process.read(file)
            if orphan is not None and orphan != owner:
                orphan.kill()
        shutil.rmtree(folder, ignore_errors=True)
