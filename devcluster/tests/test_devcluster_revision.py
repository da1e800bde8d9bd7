"""Figures name the commit that they were measured with, and whether files differed from it."""

import subprocess
from pathlib import Path

import pytest
from delayed_topics_devcluster.revision import revision

pytestmark = pytest.mark.process


def git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *identity, "-C", repository, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("worker.py", "bench/results/relay.json", "docs/performance.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def test_a_run_after_another_has_the_same_commit_since_only_figures_have_changed(repository: Path) -> None:
    (repository / "bench/results/relay.json").write_text("two\n")
    (repository / "docs/performance.md").write_text("two\n")
    assert revision(repository) == git(repository, "rev-parse", "--short=12", "HEAD")


def test_a_changed_program_is_told(repository: Path) -> None:
    (repository / "worker.py").write_text("two\n")
    assert revision(repository) == git(repository, "rev-parse", "--short=12", "HEAD") + "-dirty"
