"""`make audit-mutations` takes hours, so it keeps its results together with the commit that it tested."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delayed_topics_audit import session
from delayed_topics_audit_testing import mutations
from delayed_topics_audit_testing.mutation_results import Judged

Run = Callable[..., str]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that were run, without Spark. Seed 1 does not find the lost record, and the run is interrupted at seed 3."""
    seen: list[int] = []

    def judge(spark: object, *, records: int, seed: int) -> Judged:
        if seed == 3:
            raise KeyboardInterrupt
        seen.append(seed)
        return Judged(right={"lost": seed != 1, "early": True}, summary="wrong none")

    monkeypatch.setattr(mutations, "judge", judge)
    monkeypatch.setattr(session, "start", lambda **_: None)
    return seen


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, judged: list[int]) -> Run:
    def run(seeds: str, *, commit: str = "abc", records: int = 1200) -> str:
        monkeypatch.setattr(mutations, "revision", lambda: commit)
        judged.clear()
        options = ["--jars", "none", "--seeds", seeds, "--records", records, "--results", tmp_path / "results.json"]
        return CliRunner().invoke(mutations.main, [str(option) for option in options]).output

    return run


def written(folder: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return kept


def test_a_run_that_is_cut_short_keeps_its_seeds_with_their_commit(run: Run, tmp_path: Path) -> None:
    run("0:100")
    assert written(tmp_path) == {
        "commit": "abc",
        "records": 1200,
        "right": {"lost": 2, "early": 3},
        "seeds": {"0": [], "1": ["lost"], "2": []},
    }
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_a_run_of_mutations_goes_on_where_it_ended(run: Run, judged: list[int], tmp_path: Path) -> None:
    run("0:2")
    assert "2 of 3 seeds are in" in run("0:3")
    assert judged == [2]
    assert written(tmp_path)["right"] == {"lost": 2, "early": 3}


@pytest.mark.parametrize("other", [{"commit": "def"}, {"records": 2400}], ids=["commit", "size"])
def test_seeds_of_another_commit_or_size_do_not_count(
    run: Run, judged: list[int], tmp_path: Path, other: dict[str, Any]
) -> None:
    run("0:2")
    run("1:3", **other)
    assert judged == [1, 2]
    assert written(tmp_path)["seeds"] == {"1": ["lost"], "2": []}


def test_a_changed_work_tree_is_told_and_begins_anew(run: Run, judged: list[int], tmp_path: Path) -> None:
    run("0:2", commit="abc-dirty")
    run("0:3", commit="abc-dirty")
    assert judged == [0, 1, 2], "the changes in the work tree may be different ones"
    assert written(tmp_path)["commit"] == "abc-dirty"


def test_a_run_of_mutations_says_how_far_it_is(run: Run) -> None:
    said = run("4:6").splitlines()
    assert said[0].startswith("seed 4 (1 of 2): 0.0 s, ")
    assert said[0].endswith(" min left")
    assert "early            2 of 2" in said


def test_a_run_of_mutations_fails_if_any_seed_is_wrong_be_it_one_of_the_run_before(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def exit_code(seeds: str) -> int:
        options = ["--jars", "none", "--seeds", seeds, "--records", "1200"]
        return CliRunner().invoke(mutations.main, [*options, "--results", str(tmp_path / "results.json")]).exit_code

    run("0:2")
    assert [exit_code("0:3"), exit_code("2:3")] == [1, 0]
