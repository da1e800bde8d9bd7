"""The client as a service installs it: without the extra `cli`, and without packages that only the command line needs."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / member / "src") for member in ("client", "core", "kafka")]
ONLY_OF_THE_COMMAND_LINE = ("click", "rich")


def needed(distribution: str) -> set[str]:
    """Returns the distributions that pip installs with one without extras, including indirect dependencies."""
    found = {distribution}
    for line in importlib.metadata.requires(distribution) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= needed(requirement.name)
    return found


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has only the packages that the client needs."""
    for name in needed("delayed-topics"):
        for file in importlib.metadata.files(name) or ():
            at, top = (
                tmp_path / file.parts[0],
                Path(str(importlib.metadata.distribution(name).locate_file(file.parts[0]))),
            )
            if file.parts[0] != ".." and not at.exists() and top.suffix != ".pth":
                at.symlink_to(top)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*SOURCES, str(tmp_path)])}


def python(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_a_service_that_imports_the_client_gets_nothing_of_the_command_line(installed: dict[str, str]) -> None:
    assert python(installed, "-c", "import delayed_topics, delayed_topics.topic, delayed_topics.redrive").stderr == ""
    for name in ONLY_OF_THE_COMMAND_LINE:
        assert f"No module named '{name}'" in python(installed, "-c", f"import {name}").stderr


def command() -> str:
    """Returns the code that the installed script `delayed-topics` runs."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="delayed-topics")
    return f"from {script.module} import {script.attr}; {script.attr}()"


@pytest.mark.parametrize("arguments", [("-m", "delayed_topics"), ("-c", command())], ids=["module", "script"])
def test_the_command_says_in_one_line_what_to_install(installed: dict[str, str], arguments: tuple[str, ...]) -> None:
    done = python(installed, *arguments, "status", "orders")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: the command delayed-topics needs click and rich, which come with the extra cli of the client. "
        "Install them from a checkout of the project with pip install ./core ./kafka './client[cli]'\n"
    )


def test_with_its_extra_the_client_has_the_command() -> None:
    of_extra = [Requirement(line) for line in importlib.metadata.requires("delayed-topics") or () if "extra ==" in line]
    named = [r.name for r in of_extra if r.marker is not None and r.marker.evaluate({"extra": "cli"})]
    assert sorted(named) == [*ONLY_OF_THE_COMMAND_LINE]


def test_the_command_runs_with_older_versions_of_click_that_its_extra_allows() -> None:
    """Before click 8.4, no class of click is generic, and Python evaluates the bases of a class on import."""
    as_before = (
        "import click; click.ParamType.__class_getitem__ = None; from delayed_topics.cli import main; main(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", as_before], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
