"""The table of the figures of rebalances, and the data for their pictures over time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delayed_topics_bench.grid import Grid, count, tenth
from delayed_topics_bench.results import Figure

__all__ = ["Timelines", "rebalances", "timelines_of"]

Part = Mapping[str, Any]

COLUMNS: Mapping[str, tuple[str, Callable[[Figure | None], str]]] = {
    "convergence_s": ("over after, s", tenth),
    "process_up_s": ("process up after, s", tenth),
    "served_after_up_s": ("its partitions after that, s", tenth),
    "moved": ("partitions moved", count),
    "moved_pause_ms": ("their pause, ms", count),
    "moved_pause_most_ms": ("longest", count),
    "undisturbed_pause_p99_ms": ("others' p99, ms", count),
    "floor_ms": ("nothing happening, ms", count),
    "late": ("late records", count),
}
"""Field of `Interruption` → title and format of its column."""


def rebalances(part: Part) -> Grid:
    """Returns the table. A field that was not measured has no column."""
    columns = {name: column for name, column in COLUMNS.items() if any(name in figures for figures in part.values())}
    return Grid(
        title="Rebalances of busy groups",
        columns=["", *(title for title, _ in columns.values())],
        rows=[
            [key, *(formatted(figures.get(name)) for name, (_, formatted) in columns.items())]
            for key, figures in part.items()
        ],
    )


@dataclass(frozen=True, kw_only=True)
class Timelines:
    """A picture of groups of one size. `name`: the file name without suffix. `events`: event → setup → the `Timeline` of each run."""

    name: str
    title: str
    events: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]


def timelines_of(body: Mapping[str, Any]) -> list[Timelines]:
    """Returns the pictures for each size of group in a results file. Older runs have no timelines."""
    sizes: dict[str, dict[str, dict[str, Sequence[Mapping[str, Any]]]]] = {}
    for key, runs in body["parts"].get("rebalance", {}).items():
        event, _, rest = key.partition(", ")
        size, _, setup = rest.partition(": ")
        if kept := [run["figures"]["timeline"] for run in runs if "timeline" in run["figures"]]:
            sizes.setdefault(size, {}).setdefault(event, {})[setup] = kept
    return [
        Timelines(
            name=f"rebalance, {size}".replace(", ", "-").replace(" ", "-"),
            title=f"How late records came out around each event: {size}",
            events=events,
        )
        for size, events in sizes.items()
    ]
