"""Figures become tables and pictures; the document says what the last run has measured and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_bench.plots import draw
from delayed_topics_bench.report import BEGIN, DOCUMENT, END, markdown, write_document
from delayed_topics_bench.results import RESULTS, Entry, Results
from delayed_topics_bench.samples import Verdict

LATE = {"p50": 2.0, "p99": 8.0, "p999": 20.0, "max": 31.4}
HOPS = {"1": {"records_per_s": 40_000}, "2": {"records_per_s": 70_000}}
CPU = {"engine": 1.0, "librdkafka, brokers": 2.0, "librdkafka, main": 0.1, "Python": 0.0}
PEER = {**LATE, "early": 0, "not_received_in_60_s": 3, "doubled": 0}
BODY: dict[str, Any] = {
    "records_per_s": {
        "100": {"ceiling": 200_000, "1": 90_000, "2": 150_000, "by_hop": HOPS},
    },
    "lateness_ms": {"10000": {**LATE, "by_delay": {"1 s": LATE}, "ack_p999": 16.0, "valid": False, "unfinished": 7000}},
    "burst": {
        "records": 1000,
        "lanes": 8,
        "workers": 2,
        "records_per_s": 90_000,
        "top_per_s": 100_000,
        "share_of_top": 0.9,
        "first_ms": 2,
        "disordered": 0,
        "timeline": [[2, 1], [11, 1000]],
    },
    "memory": {"100": {"bytes_per_record": 900, "idle_mib": 40, "full_window_mib": 90, "full_window_held": 33_000}},
    "cpu_us_per_record": {"front to ready": CPU},
    "peers": {"delayed topics": {"1000": PEER}, "other": {"not_to_be_had": "no network"}},
    "runs": {
        "drain": {"others": 0.31, "checked": {"records": 4000, "early": 0, "lost": 0, "doubled": 0, "disordered": 0}}
    },
    "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 23.4},
    "early": 0,
    "lost": 0,
    "doubled": 0,
}


PARTS = ("records_per_s", "lateness_ms", "burst", "memory", "cpu_us_per_record", "peers")


def test_each_part_has_a_table_and_a_picture(tmp_path: Path) -> None:
    text = markdown(BODY)
    for said in (
        "150,000 (75%)",
        "above 15: not a valid run, 7,000 unfinished",
        "90%",
        "900",
        "3.1",
        "not to be had: no network",
        "drain (31%)",
    ):
        assert said in text
    assert all(f"/relay/{part}.png)" in text for part in PARTS)
    files = draw(BODY, tmp_path)
    assert {file.name for file in files} == {f"{part}.png" for part in PARTS}
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_the_document_keeps_its_text(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_document(BODY, document)
    assert document.read_text() == f"before\n{BEGIN}\n{markdown(BODY)}{END}\nafter\n"


def test_the_document_has_the_figures_of_the_last_run_and_no_others() -> None:
    figures = markdown(json.loads(RESULTS.read_text())) if RESULTS.exists() else ""
    assert f"{BEGIN}\n{figures}{END}" in DOCUMENT.read_text(), "run `make bench ARGS=--only-show`"


@pytest.mark.process
def test_a_run_replaces_its_own_figures_and_counts_them_once(tmp_path: Path) -> None:
    file = tmp_path / "relay.json"
    for lost in (1, 0):
        kept = Results(file)
        kept.add(Entry(part="a", key="100", figures={"n": lost}, verdict=Verdict(records=10, lost=lost)), others=0.0)
        kept.add(Entry(part="b", figures={"m": 1}, verdict=Verdict(records=5, doubled=2)), others=0.0)
    body = Results(file).body
    assert (body["a"], body["b"]) == ({"100": {"n": 0}}, {"m": 1})
    assert (body["early"], body["lost"], body["doubled"]) == (0, 0, 2)
