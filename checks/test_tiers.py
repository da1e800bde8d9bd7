"""The gate is what it says: unit tests stay inside, and a run's last line counts what ran."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from checks import counts

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
