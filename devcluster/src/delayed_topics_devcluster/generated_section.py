"""The part of a page that a program writes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from delayed_topics_devcluster.errors import PreconditionError

__all__ = ["GeneratedSection", "markdown_table"]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: Collection[str]) -> str:
    """In the form that `mdformat` gives it. `texts`: columns that have no numbers."""
    rules = ["--" if column in texts else "-:" for column in columns]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rules, *rows))


@dataclass(frozen=True, kw_only=True)
class GeneratedSection:
    """`begin` and `end`: the comments, each a line of the page, between which the program writes."""

    begin: str
    end: str

    def containing(self, text: str) -> str:
        """The section as it stands in a page."""
        return f"{self.begin}\n\n{text}\n\n{self.end}"

    def write(self, page: Path, text: str) -> None:
        """Raises PreconditionError, and writes nothing, if the page does not have both comments, each once and in their order."""
        before, begin, rest = page.read_text().partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not (begin and end) or self.begin in rest or self.end in after:
            raise PreconditionError(
                f"{page} has no place for this text. Add the lines {self.begin!r} and {self.end!r} to it, each once."
            )
        page.write_text(f"{before}{self.containing(text)}{after}")
