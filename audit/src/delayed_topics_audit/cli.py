"""The command line `delayed-topics-audit`."""

import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final

import click
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_kafka.connection import Connection
from pyspark.sql import SparkSession

from delayed_topics_audit import index, session
from delayed_topics_audit.account import Result
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.executor import command
from delayed_topics_audit.job import Audited, audit
from delayed_topics_audit.output import SETTINGS, Output
from delayed_topics_audit.report import render
from delayed_topics_audit.sources import java_options

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(file_okay=False, path_type=Path)


def _settings(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    parts = [text.partition("=") for text in given]
    if not all(separator for _, separator, _ in parts):
        raise click.BadParameter("must be NAME=VALUE")
    return {name: value for name, _, value in parts}


FAILED_ON = 3
"""The exit code for a verdict that --fail-on names. 1 means that no verdict was reached, and 2 that the command line is wrong."""
_FAILURES: Final = ("Violated", "Unknown")


def _verdicts(_context: click.Context, _option: click.Parameter, given: str | None) -> frozenset[str]:
    named = frozenset(given.split(",")) if given is not None else frozenset()
    if not named <= set(_FAILURES):
        raise click.BadParameter(f"{given!r} must be {', '.join(_FAILURES)}, or both separated by a comma")
    return named


@click.group()
def main() -> None:
    """Account for every record of a delayed topic."""


@main.command()
@click.option(
    "--window", type=_FILE, required=True, help="The file with the frozen offsets (JSON, compressed by gzip)."
)
@click.option(
    "--connection",
    type=_DIRECTORY,
    required=True,
    help="The folder with the files of the connection, a mounted Secret.",
)
@click.option(
    "--result",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write the verdict to (JSON).",
)
@click.option("--master", default="local[*]", show_default=True, help="The Spark master, such as local[N] or k8s://…")
@click.option("--memory", default="1g", show_default=True, help="The heap of the Java process.")
@click.option(
    "--jars",
    type=_DIRECTORY,
    default=Path("/opt/spark-jars"),
    envvar="SPARK_EXTRA_JARS_DIR",
    show_default=True,
    show_envvar=True,
    help="The folder with the jars that Spark needs to read Kafka and to write to S3.",
)
@click.option(
    "--conf",
    callback=_settings,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of Spark. Can be repeated. The last value of a name counts.",
)
@click.option("--output", "folder", help="Also write a report for people into this folder, a path or s3a://…")
@click.option("--parquet", is_flag=True, help="With --output: also write the account of every record, as Parquet.")
@click.option(
    "--index",
    "indexed",
    is_flag=True,
    help="With --output: also keep a table of all audits and a page for each topic, next to that folder.",
)
@click.option(
    "--fail-on",
    callback=_verdicts,
    metavar="VERDICT,…",
    help=f"Exit with {FAILED_ON} if the verdict is in this list of Violated and Unknown. Without this option, every verdict is a success.",
)
def run(
    window: Path,
    connection: Path,
    result: Path,
    master: str,
    memory: str,
    jars: Path,
    conf: Mapping[str, str],
    folder: str | None,
    parquet: bool,
    indexed: bool,
    fail_on: frozenset[str],
) -> None:
    """Judge one frozen window.

    The exit code is 0 if the audit reached a verdict that --fail-on does not name, and 1 if it reached no verdict.
    """
    output = Output(folder=folder, parquet=parquet) if folder is not None else None

    @cache
    def spark(options: str) -> SparkSession:
        click.echo(f"starting Spark on {master}")
        return session.start(
            master=master, jars=jars, memory=memory, settings={**SETTINGS, **conf}, java_options=options
        )

    try:
        frozen, kafka = AuditWindow.decode(window.read_bytes()), Connection.from_directory(connection)
        reached = audit(frozen, kafka, partial(spark, java_options(kafka)), click.echo, output)
        verdict = reached.result
        if output is not None:
            started = spark(java_options(kafka))
            output.write_page(started, render(frozen, verdict, reached.findings))
            if indexed:
                _add_to_index(started, output, frozen, reached)
    except DelayedTopicsError as e:
        result.write_text(Result(verdict="Unknown", message=str(e)).encode())
        click.echo(f"no verdict: {e}", err=True)
        sys.exit(1)
    session.stop()
    result.write_text(verdict.encode())
    click.echo(f"{verdict.verdict}: {verdict.message}")
    for kind, names in verdict.offenders.items():
        if names:
            click.echo(f"{kind}: {', '.join(names)}")
    if verdict.verdict in fail_on:
        sys.exit(FAILED_ON)


def _add_to_index(started: SparkSession, output: Output, window: AuditWindow, reached: Audited) -> None:
    """Adds the audit to the index. If that fails, the verdict still stands."""
    try:
        index.add(started, output, window, reached.result, reached.findings)
    except AuditFailed as e:
        click.echo(f"this audit is not in the index: {e}")


@main.command(context_settings={"allow_interspersed_args": False})
@click.option("--properties-file", required=True)
@click.option("--class", "_python_runner", required=True)
@click.argument("_program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def driver(properties_file: str, _python_runner: str, _program: str, arguments: tuple[str, ...]) -> None:
    """Lead an audit as the driver of a SparkApplication.

    Spark starts the driver pod with this command and its options. A command such as `run` follows them.
    """
    # The first process here is Python and not Java, so that the exit code and the verdict are as in a Job.
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        [
            f"--properties-file={properties_file}",
            "--deploy-mode=client",
            f"--conf=spark.driver.bindAddress={os.environ['SPARK_DRIVER_BIND_ADDRESS']}",
            "pyspark-shell",
        ]
    )
    main(list(arguments))


@main.command()
def executor() -> None:
    """Take part in an audit on several pods. Spark starts each executor pod with this command."""
    java = command(os.environ)
    os.execvp(java[0], java)
