"""A shell without any settings that evaluates the output of `make env` passes it on to the programs that it starts."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from delayed_topics_devcluster.cluster import cluster_folders
from delayed_topics_devcluster.paths import KAFKA_TOOLS, REPOSITORY, cache_dir

pytestmark = pytest.mark.process


def in_a_bare_shell(evaluated: str, child: str) -> str:
    """Returns the output of a child of a shell that has an empty environment, except for what it evaluated."""
    script = f'eval "$1"; bash -euc {shlex.quote(child)}'
    command = ("env", "-i", "bash", "-euc", script, "bash", evaluated)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def printed() -> str:
    """The output of `make -s env`. KAFKA_BOOTSTRAP is set, so that the command needs no cluster."""
    environment = {**os.environ, "KAFKA_BOOTSTRAP": "kafka:9092"}
    for name in ("CONTEXT", "MAKEFLAGS"):
        environment.pop(name, None)
    return subprocess.run(
        ("make", "-s", "env"), cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True, timeout=300
    ).stdout


def test_what_make_env_prints_is_in_the_environment_of_what_the_shell_starts(printed: str) -> None:
    variables = in_a_bare_shell(printed, "exec env -0")
    environment = dict(entry.split("=", 1) for entry in variables.split("\0") if entry)
    assert environment["KUBECONFIG"] == str(cluster_folders().kubeconfig)
    assert environment["KAFKA_BOOTSTRAP"] == "kafka:9092"
    first, *_, last = environment["PATH"].split(":")
    assert first == str(cache_dir("bin"))  # has kubectl and helm
    assert Path(last).is_dir()  # a folder of the former PATH


def test_the_command_line_and_kafkas_tools_are_found_after_make_env(printed: str) -> None:
    tools = {tool.name for tool in KAFKA_TOOLS.iterdir()}
    assert {"kafka-console-producer.sh", "kafka-console-consumer.sh"} <= tools
    found = in_a_bare_shell(printed, f"for p in delayed-topics python {' '.join(tools)}; do command -v $p; done")
    assert {Path(program).name for program in found.splitlines()} == {"delayed-topics", "python"} | tools
    in_a_bare_shell(printed, "python -c 'import delayed_topics'")


def test_the_demo_says_what_to_do_where_this_machine_has_no_route_to_pods() -> None:
    demo = (sys.executable, REPOSITORY / "examples" / "demo.py")
    nowhere = {**os.environ, "KAFKA_BOOTSTRAP": "127.0.0.1:1", "KUBECONFIG": os.devnull}
    ended = subprocess.run(demo, env=nowhere, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "does not reach the evaluation Kafka at 127.0.0.1:1" in ended.stderr
    assert "add a route to the pods" in ended.stderr
