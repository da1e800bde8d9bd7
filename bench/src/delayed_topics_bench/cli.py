"""The command line `delayed-topics-bench`."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.others import Usage, others_share
from delayed_topics_bench.parts import PARTS
from delayed_topics_bench.peers import PEERS
from delayed_topics_bench.plan import DEFAULT, QUICK, Plan
from delayed_topics_bench.plots import draw
from delayed_topics_bench.report import show, write_document
from delayed_topics_bench.results import RESULTS, Results
from delayed_topics_bench.stand import Stand

__all__ = ["main"]

Command = TypeVar("Command", bound=Callable[..., Any])
POSITIVE = click.IntRange(min=1)


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
@_field("--held-records", "held_records", "That wait, for their memory.")
@_field("--cpu-records", "cpu_records", "Whose processor time is divided by section.")
@_field("--peer-rate", "peer_rates", "Records a second beside the peers; may be repeated.", many=True)
@_field("--peer-seconds", "peer_seconds", "How long each of these is kept.")
@click.option("--peer", "peers", type=click.Choice(list(PEERS)), multiple=True, help="Only this; may be repeated.")
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
    plan = replace(QUICK if quick else DEFAULT, **{name: value for name, value in fields.items() if value})
    name = "quick" if quick else "exactly-once" if exactly_once else "relay"
    file = results or RESULTS.with_name(f"{name}.json")
    kept = Results(file)
    failed: list[str] = []
    if not only_show:
        chosen = parts or tuple(name for name in PARTS if not (quick and name == "peers"))
        failed = _measure(plan, chosen, kept, Stand(exactly_once=exactly_once))
    show(kept.body)
    for picture in draw(kept.body, file.with_suffix("")):
        say(f"drawn: {picture}")
    if file == RESULTS:
        write_document(kept.body)
    say(f"written to {file}")
    if failed:
        raise DevclusterError("not measured, or not all of it: " + ", ".join(failed))


def _measure(plan: Plan, parts: Sequence[str], kept: Results, stand: Stand) -> list[str]:
    """Returns the parts that failed: the others are measured all the same."""
    failed: list[str] = []
    with ExitStack() as stack:
        with step("starting a broker"):
            stack.enter_context(stand)
        for name in parts:
            before = Usage.now()
            try:
                for entry in PARTS[name](stand, plan):
                    after = Usage.now()
                    kept.add(entry, others=others_share(before, after))
                    before = after
            except DevclusterError as error:
                say(f"{name}: {error.message}")
                failed.append(name)
    return failed
