"""The tiers of tests keep their rules: unit tests start no process and use no network, and the last line of a run counts its tests."""

import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import counts
from checks.scheduling import ALONE, ByFile

REPORT = '<testsuites><testsuite tests="7" skipped="1" failures="2" errors="1"/></testsuites>'


def test_a_unit_test_that_starts_a_process_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"test_tiers\.py::test_a_unit_test_that_starts_a_process_is_refused is a unit test"
    ):
        subprocess.run([sys.executable, "--version"], check=True)


def test_a_unit_test_that_talks_to_a_network_is_refused() -> None:
    with socket.socket() as door, pytest.raises(RuntimeError, match=r"did socket\.connect"):
        door.connect(("127.0.0.1", 9))


def test_errors_count_as_failures_and_skipped_tests_not_as_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(REPORT)
    counts.main(str(report), str(report))
    assert capsys.readouterr().out == "6 passed, 6 failed, 2 skipped\n"


def test_a_run_that_left_no_report_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts.main(str(tmp_path / "unit.xml"))
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_what_disturbs_the_cluster_runs_when_nothing_else_of_it_does(processes: int) -> None:
    for seed in range(50):
        _play(processes, random.Random(seed))


def test_a_story_that_breaks_what_others_use_is_among_those_that_run_alone() -> None:
    marked = re.compile(r"^pytestmark = .*?own_cluster", re.MULTILINE | re.DOTALL)
    breaking = {
        str(file)
        for file in Path("e2e/tests").glob("test_*.py")
        if marked.search(file.read_text().partition("\n\n\n")[0])
    }
    assert len(breaking) > 5
    assert breaking - set(ALONE) == set()


def _play(processes: int, chance: random.Random) -> None:
    """Simulates processes that begin and end their tests in random order."""
    files = [f"e2e/tests/test_story_{n}.py" for n in range(chance.randrange(6))]
    files += [*ALONE, *chance.sample(["core/tests/test_a.py", "checks/test_house.py", "client/tests/test_b.py"], 2)]
    tests = [f"{file}::test_{n}" for file in files for n in range(chance.randrange(1, 5))]
    chance.shuffle(tests)
    nodes = [Process(tests) for _ in range(processes)]
    scheduler: Any = ByFile(
        SimpleNamespace(getvalue=lambda _: [f"{processes}*popen"], option=SimpleNamespace(loadscopereorder=True)), None
    )
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()

    ran = []
    while movable := [node for node in nodes if node.can_move]:
        node = chance.choice(movable)
        if (ended := node.move()) is not None:
            ran.append(tests[ended])
            scheduler.mark_test_complete(node, ended)
        running = [tests[n.running].partition("::")[0] for n in nodes if n.running is not None]
        if any(file in ALONE for file in running):
            assert not [file for file in running if file.startswith("e2e/") and file not in ALONE], running
            assert len([file for file in running if file in ALONE]) == 1, running
    assert sorted(ran) == sorted(tests)


class Process:
    """A worker process of pytest-xdist, as the scheduler sees it: runs one test at a time, and only when it knows the next one, or knows
    that none follows."""

    def __init__(self, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.shutting_down = False
        self.running: int | None = None
        self._queue: list[int] = []
        self._tests = tests

    def shutdown(self) -> None:
        self.shutting_down = True

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self._queue += indices

    @property
    def can_move(self) -> bool:
        return self.running is not None or len(self._queue) > 1 or (self.shutting_down and bool(self._queue))

    def move(self) -> int | None:
        """Ends the running test and returns its index, or else begins the next test."""
        ended, self.running = self.running, None
        if ended is None:
            self.running = self._queue.pop(0)
        return ended
