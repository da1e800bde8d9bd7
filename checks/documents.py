"""Reads the fenced code blocks of a Markdown file, in order, as steps that can be run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block. `flags`: the words after the language: `values`, `make`, `elsewhere`, `file=NAME`."""

    document: Path
    line: int
    language: str
    flags: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        return next((flag.removeprefix("file=") for flag in self.flags if flag.startswith("file=")), None)

    @property
    def is_run(self) -> bool:
        """Whether the tests run this block on their cluster."""
        return self.language != "text" and not {"make", "elsewhere"} & {*self.flags}

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line} ({' '.join((self.language, *self.flags))})"


def blocks(document: Path) -> list[Block]:
    """Returns all code blocks of a document, in order."""
    source = document.read_text()
    found = []
    for match in FENCE.finditer(source):
        language, *flags = match[1].split() or [""]
        line = source.count("\n", 0, match.start()) + 1
        found.append(Block(document=document, line=line, language=language, flags=tuple(flags), text=match[2]))
    return found
