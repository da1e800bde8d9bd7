"""One at a time, over all processes of this user, or of the machine."""

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
    """Wait until nobody else holds the lock of this name, and hold it. The kernel frees it when its holder dies.

    `folder`: by default one of this user's cache.
    """
    with ((folder or cache_dir("locks")) / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that holds {file.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder of the cache, whole or not at all: `make` fills another one, which takes its place."""
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
