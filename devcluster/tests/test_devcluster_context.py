"""With CONTEXT=name everything goes to that context of the kubeconfig, and nothing of this machine is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.context import Cluster, ForeignCluster, LocalCluster, current_cluster
from delayed_topics_devcluster.errors import PreconditionError

DEVCLUSTER = Path(sys.executable).parent / "devcluster"

SHOW_CONTEXT = 'for last; do :; done; [ ! -d "$last" ] || find "$last"'


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that writes down how it was called, and into `shown` what it was given: afterwards another process may build."""
    calls, shown = tmp_path / "calls", tmp_path / "shown"
    calls.touch()
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$(basename "$0") $@" >> {calls}\n{SHOW_CONTEXT} >> {shown}\n')
    docker.chmod(0o755)
    (tmp_path / "load-it").symlink_to(docker)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("LOAD", "IMAGE_REGISTRY", "BASE_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_the_context_chooses_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXT", "")
    assert isinstance(current_cluster(), LocalCluster)
    monkeypatch.setenv("CONTEXT", "kind-kind")
    assert isinstance(current_cluster(), ForeignCluster)


def test_images_that_are_there_already_are_not_built(recorder: Path) -> None:
    ForeignCluster("kind-kind").load("worker")
    assert recorder.read_text() == ""


@pytest.mark.process
def test_images_are_built_and_handed_to_the_loader(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD", "load-it docker-image")
    ForeignCluster("kind-kind").load("worker")
    build, load = recorder.read_text().splitlines()
    assert build.startswith("docker build --tag=delayed-topics/worker:dev /")
    assert load == "load-it docker-image delayed-topics/worker:dev"
    context = {
        Path(line).relative_to(build.split()[-1]) for line in recorder.with_name("shown").read_text().splitlines()
    }
    assert {str(path) for path in context} >= {"Dockerfile", "wheels"}
    assert any(path.match("wheels/own/delayed_topics_worker-*.whl") for path in context)


@pytest.mark.process
def test_images_are_pushed_to_a_registry(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE_REGISTRY", "registry.example.com/team")
    monkeypatch.setenv("BASE_IMAGE", "registry.example.com/python:3.11")
    ForeignCluster("kind-kind").load("worker")
    build, push = recorder.read_text().splitlines()
    assert "--tag=registry.example.com/team/worker:dev" in build
    assert "--build-arg=BASE_IMAGE=registry.example.com/python:3.11" in build
    assert push == "docker push registry.example.com/team/worker:dev"


def test_others_clusters_are_not_broken_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    LocalCluster().require_mine()
    monkeypatch.delenv("I_OWN_THIS_CLUSTER", raising=False)
    with pytest.raises(
        PreconditionError, match=r"CONTEXT=kind-kind may be in use by others\. Set I_OWN_THIS_CLUSTER=1"
    ):
        ForeignCluster("kind-kind").require_mine()
    monkeypatch.setenv("I_OWN_THIS_CLUSTER", "1")
    ForeignCluster("kind-kind").require_mine()


@pytest.mark.cluster
def test_a_context_is_used_without_touching_what_runs_here(cluster: Cluster, tmp_path: Path) -> None:
    both = yaml.safe_load(cluster.kubeconfig.read_text())
    used = both["current-context"]
    nowhere = {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}
    both["clusters"].append(nowhere)
    both["contexts"].append({"name": "nowhere", "context": {"cluster": "nowhere", "user": both["users"][0]["name"]}})
    both["current-context"] = "nowhere"
    (tmp_path / "config").write_text(yaml.safe_dump(both))
    environment = {
        "PATH": f"{cluster.kubeconfig.parent.parent / 'bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "config"),
        "CONTEXT": used,
    }

    def devcluster(*arguments: str) -> str:
        return subprocess.run(
            [DEVCLUSTER, *arguments], env=environment, capture_output=True, text=True, check=True
        ).stdout

    devcluster("up")
    devcluster("load", "operator", "worker", "audit", "kafka")
    copy = yaml.safe_load(Path(devcluster("kubeconfig").strip()).read_text())
    assert [context["name"] for context in copy["contexts"]] == [used]
    assert devcluster("env").startswith(f"KUBECONFIG={tmp_path}")
    devcluster("down")
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"
