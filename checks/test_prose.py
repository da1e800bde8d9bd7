"""Pages are written in plain English, formatted alike, and have no dead links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.go_tools import go_tool

from checks.documents import PAGES, ROOT

pytestmark = pytest.mark.check

GENERATED = ROOT / "docs" / "reference.md"
TERMS = ROOT / "docs" / ".vale" / "DelayedTopics" / "Terms.yml"
MAX_LINES = 150
LONGER = {"CHANGELOG.md", "reference.md"}
"""Reference pages, which may be longer than `MAX_LINES`."""


def found(*pages: Path) -> list[str]:
    """Returns the findings of the prose linter, one line each."""
    command = [str(go_tool("vale")), f"--config={ROOT}/docs/.vale.ini", "--output=line", *map(str, pages)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_pages_are_plain_english() -> None:
    assert found(*PAGES) == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("A sentence " + "that goes on and on " * 6 + "is long.", "SentenceLength"),
        ("There is one thing: it has parts: two.", "OneColon"),
        ("Whoever reads this stops.", "Plain"),
        ("Records go to the retry topic.", "Terms"),
        ("Records wait in the the topic.", "Repetition"),
        ("Records wait in the topick.", "Spelling"),
    ],
)
def test_what_a_reader_stumbles_over_is_found(tmp_path: Path, text: str, rule: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{text}\n")
    (line,) = found(page)
    assert f".{rule}:" in line


def test_the_linter_replaces_what_the_glossary_says_others_use() -> None:
    rows = re.findall(r"^\| ([a-z -]+) \| .* \| (.*) \|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    elsewhere = {term: f"{term.replace('-', ' ')}, {names}" for term, names in rows}
    replaced = yaml.safe_load(TERMS.read_text())["swap"]
    ours = {word: term for word, term in replaced.items() if term not in ("Kubernetes", "API server")}
    assert set(ours.values()) <= elsewhere.keys()
    assert [word for word, term in ours.items() if not re.search(rf"\b{word}\b", elsewhere[term])] == []


def test_pages_have_one_form() -> None:
    pages = [page for page in PAGES if page != GENERATED]
    done = subprocess.run(
        [Path(sys.executable).parent / "mdformat", "--check", *pages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"make prose sets them right:\n{done.stderr}"


def test_no_page_is_longer_than_one_reads_at_a_time() -> None:
    counts = {page.name: len(page.read_text().splitlines()) for page in PAGES if page.name not in LONGER}
    assert {name: count for name, count in counts.items() if count > MAX_LINES} == {}


def test_each_page_begins_with_what_it_is_for_and_ends_with_what_is_next() -> None:
    pages = [page for page in PAGES if page.parent.name == "docs" and page.name not in LONGER]
    assert [page.name for page in pages if "his page" not in page.read_text().split("\n\n")[1]] == []
    assert [page.name for page in pages if not page.read_text().split("\n\n")[-1].startswith("Next: ")] == []


def test_the_site_has_every_page_and_no_dead_link() -> None:
    done = subprocess.run(["make", "--silent", "site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
