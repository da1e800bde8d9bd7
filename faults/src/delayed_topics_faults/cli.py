"""The command `delayed-topics-faults`, which plays one row of faults repeatedly."""

import signal
import sys
from pathlib import Path
from typing import get_args

import click
from delayed_topics_devcluster.errors import DevclusterError
from delayed_topics_devcluster.revision import revision
from delayed_topics_worker.config import Guarantee

from delayed_topics_faults.campaign import campaign
from delayed_topics_faults.reader import ReaderFailed
from delayed_topics_faults.results import RESULTS, save_entry, write_document
from delayed_topics_faults.rows import ROWS

EXIT_BROKEN = 1
EXIT_FAILED = 2


@click.command(
    context_settings={"max_content_width": 120},
    epilog="Rows:\n\n\b\n" + "\n".join(f"{name:12}{row.fault}" for name, row in ROWS.items()),
)
@click.option(
    "--row", type=click.Choice(list(ROWS), case_sensitive=False), required=True, help="Which faults to inject."
)
@click.option("--trials", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--guarantee",
    type=click.Choice(get_args(Guarantee)),
    help="Guarantee of the workers; with ExactlyOnce, nothing may come out twice.  [default: AtLeastOnce, if the row can have it]",
)
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed injects the same faults.")
@click.option(
    "--audit",
    "jars",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Audit all trials at the end, with Spark's jars in this folder (`make spark-jars` prints it). The verdict has to be Verified. "
    "For rows that leave the topics alone, such as W1.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help=f"Folder in whose file ROW.json the figures replace the last ones of this guarantee. {RESULTS} also updates the table in docs/.",
)
def main(
    row: str, trials: int, guarantee: Guarantee | None, seed: int, jars: Path | None, results: Path | None
) -> None:
    """Inject faults into real brokers and workers, and judge every record with an independent reader.

    Prints what was injected in each trial, and a verdict. Ends with exit code 1 at the first broken promise, and keeps the evidence
    (records, logs, verdict) in the folder that is printed. SIGINT or SIGTERM ends the campaign with the verdict on the trials so far.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = campaign(ROWS[row](), trials=trials, seed=seed, say=click.echo, guarantee=guarantee, jars=jars)
    except (DevclusterError, ReaderFailed) as e:
        click.echo(f"Error: {e}", err=True)
        sys.exit(EXIT_FAILED)
    if results is not None:
        save_entry(results, {**outcome.entry(), "commit": revision()})
        if results.resolve() == RESULTS:
            write_document()
    for letter, examples in outcome.broken.items():
        for example in examples:
            click.echo(f"  {letter}: {example}")
    click.echo(outcome.verdict())
    if outcome.evidence is not None:
        click.echo(f"evidence: {outcome.evidence}")
        sys.exit(EXIT_BROKEN)
