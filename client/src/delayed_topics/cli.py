"""The command `delayed-topics`, with which people inspect delayed topics, send and change records, and back up the registry."""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

import click
from click.core import ParameterSource
from delayed_topics_core.headers import Header
from delayed_topics_core.names import TopicNames
from delayed_topics_core.words import counted
from delayed_topics_kafka.connection import Connection

from delayed_topics.cli_changes import cancel, reschedule
from delayed_topics.cli_options import (
    JSON,
    Moment,
    at_address,
    decoded,
    has_address,
    one_line,
    reachable,
    read_properties,
    served_layout,
    with_usage_errors,
)
from delayed_topics.cli_redrive import redrive_command
from delayed_topics.cli_why import why
from delayed_topics.declaration import DeclaredHandler
from delayed_topics.peek import partitions_of, peek, peek_as_json, peek_lines
from delayed_topics.registry_copy import export_registry, import_registry
from delayed_topics.scan import Scanner
from delayed_topics.status import read_status
from delayed_topics.status_shown import print_status, status_as_json
from delayed_topics.topic import DelayedTopic, on_signal
from delayed_topics.way_shown import shown


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--bootstrap",
    envvar="KAFKA_BOOTSTRAP",
    metavar="HOST:PORT,…",
    help="The bootstrap servers of Kafka. [default: bootstrap.servers in --config, or else $KAFKA_BOOTSTRAP]",
)
@click.option(
    "--config",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of librdkafka properties (name=value) for TLS and authentication.",
)
@click.pass_context
def main(context: click.Context, bootstrap: str | None, properties_file: Path | None) -> None:
    """Work with delayed topics on Kafka: show them, and send, read, cancel and reschedule records."""
    properties = read_properties(properties_file) if properties_file is not None else {}
    asked_for = context.get_parameter_source("bootstrap") is not ParameterSource.ENVIRONMENT
    if bootstrap is not None and (asked_for or not has_address(properties)):
        properties = at_address(properties, bootstrap)
    # without the log of librdkafka, whose lines would mix with the output; errors that matter are raised
    context.obj = {"log_level": 0, **properties}


@main.command()
@click.argument("topic")
@JSON
@click.pass_obj
@one_line
def status(properties: dict[str, Any], topic: str, json_wanted: bool) -> None:
    """Show the layout of TOPIC, how many records are where, and when they are due.

    The command reads offsets, and of each partition no more than ten records.
    """
    connection = Connection.from_properties(reachable(properties))
    found = read_status(connection, served_layout(connection, topic))
    if json_wanted:
        click.echo(status_as_json(found))
    else:
        print_status(found)


@main.command()
@click.argument("topic")
@click.argument("values", nargs=-1, metavar="[VALUE]…")
@click.option("--key", help="The key of each record.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of each record. Can be repeated."
)
@click.option("--delay-level", type=click.IntRange(min=1), help="The entry of the delay list to wait, counted from 1.")
@click.option(
    "--deliver-at",
    "deliver_at_ms",
    type=Moment(ahead=True),
    help="The due time, such as 2026-11-25T04:00:00Z, or the time until then, such as 2h. Replaces the delay. Needs spec.ladder.",
)
@click.option(
    "--target",
    metavar="TOPIC[:PARTITION]",
    help="The topic in which the record comes out instead of the ready topic. Must be in spec.ready.allowedTopics.",
)
@click.option("--id", "record_id", help="The dt-id of the record, which stays the same over all attempts.")
@click.pass_obj
@one_line
def send(
    properties: dict[str, Any],
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: tuple[str, ...],
    delay_level: int | None,
    deliver_at_ms: int | None,
    target: str | None,
    record_id: str | None,
) -> None:
    """Send each VALUE to TOPIC. Without a VALUE, send each line of the standard input."""
    parsed = [_header(header) for header in headers]
    given = (os.fsencode(value) for value in values)
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer)
    sent = 0
    with DelayedTopic.connect(reachable(properties), topic) as delayed:
        for value in given if values else lines:
            try:
                delayed.send(
                    value,
                    key=os.fsencode(key) if key is not None else None,
                    headers=parsed,
                    delay_level=delay_level,
                    deliver_at_ms=deliver_at_ms,
                    target=target,
                    id=record_id,
                )
            except ValueError as e:
                raise click.UsageError(str(e)) from e
            sent += 1
    click.echo(f"{sent} sent to {topic}", err=True)


def _header(text: str) -> Header:
    """Splits a header into name and value. Bytes that are not UTF-8 are surrogates in `text`. Raises click.UsageError."""
    name, _, value = text.partition("=")
    try:
        name.encode()
    except UnicodeEncodeError as e:
        raise click.UsageError(f"--header must have a name in UTF-8, but it is {text!r}") from e
    return name, os.fsencode(value)


@main.command()
@click.argument("topic")
@click.option("--group", required=True, help="The consumer group. The command commits its offsets.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--ready-topic", help="Read this topic, which records name as their target, instead of the ready topic.")
@click.pass_obj
@one_line
def consume(properties: dict[str, Any], topic: str, group: str, count: int | None, ready_topic: str | None) -> None:
    """Print the records of TOPIC as they come out, with their attempt and lateness, until you interrupt the command."""
    with (
        DelayedTopic.connect(reachable(properties), topic) as delayed,
        with_usage_errors(lambda: delayed.records(group, ready_topic=ready_topic)) as records,
        on_signal(records.stop),
    ):
        # a loop and not a handler: if the output is closed, for example by `head`, the record must not be retried
        for seen, record in enumerate(records, 1):
            click.echo(
                f"{record.topic} [{record.partition}] {record.offset}  attempt {record.attempt}  late {record.late_ms} ms  "
                f"id {shown(record.id.encode()) if record.id else '-'}  key {shown(record.key)}  value {shown(record.value)}"
            )
            if seen == count:
                records.stop()


@main.command("peek")
@click.argument("topic")
@click.option(
    "-n", "--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many records to show."
)
@click.option("--partition", type=click.IntRange(min=0), help="Show only records in this partition of TOPIC.delays.")
@click.option(
    "--delay", "delay_seconds", type=click.IntRange(min=0), help="Show only records with this delay, in seconds."
)
@click.option("--show-value", is_flag=True, help="Show keys and values too.")
@JSON
@click.pass_obj
@one_line
def peek_command(
    properties: dict[str, Any],
    topic: str,
    count: int,
    partition: int | None,
    delay_seconds: int | None,
    show_value: bool,
    json_wanted: bool,
) -> None:
    """Show the records that wait in TOPIC.delays and come out next, soonest first, with due time and place.

    In each partition, the command looks at the records that arrived first. It commits nothing and changes no record.
    """
    connection = Connection.from_properties(reachable(properties))
    layout = served_layout(connection, topic)
    partitions = partitions_of(layout, partition=partition, delay_seconds=delay_seconds)
    with Scanner(connection, lambda *_: None) as scanner:
        waiting, notes = peek(connection, layout, scanner, partitions, count=count)
    for note in notes:
        click.echo(note, err=True)
    if json_wanted:
        click.echo(peek_as_json(waiting, show_value=show_value))
        return
    for line in peek_lines(waiting, now_ms=int(time.time() * 1000), show_value=show_value):
        click.echo(line)
    if not waiting:
        click.echo(f"Nothing waits in {TopicNames.of(topic).delays}.", err=True)


@main.command()
@click.argument("handler", metavar="MODULE:HANDLER")
def manifest(handler: str) -> None:
    """Print the DelayedTopic resource for a handler that is decorated with @delayed_topic."""
    module, _, name = handler.partition(":")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as e:  # the import of the user's module may raise anything
        why = f"{type(e).__name__}: {e}"
        raise click.ClickException(
            f"{handler} can't be imported ({why}). Write MODULE:HANDLER, such as shop:ship"
        ) from e
    if not isinstance(found, DeclaredHandler):
        raise click.ClickException(f"{handler} must be a function decorated with @delayed_topic, but it is {found!r}")
    click.echo(found.manifest(), nl=False)


@main.group()
def registry() -> None:
    """Back up and restore `delayedtopics.registry`, the topic that records who owns which topic, and every layout."""


@registry.command("export")
@click.pass_obj
@one_line
def export_command(properties: dict[str, Any]) -> None:
    """Print the registry, with one JSON object on each line."""
    click.echo(export_registry(Connection.from_properties(reachable(properties))), nl=False)


@registry.command("import")
@click.argument("file", type=click.File("rb"))
@click.pass_obj
@one_line
def import_command(properties: dict[str, Any], file: BinaryIO) -> None:
    """Write the output of `registry export` into a registry that is missing or empty. FILE may be - for the standard input.

    A topic can have another id here than in the export, for example after mirroring. The command then takes it for the topic of the
    same name, and workers continue at the offsets that its consumer group has committed here.
    """
    done = import_registry(Connection.from_properties(reachable(properties)), decoded(file.read(), file.name))
    click.echo(f"{counted(done.written, 'record')} imported", err=True)
    for topic, group in done.rebased.items():
        click.echo(
            f"{topic}: its topics have other ids here than in the export. Check that group {group} has its offsets here",
            err=True,
        )


main.add_command(cancel)
main.add_command(reschedule)
main.add_command(redrive_command)
main.add_command(why)
