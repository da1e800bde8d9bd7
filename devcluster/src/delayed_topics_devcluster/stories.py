"""Prints a table of stories at the end of a test run, with results and seconds, and writes it as JSON: `pytest --stories FILE`.

A story is a test function; the cases of a parametrized function are counted together.
"""

import io
import json
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

__all__ = ["Story", "collect_stories", "table"]

WIDTH = 160


@dataclass
class Story:
    """The results of one test function. `outcomes`: the number of cases by pytest's names of outcomes; an error in setup or teardown
    counts beside the outcome of the test itself. `figures`: what the test measured and recorded with `record_property`.
    """

    file: str
    title: str
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    figures: list[tuple[str, object]] = field(default_factory=list)

    @property
    def result(self) -> str:
        if self.outcomes.keys() == {"passed"} and self.outcomes["passed"] == 1:
            return "passed"
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))


def collect_stories(outcomes: Iterable[tuple[str, pytest.TestReport]]) -> list[Story]:
    """Returns one story for each test function, in the order of their files. `outcomes`: reports, each with pytest's name of its
    outcome: passed, failed, error…

    The name is empty for a setup or teardown that passed; its time counts for the test.
    """
    stories: dict[tuple[str, str], Story] = {}
    for outcome, report in outcomes:
        file, _, name = report.nodeid.partition("::")
        function = name.partition("[")[0]
        story = stories.setdefault(
            (file, function), Story(file=file, title=function.removeprefix("test_").replace("_", " "))
        )
        story.seconds += report.duration
        if outcome:
            story.outcomes[outcome] += 1
        if report.when == "call":
            story.figures += report.user_properties
    return [stories[key] for key in sorted(stories)]


def table(stories: list[Story]) -> str:
    drawn = Table("story", "result", "seconds", box=None)
    drawn.columns[2].justify = "right"
    file = ""
    for story in stories:
        if story.file != file:
            file = story.file
            drawn.add_row(file)
        drawn.add_row(f"  {story.title}", story.result, f"{story.seconds:.1f}")
    console = Console(file=io.StringIO(), width=WIDTH)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stories", type=Path, metavar="FILE", help="end with a table of stories, in FILE as JSON too")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # so that the table comes before pytest's summary of failures
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    file: Path | None = config.getoption("--stories")
    if file is not None:
        report_stories(terminalreporter, file)
    return (yield)


def report_stories(terminalreporter: pytest.TerminalReporter, file: Path) -> None:
    stories = collect_stories(
        (outcome, report)
        for outcome, reports in terminalreporter.stats.items()
        for report in reports
        if isinstance(report, pytest.TestReport)
    )
    rows = [
        {"file": s.file, "story": s.title, "result": s.result, "seconds": round(s.seconds, 1), "figures": s.figures}
        for s in stories
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")
    terminalreporter.section("stories")
    terminalreporter.write(table(stories))
