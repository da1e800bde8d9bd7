"""Options, checks and helpers that the commands have in common."""

import re
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click
from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_kafka.connection import Connection
from rich.console import Console
from rich.progress import Progress

from delayed_topics.moments import parse_moment
from delayed_topics.topic import DelayedTopic

P = ParamSpec("P")
R = TypeVar("R")

_ADDRESS: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""The two names of librdkafka for the bootstrap servers."""
_ENTRY: Final = re.compile(r"(?P<name>[\w.]+)\s*=\s*(?P<value>.*)")
JSON = click.option("--json", "json_wanted", is_flag=True, help="Print JSON, for programs.")


def one_line(command: Callable[P, R]) -> Callable[P, R]:
    """Decorates a command so that it shows an error of this project as one line instead of a traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except DelayedTopicsError as e:
            raise click.ClickException(str(e)) from e

    return run


def with_usage_errors(ask: Callable[[], R]) -> R:
    """Returns what `ask` returns. Raises click.UsageError if `ask` raises ValueError for an argument."""
    try:
        return ask()
    except ValueError as e:
        raise click.UsageError(str(e)) from e


class Moment(click.ParamType):  # type: ignore[type-arg]  # before click 8.4, ParamType takes no type argument
    name = "time"

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_moment(value, now_ms=int(time.time() * 1000), ahead=self._ahead)
        except ValueError as e:
            self.fail(str(e), param, ctx)


def has_address(properties: dict[str, Any]) -> bool:
    return not _ADDRESS.isdisjoint(properties)


def at_address(properties: dict[str, Any], bootstrap: str) -> dict[str, Any]:
    others = {name: value for name, value in properties.items() if name not in _ADDRESS}
    return {**others, "bootstrap.servers": bootstrap}


def reachable(properties: dict[str, Any]) -> dict[str, Any]:
    if not has_address(properties):
        raise click.UsageError(
            "the address of Kafka is missing. Set --bootstrap HOST:PORT, $KAFKA_BOOTSTRAP, or bootstrap.servers in --config"
        )
    return properties


def served_layout(connection: Connection, topic: str) -> LayoutRecord:
    """Returns the layout of a topic that is served. Raises what `DelayedTopic.connect` raises."""
    with DelayedTopic.connect(connection, topic) as delayed:
        return delayed.layout


def reading_bar() -> Progress:
    """Returns a progress bar on the standard error. It disappears when the command ends, and is not shown in a pipe."""
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def read_properties(file: Path) -> dict[str, Any]:
    """Reads a properties file. Raises click exceptions, which name a line only by its number, because it may be part of a secret."""
    properties = {}
    for number, line in enumerate(map(str.strip, decoded(file.read_bytes(), file).splitlines()), 1):
        if line and not line.startswith("#"):
            if (entry := _ENTRY.fullmatch(line)) is None:
                raise click.UsageError(f"line {number} of {file} must be name=value")
            properties[entry["name"]] = entry["value"]
    return properties


def decoded(content: bytes, file: Path | str) -> str:
    """Decodes UTF-8. Raises click.ClickException, whose message does not quote the content."""
    try:
        return content.decode()
    except UnicodeDecodeError as e:
        raise click.ClickException(f"{file} is not UTF-8: {e.reason} at position {e.start}") from e
