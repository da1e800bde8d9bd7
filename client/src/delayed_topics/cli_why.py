"""The command `why`, which shows what became of a record, from Kafka or from the tables of audits."""

import time
from pathlib import Path
from typing import Any, Final

import click
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.connection import Connection

from delayed_topics.cli_options import JSON, Moment, one_line, reachable, reading_bar, served_layout
from delayed_topics.moments import shown_moment
from delayed_topics.scan import Scanner
from delayed_topics.way import RecordPlace, Ways
from delayed_topics.way_shown import as_json, lines

LONG_SCAN_OFFSETS: Final = 20_000
"""A progress bar is shown if at least this many offsets have to be read."""


@click.command("why")
@click.argument("topic")
@click.argument("place", metavar="[RECORD]", required=False)
@click.option("--id", "record_id", metavar="DT-ID", help="Show all attempts with this dt-id. Reads the front topic.")
@click.option(
    "--since",
    "since_ms",
    type=Moment(),
    help="With --id: only records that arrived at this time or later, such as 2h (ago) or 2026-11-25T04:00:00Z.",
)
@click.option("--until", "until_ms", type=Moment(), help="With --id: only records that arrived before this time.")
@click.option(
    "--all-copies", is_flag=True, help="Read on to the end after the first copy. Shows records that came out twice."
)
@click.option("--show-value", is_flag=True, help="Show keys and values too.")
@click.option(
    "--table",
    "folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the Parquet tables that audits have written into this folder, instead of Kafka.",
)
@JSON
@click.pass_obj
@one_line
def why(
    properties: dict[str, Any],
    topic: str,
    place: str | None,
    record_id: str | None,
    since_ms: int | None,
    until_ms: int | None,
    all_copies: bool,
    show_value: bool,
    folder: Path | None,
    json_wanted: bool,
) -> None:
    """Show what happened to a record of TOPIC: when it arrived, its hops, releases and dead letters, or until when it is pending.

    RECORD is the place of the record in any of the four topics, such as orders.ready-0@42. 0@42 is offset 42 of partition 0 of the front
    topic. A value of dt-root or dt-origin works too. The command needs few reads, because the times of the record say where its copies
    must be. Before each read, it prints on the standard error how many offsets it reads at most. It reads only committed records.

    With --table, the command shows what audits found out about the record, even if Kafka no longer has it.
    """
    names = TopicNames.of(topic)
    start = _place(names, place, record_id, since_ms, until_ms)
    if folder is not None:
        if start is None or all_copies or show_value:
            raise click.UsageError(
                "--id, --all-copies and --show-value can't be used with --table. A table has no ids and no values"
            )
        _show_audit_tables(folder, names, start, json_wanted=json_wanted)
        return
    connection = Connection.from_properties(reachable(properties))
    layout = served_layout(connection, topic)
    bar = reading_bar()
    task = bar.add_task("reading", visible=False)

    def progress(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total, visible=total >= LONG_SCAN_OFFSETS)

    def announce(text: str) -> None:
        bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    with bar, Scanner(connection, progress) as scanner:
        ways = Ways(connection, layout, scanner, announce=announce, all_copies=all_copies)
        found = [ways.at(start)] if start else ways.of_id(record_id or "", since_ms=since_ms, until_ms=until_ms)
    if json_wanted:
        click.echo(as_json(found, names, show_value=show_value))
        return
    for line in lines(found, names, now_ms=int(time.time() * 1000), show_value=show_value):
        click.echo(line)
    came_in_at = shown_moment(found[0].records[0].at_ms)
    further = f" Other attempts: delayed-topics why {topic} --id DT-ID --since {came_in_at}" if start else ""
    click.echo(f"Committed records only.{further}", err=True)


def _place(
    names: TopicNames, place: str | None, record_id: str | None, since_ms: int | None, until_ms: int | None
) -> RecordPlace | None:
    """Returns the place of the record, None if `record_id` names it. Raises click.UsageError if the arguments do not name one record, or
    contradict each other."""
    if (place is None) == (record_id is None):
        raise click.UsageError("name the record either by its place, such as 0@42, or by --id")
    if place is not None and (since_ms is not None or until_ms is not None):
        raise click.UsageError(
            "--since and --until can be used only with --id. A place already says when the record arrived"
        )
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--since must be before --until")
    try:
        return RecordPlace.parse(place, names) if place is not None else None
    except ValueError as e:
        raise click.UsageError(str(e)) from e


def _show_audit_tables(folder: Path, names: TopicNames, place: RecordPlace, *, json_wanted: bool) -> None:
    try:
        from delayed_topics.audit_tables import tables_in, ways_at
        from delayed_topics.audit_tables_shown import audited_as_json, audited_lines
    except ModuleNotFoundError as e:
        if e.name != "duckdb":
            raise
        raise click.ClickException(
            "--table needs duckdb, which comes with the extra parquet of the client. "
            "Install it from a checkout of the project with pip install ./core ./kafka './client[cli,parquet]'"
        ) from e
    tables, notes = tables_in(folder, names, place)
    for note in notes:
        click.echo(note, err=True)
    ways = ways_at(tables, names, place)
    if json_wanted:
        click.echo(audited_as_json(ways, names.front))
        return
    for line in audited_lines(ways):
        click.echo(line)
