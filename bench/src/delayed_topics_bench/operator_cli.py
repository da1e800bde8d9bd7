"""The command line `delayed-topics-bench-operator`."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.progress import say

from delayed_topics_bench.operator_run import DEFAULT, PARTS, QUICK, OperatorPlan, Task, measure
from delayed_topics_bench.others import MAX_SHARE, Usage, others_share
from delayed_topics_bench.pace import Pace
from delayed_topics_bench.plots import draw
from delayed_topics_bench.report import show, write_documents
from delayed_topics_bench.results import RESULTS, Results

__all__ = ["main"]

POSITIVE = click.IntRange(min=1)
NAME = "operator"
MAX_TRIES = 3


def _field(flag: str, name: str, text: str) -> Callable[..., Any]:
    """Returns an option for a field of OperatorPlan."""
    return click.option(flag, name, type=POSITIVE, help=f"{text}  [default: {getattr(DEFAULT, name)}]")


@click.command(context_settings={"max_content_width": 120})
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this part; may be repeated.")
@click.option("--quick", is_flag=True, help="Smaller sizes: about two minutes, no figures to quote.")
@_field("--resources", "resources", "DelayedTopics that are created at once.")
@_field("--idle-seconds", "idle_seconds", "How long nothing changes.")
@_field("--edits-per-second", "edits_per_second", "Edits a second, of one DelayedTopic after the other.")
@_field("--edit-seconds", "edit_seconds", "How long this rate is kept.")
@_field("--runs", "runs", "Runs of each part, each on a new API server and broker; medians and spreads are shown.")
@click.option("--only-show", is_flag=True, help="Measure nothing; write tables, plots and pages from the last figures.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File for the figures (JSON); the plots go beside it.  [default: {RESULTS / NAME}.json; with --quick quick-{NAME}.json]",
)
def main(parts: tuple[str, ...], quick: bool, only_show: bool, results: Path | None, **fields: Any) -> None:
    """Measure what the operator needs for many DelayedTopics: until they are Ready, while nothing changes, and while many change.

    Starts an API server, a broker and an operator of its own, so the machine should have nothing else to do. A part
    that isn't run keeps its last figures.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # otherwise the servers would outlive this process
    plan = replace(QUICK if quick else DEFAULT, **{name: value for name, value in fields.items() if value})
    file = results or RESULTS / f"{'quick-' if quick else ''}{NAME}.json"
    kept = Results(file)
    if not only_show:
        _measure(plan, parts or PARTS, kept)
    show(kept.body)
    for picture in draw(kept.body, file.with_suffix("")):
        say(f"drawn: {picture}")
    if file == RESULTS / f"{NAME}.json":
        write_documents(kept.body, NAME)
    say(f"written to {file}")


def _measure(plan: OperatorPlan, parts: Sequence[str], kept: Results) -> None:
    """Runs all parts. Raises DevclusterError if a part has too few valid runs after all tries."""
    valid = dict.fromkeys(parts, 0)
    with Pace() as pace:
        for number in range(1, plan.runs * MAX_TRIES + 1):
            lacking = [part for part in parts if valid[part] < plan.runs]
            if not lacking:
                return
            say(f"round {number}: {', '.join(lacking)}")
            asyncio.run(measure(plan, lacking, lambda *measured: _keep(plan, kept, valid, pace, *measured)))
    lacking = [part for part in parts if valid[part] < plan.runs]
    if lacking:
        raise DevclusterError(
            f"fewer than {plan.runs} valid runs in {plan.runs * MAX_TRIES} rounds: {', '.join(lacking)}"
        )


async def _keep(plan: OperatorPlan, kept: Results, valid: dict[str, int], pace: Pace, part: str, task: Task) -> None:
    """Measures a part, and keeps its figures if the run is valid, or if the plan is not strict."""
    before, paced = Usage.now(), pace.count
    entry = await task()
    others, slowed = others_share(before, Usage.now()), pace.slowed_since(paced)
    problem = f"other programs took {others:.0%} of the machine" if others > MAX_SHARE else None
    if problem and plan.strict:
        say(f"{part}: the run is not valid and is not kept, because {problem}")
        return
    kept.add(part, replace(entry, problem=problem), others=others, slowed=slowed)
    valid[part] += 1
