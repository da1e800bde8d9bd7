"""Measures what the links of a chain of audits read from Kafka, for a topic under traffic whose records wait as long as the chain lasts.

python -m delayed_topics_audit_testing.links --links 24 --jars "$(make --silent spark-jars)"
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import click
from delayed_topics_audit import session
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.revision import revision
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import steady_load
from pyspark.sql import SparkSession

from delayed_topics_audit_testing.declared import chained, register

AIM: Final = 2.6
"""The maximum number of rows read for each record of the front topic. Half of the records hop, so reading each row once makes 2.5."""


@dataclass(kw_only=True)
class Tally:
    """The sums over all links. `records` is the number of records in the front topic. `offsets_read` is the sum of
    `status.account.offsetsRead`, and `offsets_of_windows` is what the same links would read without a table."""

    commit: str
    links: int = 0
    records: int = 0
    offsets_read: int = 0
    offsets_of_windows: int = 0
    rows_read_per_record: float = 0.0
    rows_of_windows_per_record: float = 0.0
    delay_seconds: int = 0
    seconds: float = 0.0
    verdicts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def chain(
    spark: SparkSession,
    connection: Connection,
    directory: Path,
    *,
    links: int,
    per_second: int,
    delay_seconds: int,
    say: Callable[[str], None],
) -> Tally:
    tally, began = Tally(commit=revision(), delay_seconds=delay_seconds), time.monotonic()
    with WorkerHarness(connection, directory) as harness:
        orders = harness.declare((0, delay_seconds))
        register(orders)
        harness.start(orders)
        with steady_load(orders, per_second=per_second, levels=2):
            for nth in range(links):
                window, result = chained(orders, spark, directory / "output" / f"link-{nth}")
                assert result.account is not None, result
                tally.links += 1
                tally.records = sum(window.end_offsets[orders.names.front])
                tally.offsets_read += result.account.offsets_read
                tally.offsets_of_windows += window.offsets
                tally.rows_read_per_record = round(tally.offsets_read / tally.records, 3)
                tally.rows_of_windows_per_record = round(tally.offsets_of_windows / tally.records, 3)
                tally.seconds = round(time.monotonic() - began, 1)
                tally.verdicts[result.verdict] = tally.verdicts.get(result.verdict, 0) + 1
                if result.verdict != "Verified":
                    tally.faults.append(result.message)
                say(json.dumps(asdict(tally)))
    return tally


@click.command()
@click.option("--links", default=24, show_default=True)
@click.option("--per-second", default=1_000, show_default=True, help="Records produced meanwhile.")
@click.option("--delay-seconds", default=240, show_default=True, help="That every second record waits.")
@click.option("--jars", type=click.Path(path_type=Path), required=True, help="What `make spark-jars` prints.")
@click.option("--results", type=click.Path(path_type=Path), help="Write the figures there (JSON).")
def main(links: int, per_second: int, delay_seconds: int, jars: Path, results: Path | None) -> None:
    """Fails unless every link is Verified, and all of them together read at most 2.6 rows for each record."""
    with Broker(heap_megabytes=1024, java_options=()) as broker, tempfile.TemporaryDirectory() as directory:
        spark = session.start(master=f"local[{os.cpu_count()}]", jars=jars)
        connection = Connection(bootstrap_servers=broker.bootstrap)
        tally = chain(
            spark,
            connection,
            Path(directory),
            links=links,
            per_second=per_second,
            delay_seconds=delay_seconds,
            say=click.echo,
        )
        spark.stop()
    if results is not None:
        results.write_text(json.dumps(asdict(tally), indent=2) + "\n")
    if tally.verdicts.get("Verified") != links or tally.rows_read_per_record > AIM:
        raise click.ClickException("; ".join(tally.faults) or f"{tally.rows_read_per_record} rows are more than {AIM}")


if __name__ == "__main__":
    main()
