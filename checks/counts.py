"""Says how many tests passed and failed, from pytest's JUnit report: the last line of a run, whatever else prints late."""

import sys
from xml.etree import ElementTree


def main(report: str) -> None:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None, f"{report} has no test suite"
    total, skipped, failures, errors = (int(suite.attrib[n]) for n in ("tests", "skipped", "failures", "errors"))
    failed = failures + errors
    sys.stdout.write(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped\n")


if __name__ == "__main__":
    main(sys.argv[1])
