"""Figures become tables and pictures. The pages show the last measurements, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from delayed_topics_bench.plots import draw
from delayed_topics_bench.profile import AREAS
from delayed_topics_bench.report import DOCS, documents, markdown, section_of, write_documents
from delayed_topics_bench.results import RESULTS, Entry, Figure, Results, merged
from delayed_topics_bench.samples import Verdict

LATE = {"p50": 2.0, "p99": 8.0, "p999": 20.0, "max": 31.4, "ack_p999": 9.0}
CPU = {"engine": 1.0, "librdkafka, brokers": 2.0, "librdkafka, main": 0.1, "Python": 0.0, "in all": 3.1}
PEER = {**LATE, "early": 0, "rejected": 0, "not_received_in_60_s": 3, "doubled": 0}
RECOVERED = {
    "records": 20_000,
    "sent_per_s": 19_000,
    "disk_bytes": 300.0,
    "resident_mib": 700.0,
    "serving_s": 6.5,
    "received_per_s": 18_000,
    "late": {"p50": 3.0, "p99": 20.0, "p999": 30.0, "max": 40.0},
    "rejected": 0,
    "early": 0,
    "lost": 0,
    "doubled": 0,
}


def drained(per_second: int) -> dict[str, float]:
    return {"records_per_s": per_second, "share_of_ceiling": per_second / 200_000, "cpu_us": 3.0}


def run(figures: dict[str, Any], **further: Any) -> dict[str, Any]:
    checked = {"records": 4000, "early": 0, "lost": 0, "doubled": 0, "disordered": 0}
    return {
        "commit": "abc",
        "cpu": "a CPU",
        "others": 0.01,
        "slowed": 0.0,
        "checked": checked,
        "figures": figures,
        **further,
    }


def drain(per_second: int) -> dict[str, Any]:
    direct = {"1": drained(per_second), "2": drained(150_000)}
    return {"ceiling": {"relay": 200_000}, "direct": direct, "by_hop": {"1": drained(40_000)}}


BODY: dict[str, Any] = {
    "parts": {
        "drain": {"100": [run(drain(90_000)), run(drain(80_000)), run(drain(120_000))]},
        "lateness": {
            "10000": [
                run(
                    {**LATE, "by_delay": {"1 s": LATE}, "floor": LATE, "unfinished": 7000},
                    problem="the broker was slow",
                )
            ]
        },
        "burst": {
            "1000": [
                run(
                    {
                        "records_per_s": 90_000,
                        "top_per_s": 100_000,
                        "share_of_top": 0.9,
                        "first_ms": 2,
                        "disordered": 0,
                        "timeline": [[2, 1], [11, 1000]],
                    }
                )
            ]
        },
        "memory": {
            "100": [
                run(
                    {
                        "bytes_per_record": 900,
                        "beyond_bytes_per_record": 65,
                        "idle_mib": 40,
                        "full_window_mib": 90,
                        "full_window_held": 33_000,
                    }
                )
            ]
        },
        "cpu": {"front to ready": [run(CPU)]},
        "profile": {"drain": [run(dict.fromkeys(AREAS, 0.25))]},
        "peers": {
            "delayed topics": [run({"1000": PEER})],
            "other": [run({"not_to_be_had": "no network"}, cpu="another CPU")],
        },
        "recovery": {
            "delayed topics": [run(RECOVERED)],
            "other": [run({"not_to_be_had": "no network"}, cpu="another CPU")],
        },
    },
    "machine": {"cores": 2, "memory_gib": 23.4},
}


def test_each_part_has_a_table_and_a_picture(tmp_path: Path) -> None:
    text = markdown(BODY, "pictures")
    for shown in (
        "90,000 (80,000 to 120,000)",
        "45% (40% to 60%)",
        "| 150,000 |",
        "medians of 1 to 3 runs",
        "7,000",
        "not valid: lateness 10000 (the broker was slow).",
        "90%",
        "900",
        "3.1",
        "| compressing | 0.25 |",
        "not to be had: no network",
        "while 20,000 records are pending",
        "| 6.5 |",
        "2 cores (a CPU or another CPU)",
    ):
        assert shown in text
    assert all(f"(pictures/{part}.png)" in text for part in BODY["parts"])
    files = draw(BODY, tmp_path)
    assert {file.stem for file in files} == set(BODY["parts"])
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_numbers_of_several_runs_become_their_median_and_spread() -> None:
    found = merged([{"n": 3, "by": {"x": 1.0}}, {"n": 9, "by": {}}, {"n": 4, "by": {"x": 2.0}, "said": "no"}])
    assert found == {"n": Figure(4, 3, 9), "by": {"x": Figure(1.5, 1.0, 2.0)}, "said": "no"}


def test_pages_keep_their_text_and_each_has_its_part(tmp_path: Path) -> None:
    pages = documents(BODY, "relay")
    for page in pages:
        (tmp_path / page).write_text(f"before\n\n{section_of('relay').containing('old')}\n\nafter\n")
    write_documents(BODY, "relay", tmp_path)
    for page, text in pages.items():
        assert (tmp_path / page).read_text() == f"before\n\n{section_of('relay').containing(text)}\n\nafter\n"
    for compared in ("peers", "recovery"):
        assert [page for page, text in pages.items() if f"(../bench/results/relay/{compared}.png)" in text] == [
            "performance-comparison.md"
        ]
    assert [page for page, text in pages.items() if "(../bench/results/relay/drain.png)" in text] == ["performance.md"]


def test_a_page_names_no_api_server_where_there_was_none() -> None:
    text = documents(json.loads((RESULTS / "shared.json").read_text()), "shared")["performance-shared-workers.md"]
    assert "The broker, workers, load and receivers all run on it." in text.replace("\n", " ")


@pytest.mark.parametrize("name", ["relay", "exactly-once", "operator", "rebalance", "shared"])
def test_the_pages_have_the_figures_of_the_last_run_and_no_others(name: str) -> None:
    file = RESULTS / f"{name}.json"
    body = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    for page, text in documents(body, name).items():
        assert section_of(name).containing(text) in (DOCS / page).read_text(), "run `make bench ARGS=--only-show`"


@pytest.mark.process
def test_a_new_series_of_runs_replaces_the_last_one_of_the_same_thing(tmp_path: Path) -> None:
    file = tmp_path / "relay.json"
    for lost in (1, 0):
        kept = Results(file)
        for _ in range(2):
            kept.add(
                "a",
                Entry(key="100", figures={"n": lost}, verdict=Verdict(records=10, lost=lost)),
                others=0.0,
                slowed=0.0,
            )
        if lost:
            kept.add("b", Entry(key="x", figures={"m": 1}), others=0.0, slowed=0.0)
    parts = Results(file).body["parts"]
    assert [one["checked"]["lost"] for one in parts["a"]["100"]] == [0, 0]
    assert [one["figures"] for one in parts["b"]["x"]] == [{"m": 1}]
