"""The recipes of CONTRIBUTING.md are complete, and a check finds each step that is left out.

The test follows a recipe in a copy of the tree: it makes each addition next to the example that the row of the recipe names.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from delayed_topics_operator.delayed_topic.reconcile import CHECKS

from checks.documents import ROOT

pytestmark = pytest.mark.check

MEMBERS = ["core", "crds", "kafka", "operator", "worker", "client", "audit", "devcluster"]
COPIED = ["conftest.py", "pyproject.toml", "checks", "docs", *MEMBERS]
RECIPE = "a condition of a DelayedTopic"
DECLARED = Path("core/src/delayed_topics_core/reasons.py")
EXPLAINED = Path("docs/reasons.md")
USED = Path("operator/src/delayed_topics_operator/delayed_topic/reconcile/layout.py")
TESTED = Path("operator/tests/test_operator_follows_edits.py")
BESIDE_THE_EXAMPLE = {
    DECLARED: '    MANY_DELAYS = "ManyDelays"\n',
    EXPLAINED: "| `ManyDelays` | The delay list has more than three delays. |\n",
    USED: """\
        Condition.MANY_DELAYS: ConditionState(
            status="True" if len(o.wanted.layout.delay_seconds) > 3 else "False",
            reason=Reason.AS_DECLARED,
            message=f"there are {len(o.wanted.layout.delay_seconds)} delays",
        ),
""",
}
THE_TEST = """

def test_a_delay_list_that_gets_long_is_a_condition() -> None:
    simulation = Simulation.serving()
    assert simulation.condition(Condition.MANY_DELAYS).status == "False"
    simulation.edit(delaySeconds=[0, 10, 60, 600])
    simulation.settle()
    assert simulation.condition(Condition.MANY_DELAYS).status == "True"
"""
OWN_TEST = f"{TESTED}::test_a_delay_list_that_gets_long_is_a_condition"
HOUSE_CHECK = (
    "checks/test_house.py::test_every_condition_and_reason_is_explained_and_said_by_somebody[Condition-Conditions]"
)


def _cells() -> list[str]:
    """The cells of the recipe's row: what to add, where to declare, use and test it, and the example."""
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()]
    (cells,) = (cells for cells in rows if cells[0] == RECIPE)
    return cells


def _beside(example: str, text: str, addition: str) -> str:
    """Returns the text with the addition after the first line that names the example, in either spelling."""
    in_code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", example).upper()
    lines = text.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines, 1) if example in line or in_code in line)
    return "".join([*lines[:at], addition, *lines[at:]])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files in a Git repository of its own."""
    root = tmp_path_factory.mktemp("copy")
    tracked = subprocess.run(["git", "ls-files", "-z", *COPIED], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in (name for name in tracked.stdout.split("\0") if (ROOT / name).is_file()):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def _follow(copy: Path, left_out: Path | None) -> None:
    """Makes all additions except `left_out` in the copy, and discards earlier ones."""
    example = _cells()[-1].strip("`")
    for path, addition in BESIDE_THE_EXAMPLE.items():
        text = (ROOT / path).read_text()
        (copy / path).write_text(text if path == left_out else _beside(example, text, addition))
    (copy / TESTED).write_text((ROOT / TESTED).read_text() + THE_TEST)


def test_the_recipe_of_a_condition_names_each_file_that_is_changed_here() -> None:
    _, declared, used, tested, _ = _cells()
    assert "`core/…/reasons.py`" in declared
    assert f"`{EXPLAINED}`" in declared
    assert "`CHECKS`" in used
    assert USED.stem in {check.__module__.rpartition(".")[2] for check in CHECKS}
    assert f"`{TESTED}`" in tested


@pytest.mark.parametrize(
    ("left_out", "played", "green"),
    [
        (None, [HOUSE_CHECK, OWN_TEST], True),
        (DECLARED, [OWN_TEST], False),
        (EXPLAINED, [HOUSE_CHECK], False),
        (USED, [HOUSE_CHECK], False),
    ],
    ids=["nothing", "declaration", "explanation", "use"],
)
def test_a_condition_that_is_added_by_its_recipe_is_green_unless_a_step_is_left_out(
    copy: Path, left_out: Path | None, played: list[str], green: bool
) -> None:
    _follow(copy, left_out)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    sources = os.pathsep.join(str(copy / member / "src") for member in MEMBERS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *played],
        cwd=copy,
        env={**ours, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("ManyDelays" in done.stdout or "MANY_DELAYS" in done.stdout) is not green, done.stdout + done.stderr
    assert done.returncode == (0 if green else 1), done.stdout + done.stderr
