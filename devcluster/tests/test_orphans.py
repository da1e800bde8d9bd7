"""The next test ends the processes that a killed test left behind, and removes their data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from delayed_topics_devcluster.orphans import owned_folder, remove_orphans
from delayed_topics_devcluster.processes import Process, start_detached

pytestmark = pytest.mark.process

KILLED = """
import os
from pathlib import Path
from delayed_topics_devcluster.orphans import owned_folder
from delayed_topics_devcluster.processes import start_detached
folder = owned_folder("test")
start_detached(["sleep", "600"], log=folder / "log").write(folder / "sleep.json")
print(folder, flush=True)
os.kill(os.getpid(), 9)
"""


def test_processes_and_data_of_an_owner_that_was_killed_go(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    folder = Path(run.stdout.strip())
    orphan = Process.read(folder / "sleep.json")
    assert orphan is not None
    assert orphan.alive()
    remove_orphans(tmp_path)
    assert not orphan.alive()
    assert not folder.exists()


def test_processes_of_an_owner_that_lives_stay(tmp_path: Path) -> None:
    folder = owned_folder("test", tmp_path)
    child = start_detached(["sleep", "600"], log=tmp_path / "log")
    child.write(folder / "sleep.json")
    try:
        remove_orphans(tmp_path)
        assert child.alive()
        assert folder.exists()
    finally:
        child.kill()
