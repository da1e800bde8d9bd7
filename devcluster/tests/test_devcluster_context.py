"""With CONTEXT=name, all commands go to that context of the kubeconfig, and need no cluster on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from delayed_topics_devcluster.cli import main
from delayed_topics_devcluster.context import Cluster, ForeignCluster, LocalCluster, current_cluster
from delayed_topics_devcluster.errors import PreconditionError

DEVCLUSTER = Path(sys.executable).parent / "devcluster"

FIRST_ID, SECOND_ID = "1" * 64, "2" * 64
SHOW_CONTEXT = 'for last; do :; done; [ ! -d "$last" ] || find "$last"'


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake `docker` that records its calls in `calls`, and lists its build contexts in `shown`, because another process may replace
    a context afterwards. Returns the path of `calls`.

    The file `id` has the id of the image that it builds.
    """
    calls, shown = tmp_path / "calls", tmp_path / "shown"
    calls.touch()
    (tmp_path / "id").write_text(f"sha256:{FIRST_ID}")
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$(basename "$0") $@" >> {calls}\n{SHOW_CONTEXT} >> {shown}\n'
        f'for word; do case "$word" in --iidfile=*) cp {tmp_path}/id "${{word#*=}}";; esac; done\n'
    )
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
    build, tag, load = recorder.read_text().splitlines()
    assert build.startswith("docker build --iidfile=/")
    assert tag == f"docker tag {FIRST_ID} delayed-topics/worker:dev-1111111111111111"
    assert load == "load-it docker-image delayed-topics/worker:dev-1111111111111111"
    context = {
        Path(line).relative_to(build.split()[-1]) for line in recorder.with_name("shown").read_text().splitlines()
    }
    assert {str(path) for path in context} >= {"Dockerfile", "wheels"}
    assert any(path.match("wheels/own/delayed_topics_worker-*.whl") for path in context)


@pytest.mark.process
def test_images_are_pushed_to_a_registry(recorder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGE_REGISTRY", "registry.example.com/team")
    monkeypatch.setenv("BASE_IMAGE", "registry.example.com/python:3.11")
    pushed = ForeignCluster("kind-kind").load("worker")
    assert pushed == "registry.example.com/team/worker:dev-1111111111111111"
    build, tag, push = recorder.read_text().splitlines()
    assert "--build-arg=BASE_IMAGE=registry.example.com/python:3.11" in build
    assert tag == f"docker tag {FIRST_ID} {pushed}"
    assert push == f"docker push {pushed}"


@pytest.mark.process
@pytest.mark.slow
def test_the_values_for_the_chart_name_other_images_once_something_has_changed(
    recorder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT", "kind-kind")
    monkeypatch.setenv("IMAGE_REGISTRY", "127.0.0.1:5000/team")
    file = recorder.with_name("build") / "images.yaml"

    def built() -> dict[str, dict[str, str]]:
        CliRunner().invoke(main, ["load", "--values", str(file), "operator", "worker"], catch_exceptions=False)
        images: dict[str, dict[str, str]] = yaml.safe_load(file.read_text())["images"]
        return images

    first = built()
    recorder.with_name("id").write_text(f"sha256:{SECOND_ID}")
    second = built()
    assert first["worker"] == {"repository": "127.0.0.1:5000/team/worker", "tag": f"dev-{FIRST_ID[:16]}"}
    assert second == {
        name: {"repository": f"127.0.0.1:5000/team/{name}", "tag": f"dev-{SECOND_ID[:16]}"}
        for name in ("operator", "worker")
    }


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
    assert devcluster("env").startswith(f"export KUBECONFIG={tmp_path}")
    devcluster("down")
    assert cluster.kubectl("get", "--raw", "/readyz") == "ok"
