"""Draws how late records came out around each event."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from delayed_topics_bench.rebalance_report import Timelines

__all__ = ["draw_timelines"]

LINES = {
    "moved": ("#4292c6", 2.0, "partitions that moved"),
    "others": ("#d94801", 0.8, "partitions that kept their worker"),
}
"""Colour, width and label. The widths differ, so that both lines can be seen where they coincide."""


def draw_timelines(picture: Picture, shown: Timelines) -> None:
    """Draws events from top to bottom and setups from left to right, with a line for each run. Panels of one event share the scale."""
    setups = list(dict.fromkeys(setup for by_setup in shown.events.values() for setup in by_setup))
    picture.set_size_inches(2 + 2.1 * len(setups), 1.2 + 1.6 * len(shown.events))
    grid = picture.subplots(len(shown.events), len(setups), sharex="row", sharey=True, squeeze=False)
    for row, (event, by_setup) in zip(grid, shown.events.items(), strict=True):
        row[0].set_ylabel(event, fontsize=11)
        for axes, setup in zip(row, setups, strict=True):
            _panel(axes, by_setup.get(setup, ()))
    for axes, setup in zip(grid[0], setups, strict=True):
        axes.set_title(setup, fontsize=9)
    picture.suptitle(shown.title)
    grid[0][0].set_ylim(bottom=1)
    grid[-1][len(setups) // 2].set_xlabel("seconds from the event until a record was sent", fontsize=9)
    picture.supylabel("ms, the latest of the records that were sent in the same 100 ms", fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, frameon=False, ncols=2, loc="outside lower center", fontsize=9)


def _panel(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.axvline(0, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.tick_params(labelsize=8)
    if not runs:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", fontsize=8)
    for name, (color, width, label) in LINES.items():
        for n, run in enumerate(runs):
            at = [(run["begin_ms"] + run["bin_ms"] * number) / 1000 for number in range(len(run[name]))]
            late = [nan if ms is None else max(ms, 1) for ms in run[name]]
            axes.plot(at, late, color=color, linewidth=width, label="_nolegend_" if n else label)
