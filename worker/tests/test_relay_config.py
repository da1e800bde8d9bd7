"""A mistake in worker.json or in the connection ends the worker with one line, exit code 2 and no traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_worker.cli import EXIT_CONFIG, main
from delayed_topics_worker.config import WorkerConfig

GOOD = {"topics": ["orders"]}


def run(tmp_path: Path, config: object, *, connection: bool = True) -> tuple[int, list[str]]:
    file = tmp_path / "worker.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    secret = tmp_path / "connection"
    secret.mkdir()
    if connection:
        (secret / "bootstrap-servers").write_text("127.0.0.1:1")
    result = CliRunner().invoke(main, ["--config", str(file), "--connection", str(secret)])
    return result.exit_code, result.output.splitlines()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "must be JSON"),
        ([], "not a mapping"),
        ({}, "topics must name at least one"),
        ({"topics": "orders"}, "topics must be of type tuple"),
        ({"topics": [1]}, "topics must be strings"),
        ({"topics": [["a"]]}, "topics must be strings"),
        ({**GOOD, "group": None}, "group must be of type str"),
        ({**GOOD, "protocol": []}, "protocol must be of type str"),
        ({**GOOD, "window_bytes": "1Mi"}, "window_bytes must be of type int"),
        ({"topics": ["a", "a"]}, "only once"),
        ({"topics": ["a/b"]}, "must consist of letters"),
        ({**GOOD, "protocol": "eager"}, "protocol must be classic or consumer"),
        ({**GOOD, "assignor": "Uniform"}, "assignor must be Range or RoundRobin or Sticky with protocol classic"),
        ({**GOOD, "protocol": "consumer", "assignor": "Sticky"}, "assignor must be Uniform or Range with protocol"),
        ({**GOOD, "guarantee": "AtMostOnce"}, "guarantee must be AtLeastOnce or ExactlyOnce"),
        ({"topics": ["a", "b"], "guarantee": "ExactlyOnce"}, "only one front topic with guarantee ExactlyOnce"),
        ({**GOOD, "http_port": True}, "http_port must be of type int"),
        ({**GOOD, "http_port": 70_000}, "http_port must be from 1 to 65535"),
        ({**GOOD, "window_bytes": 1000}, "window_bytes must be from"),
        ({**GOOD, "commit_interval_ms": 5000}, "commit_interval_ms must be from 1 to 500"),
        ({**GOOD, "renew_commits_seconds": 0}, "renew_commits_seconds must be from 1 to 86400"),
        ({**GOOD, "windowBytes": 1}, "unexpected keyword argument 'windowBytes'"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path: Path, config: object, message: str) -> None:
    code, lines = run(tmp_path, config)

    assert code == EXIT_CONFIG
    assert len(lines) == 1
    assert message in lines[0]
    assert lines[0].startswith(f"Error: {tmp_path / 'worker.json'}")


def test_missing_files_are_named(tmp_path: Path) -> None:
    code, lines = run(tmp_path, GOOD, connection=False)
    assert (code, len(lines)) == (EXIT_CONFIG, 1)
    assert "bootstrap-servers" in lines[0]

    result = CliRunner().invoke(main, ["--config", str(tmp_path / "nowhere.json")])
    assert result.exit_code == EXIT_CONFIG
    assert "can't be read: No such file or directory" in result.output


@pytest.mark.process
def test_a_worker_that_finds_a_mistake_while_it_runs_ends_without_waiting_for_its_threads(tmp_path: Path) -> None:
    """A Kafka client that resolves the address of a broker, for example, waits for the name server."""
    (tmp_path / "worker.json").write_text(json.dumps({**GOOD, "http_port": free_ports(1)[0]}))
    (tmp_path / "bootstrap-servers").write_text("127.0.0.1:1")
    program = """if True:
        import threading, time
        from delayed_topics_worker import cli
        from delayed_topics_worker.errors import ConfigInvalid
        def run(relay):
            threading.Thread(target=time.sleep, args=(600,)).start()
            raise ConfigInvalid("two groups")
        cli.Relay.run = run
        cli.main()
    """
    arguments = ["--config", str(tmp_path / "worker.json"), "--connection", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (EXIT_CONFIG, "Error: two groups\n")


def test_defaults_are_those_of_the_contract(tmp_path: Path) -> None:
    file = tmp_path / "worker.json"
    file.write_text(json.dumps(GOOD))

    assert WorkerConfig.read(file) == WorkerConfig(
        topics=("orders",), http_port=8080, window_bytes=67_108_864, protocol="classic", commit_interval_ms=100
    )


def test_help_names_every_file_and_exit_code() -> None:
    text = CliRunner().invoke(main, ["--help"]).output

    for word in ("--config", "--connection", "worker.json", "POD_NAME", "Exit code"):
        assert word in text
