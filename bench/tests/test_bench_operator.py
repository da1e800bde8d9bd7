"""The operator's benchmark: its counts, its tables, and a tiny real run, whose figures mean nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delayed_topics_bench.operator_cli import main
from delayed_topics_bench.operator_meter import counted
from delayed_topics_bench.plots import draw
from delayed_topics_bench.report import markdown

EXPOSITION = """\
# TYPE apiserver_request_total counter
apiserver_request_total{verb="POST",resource="configmaps",code="201"} 3
apiserver_request_total{verb="POST",resource="configmaps",code="409"} 1
apiserver_request_total{verb="LIST",resource="leases"} 4
apiserver_request_total_of_another_kind{verb="LIST"} 5
another{verb="LIST"} 6
"""
CALLS = {"kube": {"all": 16.0, "APPLY ConfigMap": 2.0}, "kafka": {"all": 0.4}}
PARTS: dict[str, dict[str, Any]] = {
    "ready": {
        "1000": {
            "seconds": 51.3,
            "cpu_seconds": {"operator": 30.0, "kube-apiserver": 25.5, "etcd": 7.0, "broker": 9.0, "benchmark": 4.0},
            "peak_mib": 250.0,
            "calls_per_resource": CALLS,
            "timeline": [[1.0, 1], [51.3, 1000]],
        }
    },
    "idle": {
        "1000": {
            "seconds": 300.0,
            "writes": 0,
            "operator_cpu_share": 0.07,
            "peak_mib": 251.0,
            "calls_per_second": CALLS,
        }
    },
    "edits": {
        "1,000, 100/s": {
            "edits": 30_000,
            "edits_per_s": 99.8,
            "p50_seconds": 1.25,
            "p99_seconds": 3.5,
            "converged_seconds": 4.2,
            "operator_cpu_share": 0.8,
            "peak_mib": 252.0,
            "calls_per_edit": CALLS,
            "memory": [[0.0, 90.0], [301.0, 252.0]],
        }
    },
}
BODY = {
    "parts": {
        part: {
            key: [{"commit": "abc", "cpu": "a CPU", "others": 0.01, "slowed": 0.0, "figures": figures}]
            for key, figures in by.items()
        }
        for part, by in PARTS.items()
    },
    "machine": {"cores": 2, "memory_gib": 23.4},
}


def test_series_of_a_counter_are_added_up_by_labels() -> None:
    found = counted(EXPOSITION, "apiserver_request_total", "verb", "resource")
    assert found == {("POST", "configmaps"): 4, ("LIST", "leases"): 4}


def test_each_part_has_a_table_and_a_picture(tmp_path: Path) -> None:
    text = markdown(BODY, "pictures")
    for shown in (
        "| 1,000 | 51.3 | 30.0 | 25.5 |",
        "| 300 | 0 | 7% |",
        "| 1,000, 100/s |",
        "99.8",
        "API server, etcd, broker",
    ):
        assert shown in text
    assert "checker" not in text
    files = draw(BODY, tmp_path)
    assert {file.stem for file in files} == set(PARTS)


@pytest.mark.api
@pytest.mark.slow
def test_a_tiny_run_converges_and_is_idle_without_writes(tmp_path: Path) -> None:
    file = tmp_path / "operator.json"
    sizes = ["--resources", "4", "--idle-seconds", "35", "--edits-per-second", "4", "--edit-seconds", "3"]
    done = CliRunner().invoke(main, ["--quick", *sizes, "--results", str(file)])
    assert done.exit_code == 0, done.output
    parts = json.loads(file.read_text())["parts"]
    (ready,), (idle,) = parts["ready"]["4"], parts["idle"]["4"]
    (edits,) = parts["edits"]["4, 4/s"]
    assert len(ready["figures"]["timeline"]) == 4
    assert ready["figures"]["calls_per_resource"]["kube"]["all"] > 0
    assert idle["figures"]["writes"] == 0, idle["figures"]["written"]
    assert edits["figures"]["edits"] == 12
    assert 0 < edits["figures"]["followed"] <= 12
    assert "DelayedTopics that are made at once" in done.output
