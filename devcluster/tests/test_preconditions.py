"""A missing precondition makes a command exit with code 1 and one line that says what to do, without a traceback.

These tests are in one file so that they run one after the other: one of them fakes a cluster that the whole machine sees.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_devcluster import cluster
from delayed_topics_devcluster.errors import PreconditionError
from delayed_topics_devcluster.images import IMAGES, make_context
from delayed_topics_devcluster.kafka import kafka_jars
from delayed_topics_devcluster.namespace import Namespace
from delayed_topics_devcluster.paths import IMAGE_SOURCES
from delayed_topics_devcluster.preconditions import PYTHON_OF_IMAGES
from delayed_topics_devcluster.waiting import wait_until

pytestmark = pytest.mark.process

DEVCLUSTER = Path(sys.executable).parent / "devcluster"


def put_program(environment: dict[str, str], name: str, script: str) -> None:
    file = Path(environment["PATH"], name)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def only_line_of(*arguments: str, environment: dict[str, str]) -> str:
    """Runs devcluster in this environment, asserts that it fails with one line, and returns the line."""
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
    put_program(bare, "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    assert 'needed to run Kafka (openjdk version "11.0.2"' in only_line_of("broker", "run", environment=bare)


def test_without_maven(bare: dict[str, str]) -> None:
    put_program(bare, "java", """echo 'openjdk version "21.0.1" 2023-10-17' >&2""")
    assert only_line_of("broker", "run", environment=bare).endswith("(no mvn in PATH): apt-get install maven")


@pytest.mark.parametrize("said", [None, "rustc 1.63.0"])
def test_without_rust(bare: dict[str, str], said: str | None) -> None:
    if said:
        put_program(bare, "cargo", "exit 1")
        put_program(bare, "rustc", f"echo {said}")
    line = only_line_of("engine", environment=bare)
    assert line.startswith(
        f"Error: Rust 1.74 or later is needed to build the relay's engine ({said or 'no cargo in PATH'})"
    )
    assert "cargo-web and rustc-web on Debian 12" in line


@pytest.mark.parametrize(
    ("python", "libc", "shown"),
    [
        ((3, 13, 1), ("glibc", "2.36"), "with glibc 2.36"),
        ((3, 11, 2), ("glibc", "2.41"), "with glibc 2.41"),
        ((3, 11, 2), ("", ""), "with no glibc"),
    ],
)
def test_images_are_not_built_with_wheels_that_they_would_refuse(
    python: tuple[int, int, int], libc: tuple[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASE_IMAGE", raising=False)
    monkeypatch.setattr(sys, "version_info", python)
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    with pytest.raises(PreconditionError, match=shown) as refused:
        make_context("worker")
    assert "Debian 12 with its own Python" in refused.value.message


def test_the_python_that_is_asked_for_is_that_of_the_images() -> None:
    bases = {
        re.search(r"^ARG BASE_IMAGE=(.+)$", (IMAGE_SOURCES / name / "Dockerfile").read_text(), re.M)
        for name, recipe in IMAGES.items()
        if recipe.distribution
    }
    assert {base and base[1] for base in bases} == {f"python:{'.'.join(map(str, PYTHON_OF_IMAGES))}-slim-bookworm"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets past the check for root")
@pytest.mark.parametrize(("said", "shown"), [(None, "no go in PATH"), ("go1.19.8", "go1.19.8")])
def test_without_go_1_24(bare: dict[str, str], said: str | None, shown: str) -> None:
    if said:
        put_program(bare, "go", f"echo {said}")
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
    put_program(bare, "dpkg-query", "printf installed")
    line = only_line_of("up", environment=bare)
    assert line.startswith("Error: Docker's containerd.io package excludes Debian's containerd: set CONTEXT=name")


def test_a_context_that_does_not_exist(bare: dict[str, str]) -> None:
    put_program(bare, "kubectl", "echo 'error: context was not found for: nowhere' >&2; exit 1")
    line = only_line_of("up", environment={**bare, "CONTEXT": "nowhere"})
    assert "The kubeconfig has no context for CONTEXT=nowhere" in line
    assert "kubectl config get-contexts" in line


def test_a_context_without_kubectl(bare: dict[str, str]) -> None:
    line = only_line_of("up", environment={**bare, "CONTEXT": "kind-kind"})
    assert line == "Error: kubectl is needed for CONTEXT=kind-kind. Put it into PATH."


@pytest.fixture
def others_cluster(tmp_path: Path) -> Iterator[Path]:
    """A fake of the first process of a cluster from another user's cache: it has the name, but only sleeps, and has no namespaces."""
    pause = tmp_path / "delayed-topics" / "bin" / "0123456789abcdef" / "pause"
    fake = subprocess.Popen(["bash", "-c", 'exec -a "$0" sleep 600', pause])
    try:
        wait_until(lambda: pause in {n.program for n in Namespace.running()}, what="the fake of the cluster is found")
        yield pause
    finally:
        fake.kill()
        fake.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts clusters")
def test_a_cluster_that_others_started_is_refused_and_said_whose_it_is(others_cluster: Path) -> None:
    with pytest.raises(PreconditionError, match="To end that one, run `make down`, here or there") as refused:
        cluster.up()
    assert str(others_cluster.parents[2] / "cluster") in refused.value.message
    assert "started from 600 " in refused.value.message  # the fake has this word where `pause` has a work tree


def test_a_cluster_that_is_only_being_made_is_found_too(others_cluster: Path) -> None:
    making = subprocess.Popen(
        ["bash", "-c", 'exec -a unshare tail -f /dev/null "$0" "$1"', others_cluster, "/somebody"]
    )
    try:
        wait_until(
            lambda: making.pid in {init.pid for init in Namespace.inits()}, what="the unfinished cluster is found"
        )
        assert making.pid not in {namespace.init.pid for namespace in Namespace.running()}
    finally:
        making.kill()
        making.wait()


def test_a_version_of_kafka_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", "4.x -Dsettings=mine")
    with pytest.raises(PreconditionError, match="KAFKA_VERSION must be a released version"):
        kafka_jars()
