"""Prints how many tests passed and failed, from pytest's JUnit reports, as the last line of a run.

`python -m checks.counts REPORT [REPORT …]`. A missing report counts as a failure, because pytest ended before it could write it.
The caller has to leave out tiers that were never begun.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree


def counted(report: Path) -> tuple[int, int, int]:
    """Returns the numbers of passed, failed (or with errors) and skipped tests of a report."""
    if not report.exists():
        sys.stdout.write(f"{report}: pytest ended without a report, see above\n")
        return 0, 1, 0
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None, f"{report} has no test suite"
    total, skipped, failures, errors = (int(suite.attrib[n]) for n in ("tests", "skipped", "failures", "errors"))
    failed = failures + errors
    return total - failed - skipped, failed, skipped


def main(*reports: str) -> None:
    passed, failed, skipped = (sum(column) for column in zip(*(counted(Path(r)) for r in reports), strict=True))
    sys.stdout.write(f"{passed} passed, {failed} failed" + (f", {skipped} skipped\n" if skipped else "\n"))


if __name__ == "__main__":
    main(*sys.argv[1:])
