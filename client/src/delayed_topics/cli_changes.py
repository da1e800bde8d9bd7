"""The commands `cancel` and `reschedule`, which change waiting records."""

from typing import Any

import click

from delayed_topics.cli_options import JSON, Moment, one_line, reachable, with_usage_errors
from delayed_topics.control import ChangeOutcome
from delayed_topics.control_shown import NOT_CHANGED, change_as_json, change_line, withdrawn_line
from delayed_topics.topic import DelayedTopic

_WAIT = click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0),
    default=0,
    help="Wait up to this many seconds for an answer.",
)
_WITHDRAW = click.option(
    "--withdraw", is_flag=True, help="Withdraw the request. Records with this id are then released when they are due."
)


@click.command()
@click.argument("topic")
@click.argument("record_id", metavar="DT-ID")
@_WAIT
@_WITHDRAW
@JSON
@click.pass_obj
@one_line
def cancel(
    properties: dict[str, Any], topic: str, record_id: str, wait_seconds: float, withdraw: bool, json_wanted: bool
) -> None:
    """Cancel the records of TOPIC with this dt-id. Needs spec.control.

    Cancelled records become dead letters and are not released. A record that was sent without an id has its root as its id, such as
    f:3:7:TOPIC-ID. The commands peek and why show it. The exit code is 1 if it is known that a record is not cancelled.
    """
    if withdraw and wait_seconds:
        raise click.UsageError("--wait can't be used with --withdraw, because workers do not answer a withdrawal")
    with DelayedTopic.connect(reachable(properties), topic) as delayed:
        if withdraw:
            with_usage_errors(lambda: delayed.withdraw(record_id))
            click.echo(withdrawn_line(delayed.names, record_id, as_json=json_wanted))
            return
        outcome = with_usage_errors(lambda: delayed.cancel(record_id, wait_seconds=wait_seconds))
    _say(delayed, record_id, outcome, json_wanted=json_wanted)


@click.command()
@click.argument("topic")
@click.argument("record_id", metavar="DT-ID")
@click.option(
    "--deliver-at",
    "deliver_at_ms",
    type=Moment(ahead=True),
    required=True,
    help="The new due time, such as 2026-11-25T04:00:00Z, or the time until then, such as 2h or 0s.",
)
@_WAIT
@JSON
@click.pass_obj
@one_line
def reschedule(
    properties: dict[str, Any], topic: str, record_id: str, deliver_at_ms: int, wait_seconds: float, json_wanted: bool
) -> None:
    """Give the records of TOPIC with this dt-id another due time. Needs spec.control and spec.ladder.

    `cancel --withdraw` withdraws the request. The exit code is 1 if it is known that a record does not come out at that time.
    """
    with DelayedTopic.connect(reachable(properties), topic) as delayed:
        outcome = with_usage_errors(lambda: delayed.reschedule(record_id, deliver_at_ms, wait_seconds=wait_seconds))
    _say(delayed, record_id, outcome, json_wanted=json_wanted)


def _say(delayed: DelayedTopic, record_id: str, outcome: ChangeOutcome, *, json_wanted: bool) -> None:
    if json_wanted:
        click.echo(change_as_json(delayed.names, record_id, outcome))
    line = change_line(delayed.names, record_id, outcome)
    if outcome in NOT_CHANGED:
        raise click.ClickException(line)
    if not json_wanted:
        click.echo(line)
