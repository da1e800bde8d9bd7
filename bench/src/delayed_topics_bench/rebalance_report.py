"""The figures of rebalances as a table."""

from collections.abc import Callable, Mapping
from typing import Any

from delayed_topics_bench.grid import Grid, count, tenth
from delayed_topics_bench.results import Figure

__all__ = ["rebalances"]

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
"""Of a field of `Interruption`."""


def rebalances(part: Part) -> Grid:
    """What was not measured has no column."""
    columns = {name: column for name, column in COLUMNS.items() if any(name in figures for figures in part.values())}
    return Grid(
        title="Rebalances of busy groups",
        columns=["", *(title for title, _ in columns.values())],
        rows=[
            [key, *(said(figures.get(name)) for name, (_, said) in columns.items())] for key, figures in part.items()
        ],
    )
