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

from delayed_topics_bench.others import MAX_SHARE, Usage, others_share
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
MAX_TRIES = 5
OWN_FILES = {"rebalance": "rebalance", "shared": "shared", "neighbours": "shared"}
"""Parts whose results have a file of their own, with its name. They are not run together with parts of other files."""
FULL_RUNS_ONLY = ("replicated", "profile", "peers", "recovery", *OWN_FILES)
"""Parts that --quick and --exactly-once leave out unless they are named."""


def _field(flag: str, name: str, text: str, *, many: bool = False) -> Callable[[Command], Command]:
    """Returns an option for a field of Plan."""
    standard = getattr(DEFAULT, name)
    default = " ".join(map(str, standard)) if many else str(standard)
    return click.option(flag, name, type=POSITIVE, multiple=many, help=f"{text}  [default: {default}]")


@click.command(context_settings={"max_content_width": 120})
@click.option("--part", "parts", type=click.Choice(list(PARTS)), multiple=True, help="Only this part; may be repeated.")
@click.option(
    "--quick", is_flag=True, help="Smaller sizes, without the peers: under four minutes, no figures to quote."
)
@click.option(
    "--exactly-once", is_flag=True, help="Workers with guarantee ExactlyOnce; the figures go to a file of their own."
)
@_field("--size", "sizes", "Bytes of a value; may be repeated.", many=True)
@_field("--records", "records", "Records of a backlog; fewer if they would have more than 600 MB.")
@_field("--workers", "workers", "Worker processes that drain the backlog; may be repeated.", many=True)
@_field("--rate", "rates", "Records a second at which lateness is measured; may be repeated.", many=True)
@_field("--replicated-rate", "replicated_rates", "The same with three brokers; may be repeated.", many=True)
@_field("--seconds", "seconds", "How long each rate is kept.")
@_field("--warm-seconds", "warm_seconds", "How long each rate is kept before that, while the JVM warms up.")
@_field("--burst-records", "burst_records", "Records that are all due in the same millisecond.")
@_field(
    "--ceiling-records", "ceiling_records", "Records for Kafka's own tools; fewer if they would have more than 2 GB."
)
@_field("--held-records", "held_records", "Records that wait, to measure their memory and a crash.")
@_field("--cpu-records", "cpu_records", "Records for which processor time is measured by thread.")
@_field("--peer-rate", "peer_rates", "Records a second in the comparison with peers; may be repeated.", many=True)
@_field("--peer-seconds", "peer_seconds", "How long each of these rates is kept.")
@click.option("--peer", "peers", type=click.Choice(list(PEERS)), multiple=True, help="Only this peer; may be repeated.")
@_field("--members", "members", "Members of the groups that are rebalanced; may be repeated.", many=True)
@_field("--partitions", "shared_partitions", "Partitions of the topics that these members share.")
@_field(
    "--idle-topics", "idle_topics", "Topics with nothing to do, on workers that share them; may be repeated.", many=True
)
@_field("--idle-seconds", "idle_seconds", "How long these topics have nothing to do.")
@_field("--quiet-rate", "quiet_rate", "Records a second of a topic beside a noisy one, on one shared worker.")
@_field("--noisy-rate", "noisy_rates", "Records a second of the noisy topic; may be repeated.", many=True)
@_field("--runs", "runs", "Runs of each measurement; medians and spreads are shown.")
@click.option("--only-show", is_flag=True, help="Measure nothing; write tables, plots and pages from the last figures.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File for the figures (JSON); the plots go beside it.  [default: in {RESULTS}, another one for --quick and --exactly-once]",
)
def main(
    parts: tuple[str, ...],
    quick: bool,
    exactly_once: bool,
    only_show: bool,
    results: Path | None,
    **fields: Any,
) -> None:
    """Measure how fast workers are and how late records are, beside the limits of the broker and beside other systems.

    Starts a broker and real worker processes of its own, so the machine should have nothing else to do. The figures go to
    a JSON file, from which tables and plots are made. A part that isn't run keeps its last figures.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # otherwise the broker would outlive this process
    plan = replace(QUICK if quick else DEFAULT, **{name: value for name, value in fields.items() if value})
    owns = {OWN_FILES.get(part) for part in parts}
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
            n for n in PARTS if n not in OWN_FILES and (n not in FULL_RUNS_ONLY or not (quick or exactly_once))
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
    """Measures all parts, even if some fail, and returns the failures.

    Each run has a broker of its own: after a hundred million records, the pauses of its JVM are twice as long as in a new one.
    """
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
    """Measures one part. Yields the reason for each task that could not be measured."""
    for task in PARTS[part](testbed, plan):
        try:
            _run_validly(part, task, kept, pace, strict=plan.strict)
        except DevclusterError as error:
            say(f"{part}: {error.message}")
            yield error.message.splitlines()[0]


def _run_validly(part: str, task: Task, kept: Results, pace: Pace, *, strict: bool) -> None:
    """Repeats a task until its run is valid. Raises DevclusterError if no run is valid, or if the task fails."""
    problem: str | None = None
    for _ in range(MAX_TRIES):
        before, paced = Usage.now(), pace.count
        entries = task()
        others, slowed = others_share(before, Usage.now()), pace.slowed_since(paced)
        problem = next((entry.problem for entry in entries if entry.problem), None)
        if problem is None and others > MAX_SHARE:
            problem = f"other programs took {others:.0%} of the machine"
        if problem is None or not strict:
            for entry in entries:
                kept.add(part, replace(entry, problem=problem), others=others, slowed=slowed)
            return
        say(f"the run is not valid and is repeated: {problem}")
    raise DevclusterError(f"no valid run in {MAX_TRIES} tries: {problem}")
