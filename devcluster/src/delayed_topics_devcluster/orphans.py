"""What tests start outlives them when they are killed: each process is noted in a folder that says whose it is."""

import os
import shutil
import tempfile
from pathlib import Path

from delayed_topics_devcluster.processes import Process

__all__ = ["folder_of_mine", "remove_orphans"]

PREFIX = "delayed-topics-mine-"
OWNER = "owner.json"


def folder_of_mine(kind: str, parent: Path | None = None) -> Path:
    """A new folder of this process, among the temporary ones unless `parent` is given. What it starts it notes there:
    `Process.write(folder / "NAME.json")`.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=parent))
    Process.of(os.getpid()).write(folder / OWNER)
    return folder


def remove_orphans(parent: Path | None = None) -> None:
    """End the processes whose owner was killed, and remove their data."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        owner = Process.read(folder / OWNER)
        if owner is None or owner.alive():
            continue
        for file in folder.glob("*.json"):
            orphan = Process.read(file)
            if orphan is not None and orphan != owner:
                orphan.kill()
        shutil.rmtree(folder, ignore_errors=True)
