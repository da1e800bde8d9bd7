"""Timelines of rebalances in a results file, on the page and in the pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_bench.plots import draw
from delayed_topics_bench.rebalance_report import timelines_of
from delayed_topics_bench.report import markdown
from delayed_topics_bench.results import Entry, Results

TIMELINE = {"begin_ms": -100, "bin_ms": 100, "moved": [3, 1400, None], "others": [4, 0, 5]}
OLD = {"convergence_s": 1.4, "moved": 6, "undisturbed_pause_p99_ms": 81.0, "floor_ms": 53.0, "late": 283}
NEW = {**OLD, "timeline": TIMELINE}


def run(figures: dict[str, Any]) -> dict[str, Any]:
    return {"commit": "abc", "cpu": "a CPU", "others": 0.0, "slowed": 0.0, "figures": figures}


BODY: dict[str, Any] = {
    "parts": {
        "rebalance": {
            "join, 2 members, 12 partitions: worker, Classic, Range": [run(NEW), run(NEW)],
            "join, 10 members, 60 partitions: worker, Classic, Range": [run(NEW)],
            "leave, 10 members, 60 partitions: worker, Classic, Range": [run(OLD)],
            "grow, 10 members, 60 partitions: plain consumer, our timeouts": [run(OLD), run(NEW)],
        }
    },
    "machine": {"cores": 2, "memory_gib": 23.4},
}
NAMES = ["rebalance-2-members-12-partitions", "rebalance-10-members-60-partitions"]


def test_groups_of_each_size_have_a_picture_of_the_events_and_setups_that_were_measured_and_all_their_runs() -> None:
    small, large = timelines_of(BODY)
    assert [small.name, large.name] == NAMES
    assert small.events == {"join": {"worker, Classic, Range": [TIMELINE, TIMELINE]}}
    assert large.events == {
        "join": {"worker, Classic, Range": [TIMELINE]},
        "grow": {"plain consumer, our timeouts": [TIMELINE]},
    }


def test_the_pictures_are_drawn_and_the_page_shows_them(tmp_path: Path) -> None:
    files = draw(BODY, tmp_path)
    assert [file.stem for file in files] == ["rebalance", *NAMES]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    text = markdown(BODY, "pictures")
    assert all(f"(pictures/{name}.png)" in text for name in NAMES)


def test_results_without_timelines_have_only_the_picture_that_they_had(tmp_path: Path) -> None:
    rebalances = BODY["parts"]["rebalance"]
    old = {**BODY, "parts": {"rebalance": {key: [run(OLD)] for key in rebalances}}}
    assert timelines_of(old) == []
    assert [file.stem for file in draw(old, tmp_path)] == ["rebalance"]
    assert timelines_of({"parts": {}}) == []


@pytest.mark.process
def test_a_timeline_is_one_line_of_the_results_file(tmp_path: Path) -> None:
    file = tmp_path / "rebalance.json"
    further = {"said": "[\n1\n]", "pairs": [[1, 2.5], [-3, 4e-07]], "none": []}
    Results(file).add("rebalance", Entry(key="a", figures={**NEW, **further}), others=0.0, slowed=0.0)
    assert '"moved": [3, 1400, null],\n' in file.read_text()
    assert json.loads(file.read_text())["parts"]["rebalance"]["a"][0]["figures"] == {**NEW, **further}
