"""A tiny run of the real thing: broker, worker processes, Java load. No figure of it means anything; the counts do."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayed_topics_bench.cli import main

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_drain_and_lateness_count_every_record(tmp_path: Path) -> None:
    file = tmp_path / "relay.json"
    arguments = ["--part", "drain", "--part", "lateness", "--size", "100", "--records", "5000", "--workers", "2"]
    done = CliRunner().invoke(
        main, [*arguments, "--rate", "200", "--seconds", "2", "--warm-seconds", "5", "--results", str(file)]
    )
    assert done.exit_code == 0, done.output
    body = json.loads(file.read_text())
    speed = body["records_per_s"]["100"]
    assert 0 < speed["ceiling"] < min(speed["produce"], speed["consume"])
    assert speed["2"] > 0
    assert speed["by_hop"]["2"]["records_per_s"] < speed["by_hop"]["2"]["release_per_s"]
    late = body["lateness_ms"]["200"]
    assert 0 <= late["p50"] <= late["p99"] <= late["p999"] <= late["max"]
    assert body["runs"]["records_per_s/100"]["checked"]["records"] == 10_000
    assert body["runs"]["lateness_ms/200"]["checked"]["records"] == 1400
    assert (body["early"], body["lost"], body["doubled"]) == (0, 0, 0)
    assert "front → delays → ready" in done.output
