"""The code blocks of README.md and docs/ are run in order on the real cluster, and those that can't be run in a test are checked.

| block | what the test does |
|---|---|
| `yaml file=NAME` | writes it to NAME, and checks that the API server accepts it; the page itself applies it where needed |
| `yaml file=NAME values` | writes it to NAME: values for the chart, which a later block uses |
| `bash` | runs it in a shell that has evaluated the output of `make env`, as docs/shell.md says |
| `bash elsewhere` | does not run it: it needs a registry or the reader's machine, see `charts/tests/test_chart_documents.py` |
| `bash make` | checks with `make -n` that the targets exist; it can't run them, because they contain this very test |
| `python` | runs it in that shell |
| `python file=NAME`, `java file=NAME` | writes it to NAME, which a later block runs |
| `text` | nothing: it is output for readers |
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
from delayed_topics_operator import metrics as _operator_metrics  # noqa: F401  # registers the operator's metrics
from delayed_topics_worker.metrics import Metrics as WorkerMetrics
from prometheus_client import REGISTRY

from checks.documents import PAGES, ROOT, Block, blocks

pytestmark = pytest.mark.check

FOLDERS = ["", "worker/engine/src"] + [
    f"{member}/src/delayed_topics_{member}" for member in ("operator", "worker", "audit")
]
"""The folders to which file names in pages about the code are relative."""
TESTS_OF_PROMISES = ["worker/tests", "operator/tests", "faults/tests", "client/tests"]


def test_every_block_says_what_it_is() -> None:
    known = {"yaml", "bash", "python", "java", "text"}
    unknown = [str(block) for document in PAGES for block in blocks(document) if block.language not in known]
    assert not unknown, f"blocks of no known language: {unknown}"


@pytest.mark.parametrize(
    "block", [b for d in PAGES for b in blocks(d) if b.language == "yaml" and "values" not in b.flags], ids=str
)
def test_a_manifest_in_the_documents_is_a_whole_one(block: Block) -> None:
    """Readers apply a manifest as it stands, and so does the test on the cluster. A fragment of a manifest is a block of `text`."""
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


def delayed_topics_in(manifests: str) -> set[str]:
    return {*re.findall(r"^kind: DelayedTopic\nmetadata:\s+\{?name: ([\w-]+)", manifests, re.M)}


def files_applied(block: Block) -> set[str]:
    applied = re.findall(r"^kubectl apply (?:.* )?-f (\w[\w./-]*)$", block.text, re.M)
    return {*applied} if block.language == "bash" else set()


@pytest.mark.parametrize("document", PAGES, ids=lambda d: d.name)
def test_a_reader_who_runs_what_a_page_prints_gets_through(document: Path) -> None:
    """The page names the files of its blocks, says how to set up a shell, applies each resource that it waits for, and runs its
    programs."""
    page = document.read_text()
    run = [block for block in blocks(document) if block.is_run]
    shown: dict[str, str] = {}
    applied: set[str] = set()
    for block in run:
        if block.file:
            shown[block.file] = block.text
        for file in files_applied(block):
            assert file not in shown or f"`{file}`" in page, (
                f"{block} applies {file}, but the page does not name this file"
            )
            applied |= delayed_topics_in(shown.get(file) or (ROOT / file).read_text())
        if block.language == "bash":
            applied |= delayed_topics_in(block.text)
        used = set(re.findall(r"^kubectl .*\bdtopic[/ ](\w[\w-]*)", block.text, re.M))
        assert used <= applied, f"{block} uses resources that the page does not apply: {used - applied}"
    shell = "".join(block.text for block in run if block.language == "bash")
    programs = {block.file for block in run if block.language == "java"}
    assert [name for name in programs if not name or name not in shell] == []
    assert "KAFKA_BOOTSTRAP" not in shell or "](shell.md)" in page


def test_python_in_the_documents_brings_all_the_names_that_it_uses(tmp_path: Path) -> None:
    for block in (block for document in PAGES for block in blocks(document) if block.language == "python"):
        (tmp_path / f"{block.document.stem}-{block.line}.py").write_text(block.text)
    ruff = (Path(sys.executable).with_name("ruff"), "check", "--isolated", "--select=F821", "--output-format=concise")
    found = subprocess.run([*ruff, tmp_path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_no_two_pages_declare_the_same_delayed_topic() -> None:
    """A topic belongs to one resource, and all pages run on one cluster."""
    pages: dict[str, set[str]] = {}
    for document in PAGES:
        applied = {file for block in blocks(document) for file in files_applied(block)}
        for block in blocks(document):
            names = re.findall(r'^@delayed_topic\(topic="([\w-]+)"', block.text, re.M)
            if block.file in applied or block.language == "bash":
                names += delayed_topics_in(block.text)
            for name in names:
                pages.setdefault(name, set()).add(document.name)
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


def readers_environment() -> dict[str, str]:
    """The environment of a shell that has evaluated the present output of `make env`: other stories replace Kafka's pod, and so change
    its address."""
    own = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP" or "CONTEXT" in os.environ}
    devcluster = (Path(sys.executable).parent / "devcluster", "env")
    exports = subprocess.run(devcluster, env=own, check=True, capture_output=True, text=True).stdout
    shell = ("bash", "-euc", 'eval "$1"; exec env -0', "bash", exports)
    found = subprocess.run(shell, env=own, check=True, capture_output=True, text=True).stdout
    return dict(entry.split("=", 1) for entry in found.split("\0") if entry)


class Desk:
    """The place where a reader works: a folder with links into the checkout, a namespace, and the shell of docs/shell.md."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self.folder, self.namespace = folder, namespace
        for name in ("charts", "examples", "images"):
            (folder / name).symlink_to(ROOT / name)
        self.environment = readers_environment()
        config = folder / "kubeconfig"  # a copy, because the fixture sets its namespace
        config.write_bytes(Path(self.environment["KUBECONFIG"]).read_bytes())
        self.environment["KUBECONFIG"] = str(config)

    def bash(self, script: str) -> str:
        return self._call("bash", "-euo", "pipefail", "-c", script)

    def run(self, block: Block) -> None:
        if block.file:
            (self.folder / block.file).write_text(block.text)
        try:
            match block.language:
                case "bash":
                    self.bash(block.text)
                case "yaml" if "values" not in block.flags:
                    (self.folder / "block.yaml").write_text(block.text)
                    self.bash("kubectl apply -f block.yaml --dry-run=server")
                case "python" if not block.file:
                    self._call("python", "-c", block.text)
        except subprocess.CalledProcessError as e:
            raise AssertionError(f"{block} failed:\n{block.text}\n{e.stdout}\n{e.stderr}") from e

    def _call(self, *command: str) -> str:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True, text=True, timeout=300
        ).stdout
