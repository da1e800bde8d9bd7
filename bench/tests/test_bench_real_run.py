"""A tiny real run with a broker, worker processes and Java programs. Only its counts mean something; its figures don't."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayed_topics_bench.cli import main

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_drain_and_lateness_count_every_record(tmp_path: Path) -> None:
    file = tmp_path / "relay.json"
    arguments = ["--quick", "--part", "drain", "--part", "lateness", "--records", "5000", "--ceiling-records", "50000"]
    done = CliRunner().invoke(
        main,
        [
            *(*arguments, "--workers", "2", "--rate", "200", "--seconds", "4", "--warm-seconds", "6"),
            *("--runs", "2", "--results", str(file)),
        ],
    )
    assert done.exit_code == 0, done.output
    parts = json.loads(file.read_text())["parts"]
    assert len(parts["drain"]["100"]) == len(parts["lateness"]["200"]) == 2
    for run in parts["drain"]["100"]:
        ceiling = run["figures"]["ceiling"]
        assert 0 < ceiling["relay"] < min(ceiling["produce"], ceiling["consume"])
        assert run["figures"]["direct"]["2"]["records_per_s"] > 0
        by_hop = run["figures"]["by_hop"]["2"]
        assert by_hop["records_per_s"] < by_hop["release_per_s"]
        assert run["checked"] == {
            "records": 10_000,
            "early": 0,
            "lost": 0,
            "doubled": 0,
            "disordered": 0,
            "order_exempt": 0,
        }
    for run in parts["lateness"]["200"]:
        late, floor = run["figures"], run["figures"]["floor"]
        assert 0 <= late["p50"] <= late["p99"] <= late["p999"] <= late["max"]
        assert 0 <= floor["p50"] < late["p99"]
        assert run["checked"] == {
            "records": 2000,
            "early": 0,
            "lost": 0,
            "doubled": 0,
            "disordered": 0,
            "order_exempt": 0,
        }
    assert "front → delays → ready" in done.output
    assert "medians of 2 runs" in done.output
