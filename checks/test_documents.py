"""Every code block of README.md and docs/ is run, in order, on the real cluster; what can't be run in a test is checked.

| block | what happens |
|---|---|
| `yaml file=NAME` | written to NAME, accepted by the API server; with `apply` really applied |
| `yaml file=NAME values` | written to NAME, values for the chart that the next block uses |
| `bash` | run, with kubectl, helm, Kafka's console tools, KUBECONFIG and KAFKA_BOOTSTRAP at hand |
| `bash elsewhere` | not run: it needs a registry or a machine of the reader's, see `charts/tests/test_chart_documents.py` |
| `bash make` | its make targets exist and could be made (`make -n`): they contain this very test |
| `python`, `java` | run, with the bootstrap servers given |
| `text` | output to look at |
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from delayed_topics_devcluster.kafka import kafka_jars
from delayed_topics_operator import metrics as _operator_metrics  # noqa: F401  # registers what the operator exports
from delayed_topics_worker.metrics import Metrics as WorkerMetrics
from prometheus_client import REGISTRY

from checks.documents import PAGES, ROOT, Block, blocks

pytestmark = pytest.mark.check

FOLDERS = ["", "worker/engine/src"] + [
    f"{member}/src/delayed_topics_{member}" for member in ("operator", "worker", "audit")
]
"""Where pages about the code have their files."""
TESTS_OF_PROMISES = ["worker/tests", "operator/tests", "faults/tests", "client/tests"]
KAFKA_TOOLS = {
    "kafka-console-producer.sh": "ConsoleProducer",
    "kafka-console-consumer.sh": "consumer.ConsoleConsumer",
    "kafka-topics.sh": "TopicCommand",
}


def test_every_block_says_what_it_is() -> None:
    known = {"yaml", "bash", "python", "java", "text"}
    unknown = [str(block) for document in PAGES for block in blocks(document) if block.language not in known]
    assert not unknown, f"blocks of no known language: {unknown}"


@pytest.mark.parametrize(
    "block", [b for d in PAGES for b in blocks(d) if b.language == "yaml" and "values" not in b.flags], ids=str
)
def test_a_manifest_in_the_documents_is_a_whole_one(block: Block) -> None:
    """A part of one is `text`: readers apply a manifest as it stands, and so does the test on the cluster."""
    for manifest in yaml.safe_load_all(block.text):
        assert manifest.keys() >= {"apiVersion", "kind", "metadata"}, f"{block} can't be applied: {manifest}"


@pytest.mark.parametrize("block", [b for d in PAGES for b in blocks(d) if "make" in b.flags], ids=str)
def test_make_targets_in_the_documents_exist(block: Block) -> None:
    for line in block.text.splitlines():
        command = shlex.split(line, comments=True)
        assert command[0] == "make", f"{block} has a line that is not a make target: {line}"
        subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_a_page_about_the_code_names_are_there(document: str) -> None:
    named = re.findall(r"`([\w./…-]+(?:/|\.(?:py|rs|toml)))`", (ROOT / document).read_text())
    paths = {name: re.sub(r"^(\w+)/…", r"\1/src/delayed_topics_\1", name) for name in named}
    missing = [name for name, path in paths.items() if not any((ROOT / folder / path).exists() for folder in FOLDERS)]
    assert named
    assert not missing, f"{document} names files that are not there: {missing}"


def test_no_two_pages_declare_the_same_delayed_topic() -> None:
    """A topic belongs to one resource, and pages run one after the other on one cluster."""
    pages: dict[str, set[str]] = {}
    for block in (block for document in PAGES for block in blocks(document)):
        names = re.findall(r'^@delayed_topic\(topic="([\w-]+)"', block.text, re.M)
        if "apply" in block.flags or block.language == "bash":
            names += re.findall(r"^kind: DelayedTopic\nmetadata:\s+\{?name: ([\w-]+)", block.text, re.M)
        for name in names:
            pages.setdefault(name, set()).add(block.document.name)
    assert pages
    assert {name: sorted(where) for name, where in pages.items() if len(where) > 1} == {}


def test_tests_that_documents_name_are_there() -> None:
    named = {name for document in PAGES for name in re.findall(r"`(test_\w+)`", document.read_text())}
    files = subprocess.run(["git", "ls-files", "*/test_*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    there = {Path(file).stem for file in files.stdout.split()}
    for file in files.stdout.split():
        there |= set(re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.M))
    assert named
    assert named <= there, f"documents name tests that are not there: {sorted(named - there)}"


def test_each_promise_has_tests_that_the_gate_plays() -> None:
    promised = re.findall(r"^\d\. \*\*(.+)\.\*\*", (ROOT / "README.md").read_text(), re.M)
    section = (ROOT / "docs" / "testing.md").read_text().partition("## Tests of the promises")[2].partition("\n## ")[0]
    rows = {row.split(" | ")[0].removeprefix("| "): re.findall(r"`(test_\w+)`", row) for row in section.splitlines()}
    assert promised
    assert [promise for promise in promised if not rows.get(promise)] == []
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not slow and not cluster", *TESTS_OF_PROMISES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    played = {re.sub(r"\[.*", "", line.rpartition("::")[2]) for line in listed.splitlines()}
    assert {test for tests in rows.values() for test in tests} <= played


def test_every_metric_is_in_the_list_with_its_type() -> None:
    families = [*WorkerMetrics().registry.collect(), *REGISTRY.collect()]
    exported = {(f"{m.name}_total" if m.type == "counter" else m.name, m.type) for m in families}
    ours = {(name, of_type) for name, of_type in exported if name.startswith(("delayedtopics_", "delayed_topics_"))}
    listed = re.findall(r"^\| `(delayed\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.M)
    assert set(listed) == ours


def test_versions_that_the_documents_name_are_those_that_tests_run_on() -> None:
    written = (ROOT / "docs" / "versions.md").read_text()
    pins = {
        "images/kafka/pom.xml": r"<kafka.version>(.+?)<",
        "mk/test.mk": r"^KAFKA_VERSIONS \?= (.+)$",
        "audit/pom.xml": r"<spark.version>(.+?)<",
        "audit/pyproject.toml": r"pyspark==([\d.]+)",
    }
    for file, pin in pins.items():
        found = re.search(pin, (ROOT / file).read_text(), re.M)
        assert found, f"{file} has nothing like {pin}"
        missing = [version for version in found[1].split() if version not in written]
        assert not missing, f"docs/versions.md does not name {missing} of {file}"


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Desk"]:
    desk = Desk(tmp_path, "docs-" + Path(request.node.callspec.params["document"]).stem.lower())
    desk.bash(
        f"kubectl create namespace {desk.namespace} && kubectl config set-context --current --namespace={desk.namespace}"
    )
    yield desk
    desk.bash(f"kubectl delete namespace {desk.namespace} --wait=false")


@pytest.mark.cluster
@pytest.mark.parametrize("document", [d for d in PAGES if any(b.is_run for b in blocks(d))], ids=lambda d: d.name)
def test_the_blocks_of_a_document_run(document: Path, desk: "Desk") -> None:
    for block in blocks(document):
        if block.is_run:
            desk.run(block)


def kafka_bootstrap() -> str:
    """The evaluation Kafka as it is reached now: other stories make its pod anew, which gives it another address."""
    if "CONTEXT" in os.environ:
        return os.environ["KAFKA_BOOTSTRAP"]
    others = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP"}
    devcluster = Path(sys.executable).parent / "devcluster"
    told = subprocess.run([devcluster, "env"], env=others, check=True, capture_output=True, text=True).stdout
    return dict(line.split("=", 1) for line in told.splitlines())["KAFKA_BOOTSTRAP"]


class Desk:
    """Where a reader works: an empty folder next to the checkout, a namespace, and the usual tools."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self.folder, self.namespace = folder, namespace
        tools = folder / "bin"
        tools.mkdir()
        for name in ("charts", "examples", "images"):
            (folder / name).symlink_to(ROOT / name)
        for tool, main_class in KAFKA_TOOLS.items():
            script = tools / tool
            script.write_text(f'#!/bin/sh\nexec java -cp "{kafka_jars()}/*" org.apache.kafka.tools.{main_class} "$@"\n')
            script.chmod(0o755)
        config = folder / "kubeconfig"
        config.write_bytes(Path(os.environ["KUBECONFIG"]).read_bytes())
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(config),
            "KAFKA_BOOTSTRAP": kafka_bootstrap(),
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def bash(self, script: str) -> str:
        return self._call("bash", "-euo", "pipefail", "-c", script)

    def run(self, block: Block) -> None:
        bootstrap = self.environment["KAFKA_BOOTSTRAP"]
        try:
            match block.language:
                case "bash":
                    self.bash(block.text)
                case "yaml":
                    file = self.folder / (block.file or "block.yaml")
                    file.write_text(block.text)
                    if "values" not in block.flags:
                        self.bash(f"kubectl apply -f {file}" + ("" if "apply" in block.flags else " --dry-run=server"))
                case "python" if block.file is not None:
                    (self.folder / block.file).write_text(block.text)
                case "python":
                    self._call(sys.executable, "-c", f"BOOTSTRAP = {bootstrap!r}\n{block.text}")
                case "java":
                    (self.folder / "Example.java").write_text(block.text)
                    self._call("java", "-cp", f"{kafka_jars()}/*", "Example.java", bootstrap)
        except subprocess.CalledProcessError as e:
            raise AssertionError(f"{block} failed:\n{block.text}\n{e.stdout}\n{e.stderr}") from e

    def _call(self, *command: str) -> str:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True, text=True, timeout=300
        ).stdout
