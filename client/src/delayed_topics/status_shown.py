"""Formats the status of a delayed topic, as a table for people and as JSON for programs."""

import json
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from delayed_topics_core.layout import format_ranges
from delayed_topics_kafka.due import DUE_WITHIN_SECONDS
from rich.console import Console
from rich.table import Table

from delayed_topics.status import Backlog, TopicStatus

COLUMNS: Final = ("Due", "1 min", "10 min", "1 h", "1 day")
"""The columns for DUE_WITHIN_SECONDS. Each does not count the records of the columns before it."""


def print_status(found: TopicStatus) -> None:
    layout = found.layout
    console = Console()
    console.print(
        f"[bold]{layout.topic}[/bold]  generation {layout.layout.generation}, retry cap {layout.retry_cap}, "
        f"{'paused' if layout.paused else 'releasing'}, of {layout.owner.namespace}/{layout.owner.name}"
    )
    table = Table()
    for column in ("Delay", "Role", "Partitions"):
        table.add_column(column)
    for column in ("Waiting", *COLUMNS, "Later"):
        table.add_column(column, justify="right")
    table.add_row("", "front", format_ranges(range(layout.front_partitions)), *_numbers(found.front))
    for kind in found.kinds:
        table.add_row(f"{kind.delay_seconds} s", kind.role, kind.partitions, *_numbers(kind.backlog))
    console.print(table)
    if layout.layout.ladder_seconds:
        console.print("Records with their own due time are counted by the time at which they hop or come out.")
    console.print(f"Workers: {found.workers}")
    ready, dead_letters = ("-" if count is None else count for count in (found.ready, found.dead_letters))
    console.print(f"Records in the ready topic: {ready}, dead letters: {dead_letters}")
    for note in found.notes:
        console.print(str(note), soft_wrap=True, markup=False)


def status_as_json(found: TopicStatus) -> str:
    """Returns one JSON object. Unknown counts are null, and the notes say why."""
    layout = found.layout
    body = {
        "topic": layout.topic,
        "generation": layout.layout.generation,
        "paused": layout.paused,
        "front": _counts(found.front),
        "delays": [
            {
                "delay_seconds": kind.delay_seconds,
                "role": kind.role,
                "partitions": kind.partitions,
                **_counts(kind.backlog),
            }
            for kind in found.kinds
        ],
        "workers": found.workers,
        "ready": found.ready,
        "dead_letters": found.dead_letters,
        "notes": [asdict(note) for note in found.notes],
    }
    return json.dumps(body, indent=2)


def _numbers(backlog: Backlog | None) -> list[str]:
    if backlog is None:
        return ["-"] * (len(COLUMNS) + 2)
    within = [0, *backlog.due_within, backlog.waiting]
    each = [after - before for before, after in pairwise(within)]
    return [str(number) for number in (backlog.waiting, *each)]


def _counts(backlog: Backlog | None) -> dict[str, Any]:
    waiting = None if backlog is None else backlog.waiting
    due_within = None if backlog is None else dict(zip(DUE_WITHIN_SECONDS, backlog.due_within, strict=True))
    return {"waiting": waiting, "due_within_seconds": due_within}
