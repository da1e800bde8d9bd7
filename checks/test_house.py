"""The repository keeps its rules: types, lint, import contracts, file sizes, no duplicate code, no shadowed module."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

import pytest
from delayed_topics.cli import main
from delayed_topics_audit.account import Account
from delayed_topics_core.reasons import Condition, DeadLetterReason, Reason
from delayed_topics_crds.audit import Account as AuditAccount
from delayed_topics_devcluster.engine import engine_environment
from delayed_topics_devcluster.paths import ENGINE_SOURCE, cache_dir

from checks.documents import ROOT
from checks.raising import raised, raised_in

pytestmark = pytest.mark.check

BIN = Path(sys.executable).parent
MEMBERS = ["core", "crds", "kafka", "operator", "worker", "client", "audit", "devcluster", "faults", "bench"]
RAISING = ["core", "kafka", "operator", "worker", "client", "audit"]
"""Members that raise reasons, which users read; the other members only look for reasons."""
ENGINE_REASONS = ROOT / "worker" / "engine" / "src" / "dead_letter.rs"
MAX_LINES = 400
SIMILAR_LINES = 12
SENTENCE_END = re.compile(r"[.!?](?:\s|$)")


def run(*command: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
    env = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("command", [("ruff", "check", "."), ("ruff", "format", "--check", ".")], ids=" ".join)
def test_ruff_is_green(command: tuple[str, ...]) -> None:
    run(str(BIN / command[0]), *command[1:])


CLIPPY = ("clippy", "--quiet", "--locked")
FUZZ_TARGETS = ("--manifest-path=fuzz/Cargo.toml", "--no-default-features")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("fmt", "--check"), id="fmt"),
        pytest.param((*CLIPPY, "--all-targets", "--features=python", "--", "--deny=warnings"), id="clippy"),
        pytest.param((*CLIPPY, *FUZZ_TARGETS, "--", "--deny=warnings"), id="clippy-of-the-fuzz-targets"),
    ],
)
def test_rust_is_green(command: tuple[str, ...]) -> None:
    run("cargo", *command, cwd=ENGINE_SOURCE, environment=engine_environment())


def test_mypy_strict_is_green_over_all_members() -> None:
    run(str(BIN / "mypy"), "--cache-dir", str(cache_dir("mypy")), *MEMBERS, "e2e", "charts", "checks")


def test_the_engine_has_what_its_stub_says(tmp_path: Path) -> None:
    inner = tmp_path / "allowed"
    # the shared library lies in a package of the same name
    inner.write_text("delayed_topics_engine.delayed_topics_engine\n")
    run(sys.executable, "-m", "mypy.stubtest", "delayed_topics_engine", f"--allowlist={inner}")


def test_imports_point_one_way() -> None:
    run(str(BIN / "lint-imports"))


def test_no_code_stands_twice() -> None:
    sources = [f"{member}/src" for member in MEMBERS]
    run(
        *(str(BIN / "pylint"), "--disable=all", "--enable=duplicate-code", f"--min-similarity-lines={SIMILAR_LINES}"),
        *("--ignore-imports=y", "--ignore-signatures=y", *sources),
    )


def test_no_file_is_longer_than_a_reader_wants() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in tracked("*.py", "*.pyi", "*.rs")
        if (n := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert not long, f"files above {MAX_LINES} lines: {long}"


def test_each_package_says_what_belongs_in_it_and_what_does_not() -> None:
    short = [
        str(path.relative_to(ROOT))
        for path in tracked("*/src/**/__init__.py")
        if len(SENTENCE_END.findall(ast.get_docstring(ast.parse(path.read_text())) or "")) < 2
    ]
    assert not short, (
        f"a package docstring needs two sentences, on what belongs in the package and what does not: {short}"
    )


def test_nothing_shadows_pythons_operator_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists(), (
        "operator/__init__.py would shadow the standard library's operator"
    )
    assert "operator" in sys.stdlib_module_names


def test_every_error_is_handled_not_swallowed() -> None:
    silent = re.compile(r"except[^\n]*:\n\s+(pass|\.\.\.)\n")
    found = [str(path.relative_to(ROOT)) for path in tracked("*.py") if silent.search(path.read_text())]
    assert not found, f"swallowed exceptions in {found}"


def test_generated_files_are_what_the_models_say() -> None:
    run(sys.executable, "-m", "delayed_topics_crds", "check")


def test_a_resource_has_each_term_of_an_audits_account() -> None:
    """The operator drops terms for which the resource has no field."""
    assert {term.name for term in fields(Account)} == set(AuditAccount.model_fields)


@pytest.mark.parametrize(
    ("kind", "heading"), [(Condition, "Conditions"), (Reason, "Reasons"), (DeadLetterReason, "Dead letters")]
)
def test_every_condition_and_reason_is_explained_and_said_by_somebody(kind: type[StrEnum], heading: str) -> None:
    sections = (ROOT / "docs" / "reasons.md").read_text().split("\n## ")
    (explained,) = (section for section in sections if section.startswith(f"{heading}\n"))
    missing = [member.value for member in kind if f"| `{member.value}` |" not in explained]
    assert not missing, f"docs/reasons.md has no row under '{heading}' for {', '.join(missing)}"
    reported = raised_in(tracked(*(f"{member}/src/*.py" for member in RAISING)), kind.__name__)
    if kind is DeadLetterReason:
        reported |= {member.name for member in kind if f'"{member.value}"' in ENGINE_REASONS.read_text()}
    for member in kind:
        assert member.name in reported, f"no code raises {kind.__name__}.{member.name}: delete it, or raise it"


def test_every_command_has_a_page() -> None:
    pages = "\n".join(path.read_text() for path in tracked("docs/*.md"))
    missing = [name for name in main.commands if not re.search(rf"\bdelayed-topics [^\n`]*\b{name}\b", pages)]
    assert not missing, f"no page of docs/ shows delayed-topics {', '.join(missing)}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("HARMLESS = frozenset({Reason.PAUSED})", set()),
        ("ORDER = (Reason.PAUSED, Reason.DELETING)", set()),
        ("if stop.reason is Reason.PAUSED: go(on)", set()),
        ("harmless = alarm.reason in (Reason.PAUSED,)", set()),
        ("match reason:\n    case Reason.PAUSED: go(on)", set()),
        ("said = [Alarm('orders', Reason.PAUSED, 'text')]", {"PAUSED"}),
        ("return Stop(reason=Reason.PAUSED if gone else Reason.DELETING)", {"PAUSED", "DELETING"}),
        ("REFUSALS = {NotAuthorized: Reason.PAUSED}", {"PAUSED"}),
        ("return Reason.PAUSED", {"PAUSED"}),
    ],
)
def test_a_reason_that_is_only_looked_for_is_said_by_nobody(source: str, said: set[str]) -> None:
    assert raised(source, "Reason") == said
