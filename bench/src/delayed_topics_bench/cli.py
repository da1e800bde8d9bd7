"""The command line `delayed-topics-bench`."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.others import MOST_SHARE, Usage, others_share
from delayed_topics_bench.pace import Pace
from delayed_topics_bench.parts import PARTS, Task
from delayed_topics_bench.peers import PEERS
from delayed_topics_bench.plan import DEFAULT, QUICK, Plan
from delayed_topics_bench.plots import draw
from delayed_topics_bench.report import show, write_documents
from delayed_topics_bench.results import RESULTS, Results
from delayed_topics_bench.testbed import Testbed

__all__ = ["main"]

Command = TypeVar("Command", bound=Callable[..., Any])
POSITIVE = click.IntRange(min=1)
MOST_TRIES = 5
OF_ITS_OWN = {"rebalance": "rebalance", "shared": "shared", "neighbours": "shared"}
"""Parts that are in a file of their own, with its name. They are not run with parts of other files."""
ASIDE = ("profile", "peers", "recovery", *OF_ITS_OWN)
"""Parts that are about the relay as it is by default, and not run with other settings."""


def _field(flag: str, name: str, text: str, *, many: bool = False) -> Callable[[Command], Command]:
    """An option that is a field of Plan."""
    standard = getattr(DEFAULT, name)
    said = " ".join(map(str, standard)) if many else str(standard)
    return click.option(flag, name, type=POSITIVE, multiple=many, help=f"{text}  [default: {said}]")


@click.command(context_settings={"max_content_width": 120})
@click.option("--part", "parts", type=click.Choice(list(PARTS)), multiple=True, help="Only this; may be repeated.")
@click.option(
    "--quick", is_flag=True, help="Smaller sizes, without the peers: under four minutes, no figures to quote."
)
@click.option(
    "--exactly-once", is_flag=True, help="Workers with guarantee ExactlyOnce; the figures go to a file of their own."
)
@_field("--size", "sizes", "Bytes of a value; may be repeated.", many=True)
@_field("--records", "records", "Of a backlog; fewer where they would have more than 600 MB.")
@_field("--workers", "workers", "Worker processes that drain; may be repeated.", many=True)
@_field("--rate", "rates", "Records a second of the lateness; may be repeated.", many=True)
@_field("--seconds", "seconds", "How long each rate is kept.")
@_field("--warm-seconds", "warm_seconds", "How long each rate is kept before that, while Java compiles.")
@_field("--burst-records", "burst_records", "All due in the same millisecond.")
@_field("--ceiling-records", "ceiling_records", "Of Kafka's own tools; fewer where they would have more than 2 GB.")
@_field("--held-records", "held_records", "That wait: for their memory, and in a crash.")
@_field("--cpu-records", "cpu_records", "Whose processor time is divided by thread.")
@_field("--peer-rate", "peer_rates", "Records a second beside the peers; may be repeated.", many=True)
@_field("--peer-seconds", "peer_seconds", "How long each of these is kept.")
@click.option("--peer", "peers", type=click.Choice(list(PEERS)), multiple=True, help="Only this; may be repeated.")
@_field("--members", "members", "Of groups that are rebalanced; may be repeated.", many=True)
@_field("--partitions", "shared_partitions", "Of the topics that they share.")
@_field("--idle-topics", "idle_topics", "With nothing to do, on workers that share them; may be repeated.", many=True)
@_field("--idle-seconds", "idle_seconds", "For so long.")
@_field("--quiet-rate", "quiet_rate", "Records a second of a topic beside a noisy one, on one shared worker.")
@_field("--noisy-rate", "noisy_rates", "Records a second of the noisy one; may be repeated.", many=True)
@_field("--runs", "runs", "Each of all that is measured; medians and spreads are shown.")
@click.option("--only-show", is_flag=True, help="Measure nothing: tables, plots and document of the last figures.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Where the figures go (JSON), and its plots.  [default: {RESULTS}; of --quick and --exactly-once a file of that name]",
)
def main(
    parts: tuple[str, ...],
    quick: bool,
    exactly_once: bool,
    only_show: bool,
    results: Path | None,
    **fields: Any,
) -> None:
    """How fast and how late the relay is: beside what the broker can do at most, and beside what else there is.

    Starts a broker and real worker processes of its own, so the machine should have nothing else to do. What is measured
    goes to a JSON file and tables and plots are made of it; a part that isn't run keeps its last figures.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the broker would outlive it
    plan = replace(QUICK if quick else DEFAULT, **{name: value for name, value in fields.items() if value})
    owns = {OF_ITS_OWN.get(part) for part in parts}
    if len(owns) > 1:
        raise click.UsageError(
            f"these parts have different results files. Run {' and '.join(parts)} one after the other"
        )
    own = next(iter(owns), None)
    name = "quick" if quick else "exactly-once" if exactly_once else own or "relay"
    file = results or RESULTS / f"{name}.json"
    kept = Results(file)
    failed: list[str] = []
    if not only_show:
        chosen = parts or tuple(
            n for n in PARTS if n not in OF_ITS_OWN and (n not in ASIDE or not (quick or exactly_once))
        )
        failed = _measure(plan, chosen, kept, exactly_once=exactly_once)
    show(kept.body)
    for picture in draw(kept.body, file.with_suffix("")):
        say(f"drawn: {picture}")
    if file.parent == RESULTS and not quick:
        write_documents(kept.body, name)
    say(f"written to {file}")
    if failed:
        raise DevclusterError("not or only partly measured: " + "; ".join(failed))


def _measure(plan: Plan, parts: Sequence[str], kept: Results, *, exactly_once: bool) -> list[str]:
    """Returns what failed: all else is measured all the same. Each run has a broker of its own: after a hundred million records
    Java's pauses in it are twice as long as in a new one."""
    failed: list[str] = []
    with Pace() as pace:
        for number in range(1, plan.runs + 1):
            with ExitStack() as stack:
                with step("starting a broker"):
                    testbed = stack.enter_context(Testbed(exactly_once=exactly_once))
                for part in parts:
                    say(f"run {number} of {plan.runs}: {part}")
                    failed += [f"{part} ({why})" for why in _measure_part(part, testbed, plan, kept, pace)]
    return failed


def _measure_part(part: str, testbed: Testbed, plan: Plan, kept: Results, pace: Pace) -> Iterator[str]:
    """Yields why, where something of it could not be measured."""
    for task in PARTS[part](testbed, plan):
        try:
            _run_validly(part, task, kept, pace, strict=plan.strict)
        except DevclusterError as error:
            say(f"{part}: {error.message}")
            yield error.message.splitlines()[0]


def _run_validly(part: str, task: Task, kept: Results, pace: Pace, *, strict: bool) -> None:
    """What is no valid run is run again. Raises DevclusterError if it never is, or can't be measured."""
    problem: str | None = None
    for _ in range(MOST_TRIES):
        before, paced = Usage.now(), pace.count
        entries = task()
        others, slowed = others_share(before, Usage.now()), pace.slowed_since(paced)
        problem = next((entry.problem for entry in entries if entry.problem), None)
        if problem is None and others > MOST_SHARE:
            problem = f"other programs took {others:.0%} of the machine"
        if problem is None or not strict:
            for entry in entries:
                kept.add(part, replace(entry, problem=problem), others=others, slowed=slowed)
            return
        say(f"the run is not valid and is repeated: {problem}")
    raise DevclusterError(f"no valid run in {MOST_TRIES} tries: {problem}")
