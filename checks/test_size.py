"""The numbers in docs/code-size.md are measured at the commits that it names."""

import subprocess
from pathlib import Path

import pytest

from checks.size import PAGE, SECTION, measured, shown

pytestmark = pytest.mark.check

FORMER = {
    "core/src/delayed_topics_core/layout.py": "x = 1\n" * 10,
    "bench/src/delayed_topics_bench/cli.py": "def main():\n" + "    x = 1\n" * 4,
}
NOW = {
    **FORMER,
    "core/src/delayed_topics_core/layout.py": "x = 1\n" * 5 + "def initial():\n" + "    x = 1\n" * 60,
    "core/src/delayed_topics_core_testing/copies.py": "x = 1\n" * 3,
    "core/tests/test_layout.py": "x = 1\n" * 20,
    "worker/engine/src/routing.rs": "fn f() {}\n" * 34,
    "worker/engine/tests/test_routing.rs": "fn f() {}\n" * 7,
    "checks/test_house.py": "x = 1\n" * 2,
    "docs/reasons.md": "text\n" * 100,
}


def committed(repository: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "a change"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_lines_count_by_member_and_by_what_they_are_for(tmp_path: Path) -> None:
    commits = committed(tmp_path, FORMER), committed(tmp_path, NOW)
    former, now = (measured(tmp_path, commit) for commit in commits)
    assert (former.product, former.infrastructure) == (10, 5)
    assert (now.product, now.infrastructure) == (100, 8)
    assert now.longest_function == (61, "`initial` in core/src/delayed_topics_core/layout.py")
    rows = shown(former, now, commits).splitlines()
    assert "| `core/` | 10 → 66 |  | 0 → 3 | 0 → 20 |" in rows
    assert "| `worker/` | 0 → 34 | 0 → 34 |  | 0 → 7 |" in rows
    assert "| `checks/` |  |  |  | 0 → 2 |" in rows
    assert "| test infrastructure, as a share of the product | 50 % → 8 % |" in rows
    assert "| test infrastructure, as a share of the product in Python | 50 % → 12 % |" in rows
    assert "| functions of the product with more than 60 lines | 0 → 1 |" in rows


def test_the_page_says_which_commits_its_numbers_are_of() -> None:
    section = PAGE.read_text().partition(SECTION.begin)[2].partition(SECTION.end)[0]
    assert section.count("Lines at commit `") == 1
