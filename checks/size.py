"""Measures how large the code of each member is at two commits, for docs/code-size.md.

`python -m checks.size FORMER NOW` writes the section of the page. It counts all lines of .py and .rs files, including blank lines and
comments.
"""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from delayed_topics_devcluster.generated_section import GeneratedSection, markdown_table

from checks.documents import ROOT

Kind = Literal["product", "rust", "helpers", "tests"]
PAGE: Final = ROOT / "docs" / "code-size.md"
SECTION: Final = GeneratedSection(begin="<!-- begin: make size -->", end="<!-- end: make size -->")
PRODUCT: Final = ("core", "crds", "kafka", "worker", "operator", "client", "audit")
INFRASTRUCTURE: Final = ("devcluster", "faults", "bench", "e2e", "checks")
"""Members that only tests, benchmarks and builds use. The helpers of each member, in its `*_testing` package, count as
infrastructure too."""
KINDS: Final[Mapping[Kind, str]] = {
    "product": "product",
    "rust": "of it in Rust",
    "helpers": "helpers",
    "tests": "tests",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of the code at one commit. The longest file and function are those of the product in Python, with their number of
    lines."""

    lines: Mapping[str, Mapping[Kind, int]]
    longest_file: tuple[int, str]
    longest_function: tuple[int, str]
    functions_over_60: int

    def of(self, members: tuple[str, ...], *kinds: Kind) -> int:
        return sum(self.lines.get(member, {}).get(kind, 0) for member in members for kind in kinds)

    @property
    def product(self) -> int:
        return self.of(PRODUCT, "product")

    @property
    def infrastructure(self) -> int:
        return self.of(INFRASTRUCTURE, "product") + self.of(PRODUCT, "helpers")


def measured(repository: Path, commit: str) -> Size:
    """Measures the code at a commit. Raises CalledProcessError if the commit does not exist."""
    lines: dict[str, Counter[Kind]] = defaultdict(Counter)
    files, functions = [(0, "")], [(0, "")]
    for name, text in _sources(repository, commit):
        member, count = name.partition("/")[0], text.count("\n")
        kind = _kind(name)
        lines[member][kind] += count
        if kind != "product" or member not in PRODUCT:
            continue
        if name.endswith(".rs"):
            lines[member]["rust"] += count
        else:
            files.append((count, name))
            functions += [(length, f"`{function}` in {name}") for function, length in _functions(text)]
    return Size(
        lines=lines,
        longest_file=max(files),
        longest_function=max(functions),
        functions_over_60=sum(length > 60 for length, _ in functions),
    )


def _kind(name: str) -> Kind:
    if "/tests/" in name or Path(name).name.startswith("test_"):
        return "tests"
    return "helpers" if "_testing/" in name else "product"


def _functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def _sources(repository: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Yields the names and texts of all files in Python and Rust that the commit has below a folder."""
    listed = _git(repository, "ls-tree", "-r", "--name-only", commit).decode().splitlines()
    names = [name for name in listed if name.endswith((".py", ".rs")) and "/" in name]
    rest = _git(repository, "cat-file", "--batch", given="".join(f"{commit}:{name}\n" for name in names))
    for name in names:
        about, _, rest = rest.partition(b"\n")
        size = int(about.split()[-1])
        yield name, rest[:size].decode()
        rest = rest[size + 1 :]


def _git(repository: Path, *command: str, given: str = "") -> bytes:
    return subprocess.run(
        ["git", *command], cwd=repository, input=given.encode(), capture_output=True, check=True
    ).stdout


def shown(former: Size, now: Size, commits: tuple[str, str]) -> str:
    """Returns Markdown tables of the lines by member, and of totals and maxima, each cell as `former → now`."""

    def change(count: Mapping[Kind, int], later: Mapping[Kind, int], kind: Kind) -> str:
        before, after = count.get(kind, 0), later.get(kind, 0)
        return f"{before:,} → {after:,}" if before or after else ""

    members = [m for m in (*PRODUCT, *INFRASTRUCTURE, "charts", "examples") if m in {*former.lines, *now.lines}]
    rows = [
        (f"`{m}/`", *(change(former.lines.get(m, {}), now.lines.get(m, {}), kind) for kind in KINDS)) for m in members
    ]
    sizes = (former, now)

    def shares(*wholes: int) -> str:
        return " → ".join(f"{100 * s.infrastructure / whole:.0f} %" for s, whole in zip(sizes, wholes, strict=True))

    totals = [
        ("product: the first seven members", " → ".join(f"{size.product:,}" for size in sizes)),
        (
            "test infrastructure: the next five members, and all helpers",
            " → ".join(f"{s.infrastructure:,}" for s in sizes),
        ),
        ("test infrastructure, as a share of the product", shares(*(size.product for size in sizes))),
        (
            "test infrastructure, as a share of the product in Python",
            shares(*(size.product - size.of(PRODUCT, "rust") for size in sizes)),
        ),
        (
            "longest file of the product in Python",
            " → ".join(f"{s.longest_file[0]} ({s.longest_file[1]})" for s in sizes),
        ),
        (
            "longest function of the product in Python",
            " → ".join(f"{s.longest_function[0]} ({s.longest_function[1]})" for s in sizes),
        ),
        ("functions of the product with more than 60 lines", " → ".join(str(s.functions_over_60) for s in sizes)),
    ]
    return "\n\n".join(
        (
            f"Lines at commit `{commits[0]}` → lines at commit `{commits[1]}`:",
            markdown_table(["member", *KINDS.values()], rows, texts=["member"]),
            markdown_table(["of all", "lines"], totals, texts=["of all", "lines"]),
        )
    )


def main(former: str, now: str) -> None:
    SECTION.write(PAGE, shown(measured(ROOT, former), measured(ROOT, now), (former, now)))


if __name__ == "__main__":
    main(*sys.argv[1:])
