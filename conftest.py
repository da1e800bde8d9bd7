"""Settings and hooks that apply to every test of the workspace."""

import signal
import sys
from collections.abc import Callable, Generator

import pytest
from hypothesis import settings

from checks.scheduling import ByFile

# A shell without job control starts `make test &` with SIGINT ignored, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# the machines that tests run on are busy with brokers and clusters, so the time that one example takes says nothing
settings.register_profile("house", settings.get_profile("default"), deadline=None)
settings.load_profile("house")

pytest_plugins = ["delayed_topics_devcluster.stories"]

NEEDS = ("check", "process", "spark", "broker", "api", "cluster")
"""The markers that say what a test needs besides Python. A test without any of them is a unit test."""
OUTSIDE = ("subprocess.Popen", "os.posix_spawn", "socket.connect", "socket.bind")
"""The events of Python's audit hooks by which a unit test would leave its process."""
unit_tests: list[str] = []
"""The test that is running, if it is a unit test. Audit hooks have no other way to know."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(need) for need in NEEDS):
            item.add_marker("unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Lets the audit hook know whether a unit test is running. Unit tests that start processes or use a network would make the gate slow
    and unreliable, so they fail."""
    if item.get_closest_marker("unit"):
        unit_tests.append(item.nodeid)
    try:
        return (yield)
    finally:
        unit_tests.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the evidence of fixtures to the report of a failed test: what each `evidence()` returns before the fixture is torn down."""
    report = yield
    if report.when == "call" and report.failed:
        for name, fixture in getattr(item, "funcargs", {}).items():
            if hasattr(fixture, "evidence"):
                report.sections.append((f"{name}, when it failed", collected(fixture.evidence)))
    return report


def collected(evidence: Callable[[], str]) -> str:
    """Returns the evidence, or why there is none. An exception here would end the whole run."""
    try:
        return evidence()
    except Exception as e:  # noqa: BLE001 - whatever it is, the test's own failure is still reported
        return f"there is no evidence: {e!r}"


def stay_inside(event: str, arguments: tuple[object, ...]) -> None:
    if unit_tests and event in OUTSIDE:
        what = arguments[1]  # the command or the address; a process's environment stands behind it and may hold secrets
        raise RuntimeError(
            f"{unit_tests[0]} is a unit test and did {event} {what}: mark it with what it needs ({', '.join(NEEDS)})"
        )


sys.addaudithook(stay_inside)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)
