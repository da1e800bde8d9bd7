"""The command `redrive`, which sends dead letters back."""

import json
from collections import Counter
from typing import Any

import click
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.words import counted
from delayed_topics_kafka.connection import Connection

from delayed_topics.cli_options import JSON, Moment, one_line, reachable, reading_bar, served_layout
from delayed_topics.redrive import NO_REASON, Redriven, redrive
from delayed_topics.way import RecordPlace
from delayed_topics.way_shown import shown


@click.command("redrive")
@click.argument("topic")
@click.argument("places", metavar="[RECORD]…", nargs=-1)
@click.option(
    "--reason",
    "reasons",
    multiple=True,
    metavar="REASON",
    type=click.Choice([*(reason.value for reason in DeadLetterReason), NO_REASON]),
    help="Send only dead letters with this reason. Can be repeated. [default: all but Cancelled, HeaderUnreadable and TooLarge]",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first dead letter, also if it was sent before.")
@click.option(
    "--assume-sent-until",
    "assume_sent_until_ms",
    metavar="TIME",
    type=Moment(),
    help="Where Kafka no longer knows up to where dead letters were sent, send only those that came at this time or later.",
)
@click.option("--dry-run", is_flag=True, help="Send nothing. Show what would be sent.")
@JSON
@click.pass_obj
@one_line
def redrive_command(
    properties: dict[str, Any],
    topic: str,
    places: tuple[str, ...],
    reasons: tuple[str, ...],
    count: int | None,
    from_beginning: bool,
    assume_sent_until_ms: int | None,
    dry_run: bool,
    json_wanted: bool,
) -> None:
    """Send the dead letters of TOPIC to it again, as first attempts.

    The command begins where the last redrive of TOPIC ended. RECORD is the place of a dead letter, such as orders.dead-0@42. With places,
    the command sends only these dead letters, whether or not they were sent before.
    """
    if places and (reasons or count or from_beginning):
        raise click.UsageError("--reason, --count and --from-beginning can't be used with places of records")
    if assume_sent_until_ms is not None and (places or from_beginning):
        raise click.UsageError("--assume-sent-until can't be used with --from-beginning or with places of records")
    names = TopicNames.of(topic)
    wanted = [_place(text, names) for text in places]
    connection = Connection.from_properties(reachable(properties))
    layout = served_layout(connection, topic)
    bar = reading_bar()
    task = bar.add_task("reading")
    with bar:
        done = redrive(
            connection,
            layout,
            reasons=reasons,
            places=wanted,
            from_beginning=from_beginning,
            assume_sent_until_ms=assume_sent_until_ms,
            count=count,
            dry_run=dry_run,
            progress=lambda read, total: bar.update(task, completed=read, total=total),
        )
    if json_wanted:
        click.echo(json.dumps({"sent": done.sent, "left": done.left, "dryRun": dry_run}, indent=2))
        return
    for line in _lines(done, names, dry_run=dry_run):
        click.echo(line)


def _place(text: str, names: TopicNames) -> RecordPlace:
    try:
        place = RecordPlace.parse(text, names)
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    if place.topic != names.dead_letter:
        raise click.UsageError(f"{text} is not in {names.dead_letter}. Write {names.dead_letter}-0@42")
    return place


def _lines(done: Redriven, names: TopicNames, *, dry_run: bool) -> list[str]:
    what = f"{counted(done.sent.total(), 'dead letter')} of {names.dead_letter}"
    said = f"would be sent to {names.front}" if dry_run else f"sent to {names.front}"
    lines = [f"{what} {said}{_by_reason(done.sent)}"]
    if done.left:
        lines.append(f"{counted(done.left.total(), 'dead letter')} left{_by_reason(done.left)}")
    return lines


def _by_reason(numbers: Counter[str]) -> str:
    return (
        f": {', '.join(f'{number:,} {shown(reason.encode())}' for reason, number in numbers.most_common())}"
        if numbers
        else ""
    )
