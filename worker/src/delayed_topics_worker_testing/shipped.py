"""The worker as it is shipped: with compiled modules, where this machine can compile."""

import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from delayed_topics_devcluster.wheels import own_wheels


def shipped_packages() -> Path:
    """A folder for PYTHONPATH with the worker's own wheels, unpacked; made anew, in half a minute, whenever a source of them
    has changed."""
    wheels = own_wheels("delayed-topics-worker")
    folder = wheels.with_name(f"{wheels.name}-unpacked")
    if not folder.is_dir():
        made = Path(tempfile.mkdtemp(dir=wheels.parent))
        try:
            for wheel in wheels.glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(made)
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else somebody else was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def shipped_environment() -> dict[str, str]:
    """This process's environment, for one that imports the shipped packages."""
    return {**os.environ, "PYTHONPATH": str(shipped_packages())}
