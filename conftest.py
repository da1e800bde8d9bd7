"""For every test of the workspace."""

import sys
from collections.abc import Callable, Generator

import pytest
from hypothesis import settings

from checks.scheduling import ByFile

# the machines that tests run on are busy with brokers and clusters, so the time that one example takes says nothing
settings.register_profile("house", settings.get_profile("default"), deadline=None)
settings.load_profile("house")

pytest_plugins = ["delayed_topics_devcluster.stories"]

NEEDS = ("check", "process", "spark", "broker", "api", "cluster")
"""Markers of what a test needs besides Python. One without any is a unit test."""
OUTSIDE = ("subprocess.Popen", "os.posix_spawn", "socket.connect", "socket.bind")
"""What Python's audit hooks call the ways out of a unit test."""
unit_tests: list[str] = []
"""The one that runs now, if it is one: hooks have no other way to know."""


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(need) for need in NEEDS):
            item.add_marker("unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A unit test that starts a process or talks to a network is told so: that is how a gate gets slow and uncertain."""
    if item.get_closest_marker("unit"):
        unit_tests.append(item.nodeid)
    try:
        return (yield)
    finally:
        unit_tests.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed tells what was there: each fixture that has an `evidence()` is asked before it goes."""
    report = yield
    if report.when == "call" and report.failed:
        for name, fixture in getattr(item, "funcargs", {}).items():
            if hasattr(fixture, "evidence"):
                report.sections.append((f"{name}, when it failed", told(fixture.evidence)))
    return report


def told(evidence: Callable[[], str]) -> str:
    """What can't be asked any more says why; an exception here would end the whole run."""
    try:
        return evidence()
    except Exception as e:  # noqa: BLE001 - whatever it is, the failure itself is told
        return f"nothing could be asked: {e!r}"


def stay_inside(event: str, arguments: tuple[object, ...]) -> None:
    if unit_tests and event in OUTSIDE:
        what = arguments[1]  # the command or the address; a process's environment stands behind it and may hold secrets
        raise RuntimeError(
            f"{unit_tests[0]} is a unit test and did {event} {what}: mark it with what it needs ({', '.join(NEEDS)})"
        )


sys.addaudithook(stay_inside)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)
