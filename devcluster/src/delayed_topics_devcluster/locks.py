"""Locks between the processes of this user, or of the whole machine."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from delayed_topics_devcluster.paths import cache_dir
from delayed_topics_devcluster.progress import say

__all__ = ["locked", "made_once"]


@contextmanager
def locked(name: str, *, folder: Path | None = None) -> Iterator[None]:
    """Waits until no other process holds the lock of this name, and holds it. The kernel releases it when its holder dies.

    `folder`: for the lock's file; by default in this user's cache.
    """
    with ((folder or cache_dir("locks")) / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {file.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Returns a folder of the cache, and makes it first if it is missing. `make` fills a temporary folder, which is renamed when it is
    complete."""
    with locked(f"made-{folder.parent.name}"):
        if not folder.is_dir():
            made = Path(tempfile.mkdtemp(dir=folder.parent))
            made.chmod(0o755)
            try:
                make(made)
                made.rename(folder)
            finally:
                shutil.rmtree(made, ignore_errors=True)
    return folder
