"""What a machine lacks is said in one line that tells what to do, with exit code 1 and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

DEVCLUSTER = Path(sys.executable).parent / "devcluster"


def program(environment: dict[str, str], name: str, script: str) -> None:
    file = Path(environment["PATH"], name)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def only_line_of(*arguments: str, environment: dict[str, str]) -> str:
    """Run devcluster in another environment; it must fail, with one line."""
    result = subprocess.run(
        [DEVCLUSTER, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """A machine with an empty cache and no programs at all."""
    programs = tmp_path / "bin"
    programs.mkdir()
    return {"PATH": str(programs), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_without_java(bare: dict[str, str]) -> None:
    line = only_line_of("broker", "run", environment=bare)
    assert line == (
        "Error: Java 17 or later is needed to run Kafka (no java in PATH): apt-get install openjdk-17-jre-headless"
    )


def test_with_an_old_java(bare: dict[str, str]) -> None:
    program(bare, "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    assert 'needed to run Kafka (openjdk version "11.0.2"' in only_line_of("broker", "run", environment=bare)


def test_without_maven(bare: dict[str, str]) -> None:
    program(bare, "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    assert only_line_of("broker", "run", environment=bare).endswith("(no mvn in PATH): apt-get install maven")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets past the check for root")
@pytest.mark.parametrize(("said", "shown"), [(None, "no go in PATH"), ("go1.19.8", "go1.19.8")])
def test_without_go_1_24(bare: dict[str, str], said: str | None, shown: str) -> None:
    if said:
        program(bare, "go", f"echo {said}")
    line = only_line_of("up", environment=bare)
    assert line.startswith(f"Error: Go 1.24 or later is needed to build Kubernetes ({shown}):")
    assert "CONTEXT=name" in line


def test_without_root(bare: dict[str, str]) -> None:
    script = "import os; os.geteuid = lambda: 1000\nfrom delayed_topics_devcluster.cli import main; main(['up'])"
    result = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        "Error: The local cluster needs root: run as root, or set CONTEXT=name to use a cluster of your kubeconfig.\n"
    )


def test_docker_is_not_harmed(bare: dict[str, str]) -> None:
    program(bare, "dpkg-query", "printf installed")
    line = only_line_of("up", environment=bare)
    assert line.startswith("Error: Docker's containerd.io package excludes Debian's containerd: set CONTEXT=name")


def test_a_context_that_does_not_exist(bare: dict[str, str]) -> None:
    program(bare, "kubectl", "echo 'error: context was not found for: nowhere' >&2; exit 1")
    line = only_line_of("up", environment={**bare, "CONTEXT": "nowhere"})
    assert "CONTEXT=nowhere: no such context in the kubeconfig" in line
    assert "kubectl config get-contexts" in line


def test_a_context_without_kubectl(bare: dict[str, str]) -> None:
    line = only_line_of("up", environment={**bare, "CONTEXT": "kind-kind"})
    assert line == "Error: kubectl is needed for CONTEXT=kind-kind: put it into PATH."
