"""Measures an audit with all of its checks, reading from Kafka, beside a plain Python consumer, with one broker on one machine.

python -m delayed_topics_audit_testing.bench --jars "$(make -s spark-jars)" --results bench/results/audit.json
"""

import json
import multiprocessing
import os
import resource
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

import click
from delayed_topics_audit import session, sources
from delayed_topics_audit.job import audit
from delayed_topics_audit.report import render
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.revision import revision
from delayed_topics_kafka.connection import Connection
from pyspark.sql import DataFrame, SparkSession

from delayed_topics_audit_testing.made import Made
from delayed_topics_audit_testing.plain import PlainAudit
from delayed_topics_audit_testing.topics import Written

HOUR_MS = 3_600_000
DELAYS_MS = (0, 1000)
PLAIN_AT_MOST = 1_000_000
"""With more records, the dict of the plain consumer takes too much of the machine's memory."""

Figure = dict[str, Any]


def measure(
    spark: SparkSession, connection: Connection, *, records: int, say: Callable[[str], None], report: Path | None = None
) -> list[Figure]:
    """Returns the figures of one audit, of reading alone and, up to PLAIN_AT_MOST records, of the plain consumer. Writes the audit's page
    to `report`."""
    made = Made(spark=spark, records=records, delays_ms=DELAYS_MS)
    written = Written.of(made, connection, f"bench-{uuid.uuid4().hex[:8]}")
    written.write()
    window = written.freeze(max_lateness_ms=HOUR_MS)
    say(f"{records:,} records are in Kafka, {_rows(window):,} with all copies")
    figures = [_audit(spark, connection, window, records, say, report), _reading(spark, connection, window, records)]
    if records <= PLAIN_AT_MOST:
        figures.append(_plain(window, connection, records))
    return figures


def _audit(
    spark: SparkSession,
    connection: Connection,
    window: AuditWindow,
    records: int,
    say: Callable[[str], None],
    report: Path | None,
) -> Figure:
    before = _shuffled_bytes(spark)
    began = time.monotonic()
    audited = audit(window, connection, lambda: spark, say)
    seconds, result = time.monotonic() - began, audited.result
    if report is not None:
        report.write_text(render(window, result, audited.findings))
    if result.verdict != "Verified" or result.account is None:
        raise click.ClickException(f"the audit of a flawless window says {result.verdict}: {result.message}")
    shuffled = (_shuffled_bytes(spark) - before) / records
    master = str(spark.sparkContext.master)
    return _figure("audit", window, records, seconds, master=master, shuffled=shuffled, peak_bytes=_peak_bytes(spark))


def _reading(spark: SparkSession, connection: Connection, window: AuditWindow, records: int) -> Figure:
    """Returns the upper bound: Spark reads the same rows from Kafka, and does nothing with them."""
    topics = (
        sources.read(spark, connection, topic, [0] * len(ends), ends) for topic, ends in window.end_offsets.items()
    )
    rows = reduce(DataFrame.unionAll, topics)
    began = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    seconds, master = time.monotonic() - began, str(spark.sparkContext.master)
    return _figure("reading alone", window, records, seconds, master=master, peak_bytes=_peak_bytes(spark))


def _plain(window: AuditWindow, connection: Connection, records: int) -> Figure:
    began = time.monotonic()
    consumer = PlainAudit(window=window, connection=connection)
    consumer.run()
    seconds = time.monotonic() - began
    if consumer.lost or consumer.early or consumer.doubled or consumer.changed:
        raise click.ClickException(f"the plain consumer found what isn't there: {consumer}")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return _figure("plain Python consumer", window, records, seconds, master="no Spark", peak_bytes=peak_bytes)


def _figure(
    what: str,
    window: AuditWindow,
    records: int,
    seconds: float,
    *,
    master: str,
    peak_bytes: int,
    shuffled: float = 0,
) -> Figure:
    """Returns one figure. `records` is the number of produced records; `rows` in the figure also counts all copies. `peak_bytes` is the
    highest memory of the process until the end of this measurement."""
    return {
        "what": what,
        "records": records,
        "rows": _rows(window),
        "seconds": round(seconds, 2),
        "records_per_s": round(records / seconds),
        "shuffle_bytes_per_record": round(shuffled, 1),
        "driver_peak_bytes": peak_bytes,
        "master": master,
    }


def _rows(window: AuditWindow) -> int:
    return sum(map(sum, window.end_offsets.values()))


def _shuffled_bytes(spark: SparkSession) -> int:
    """Returns the bytes that Spark has written in shuffles, by its own metrics."""
    context = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)  # type: ignore[union-attr]
    stages = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
    return sum(int(stages.apply(i).shuffleWriteBytes()) for i in range(stages.size()))


def _peak_bytes(spark: SparkSession) -> int:
    """Returns the peak resident memory of the Java machine, which is both driver and executor here."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure_once(bootstrap_servers: str, records: int, jars: Path, memory: str, report: Path | None) -> list[Figure]:
    """As `measure`, with a Java machine of its own, since the one of a process is warm after its first audit."""
    spark = session.start(master=f"local[{os.cpu_count()}]", jars=jars, memory=memory)
    connection = Connection(bootstrap_servers=bootstrap_servers)
    return measure(spark, connection, records=records, say=click.echo, report=report)


@click.command()
@click.option(
    "--records", default=[1_000_000], multiple=True, show_default=True, help="Produced records; may be repeated."
)
@click.option("--runs", default=3, show_default=True, help="How often each number of records is measured.")
@click.option("--jars", type=click.Path(path_type=Path), required=True, help="What `make spark-jars` prints.")
@click.option("--memory", default="1500m", show_default=True, help="Heap of the Java machine.")
@click.option("--results", type=click.Path(path_type=Path), help="Write the figures there (JSON).")
@click.option("--report", type=click.Path(path_type=Path), help="Write the last audit's page there (HTML).")
def main(
    records: tuple[int, ...], runs: int, jars: Path, memory: str, results: Path | None, report: Path | None
) -> None:
    """Audits of flawless windows, timed. The figures of all runs are in the results."""
    figures: list[Figure] = []
    spawn = multiprocessing.get_context("spawn")
    for run, count in product(range(1, runs + 1), records):
        # a broker for each, whose disk would fill otherwise
        with (
            Broker(heap_megabytes=1024, java_options=()) as broker,
            ProcessPoolExecutor(max_workers=1, mp_context=spawn) as process,
        ):
            measured = process.submit(measure_once, broker.bootstrap, count, jars, memory, report).result()
        click.echo(json.dumps(measured, indent=2))
        figures += [{**figure, "run": run, "commit": revision()} for figure in measured]
        if results is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
