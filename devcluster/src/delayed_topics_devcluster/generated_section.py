"""The part of a page that a program writes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from delayed_topics_devcluster.errors import PreconditionError

__all__ = ["GeneratedSection", "markdown_table"]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Collection[str]) -> str:
    """Returns a table as `mdformat` formats it. `texts`: the columns without numbers, which are aligned to the left."""
    rules = ["--" if column in texts else "-:" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rules, *rows))


@dataclass(frozen=True, kw_only=True)
class GeneratedSection:
    """The part of a page between two comments. `begin` and `end`: the comments, each a line of the page."""

    begin: str
    end: str

    def containing(self, text: str) -> str:
        """Returns the section with this text, including both comments."""
        return f"{self.begin}\n\n{text}\n\n{self.end}"

    def write(self, page: Path, text: str) -> None:
        """Replaces the section in a page. Raises PreconditionError, and writes nothing, unless the page has both comments once, in
        this order."""
        before, begin, rest = page.read_text().partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not (begin and end) or self.begin in rest or self.end in after:
            raise PreconditionError(
                f"{page} has no place for this text. Add the lines {self.begin!r} and {self.end!r} to it, each once."
            )
        page.write_text(f"{before}{self.containing(text)}{after}")
