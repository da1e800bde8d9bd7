"""Draws the parts of a results file as PNG files: medians, with lines from the lowest to the highest run.

Rebalances also have pictures of how late records came out around each event.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter

from delayed_topics_bench.cpu import SECTIONS
from delayed_topics_bench.operator_plots import OPERATOR_PLOTS
from delayed_topics_bench.profile import AREAS
from delayed_topics_bench.rebalance_plots import draw_timelines
from delayed_topics_bench.rebalance_report import timelines_of
from delayed_topics_bench.report import PERCENTILES, Part, parts_of
from delayed_topics_bench.results import NOT_TO_BE_HAD, Figure

__all__ = ["draw"]

SHADES = ("#9ecae1", "#4292c6", "#08519c", "#08306b")
CEILING = "#d94801"
NOTHING = Figure(0, 0, 0)
SPREAD = {"ecolor": "#555555", "elinewidth": 1}


def draw(body: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draws all pictures, and returns their files. A part that was never measured has none."""
    pictures: dict[str, Picture] = {}
    for part, figures in parts_of(body).items():
        pictures[part] = Picture(figsize=(8, 4), layout="constrained")
        axes = pictures[part].subplots()
        axes.spines[["top", "right"]].set_visible(False)
        _PLOTS[part](axes, figures)
    for shown in timelines_of(body):
        pictures[shown.name] = Picture(layout="constrained")
        draw_timelines(pictures[shown.name], shown)
    directory.mkdir(parents=True, exist_ok=True)
    files = {name: directory / f"{name}.png" for name in pictures}
    for name, picture in pictures.items():
        # without Matplotlib's version in the file, the same figures give the same bytes
        picture.savefig(files[name], dpi=110, metadata={"Software": None})
    return list(files.values())


def _bars(axes: Axes, places: Sequence[float], figures: Sequence[Figure], width: float, **style: Any) -> BarContainer:
    below = [f.median - f.lowest for f in figures]
    above = [f.highest - f.median for f in figures]
    medians = [f.median for f in figures]
    return axes.bar(places, medians, width, yerr=[below, above], error_kw=SPREAD, **style)


def _drain(axes: Axes, part: Part) -> None:
    groups = [(size, way) for size in part for way in ("direct", "by_hop")]
    workers = sorted({n for size, way in groups for n in part[size][way]}, key=int)
    for n, count in enumerate(workers):
        values = [part[size][way].get(count, {}).get("records_per_s", NOTHING) for size, way in groups]
        places = [g + (n - (len(workers) - 1) / 2) * 0.25 for g in range(len(groups))]
        bars = _bars(axes, places, values, 0.24, color=SHADES[n % len(SHADES)], label=f"{count} worker processes")
        axes.bar_label(bars, [f"{value.median / 1000:,.0f}k" for value in values], fontsize=8)
    for g, (size, way) in enumerate(groups):
        top = part[size]["ceiling"]["relay"].median / (1 if way == "direct" else 2)
        label = "ceiling: Kafka's own tools" if g == 0 else "_nolegend_"
        axes.hlines(top, g - 0.42, g + 0.42, color=CEILING, linestyle="--", label=label)
    names = {"direct": "front → ready", "by_hop": "front → delays → ready"}
    axes.set_xticks(range(len(groups)), [f"{size} B\n{names[way]}" for size, way in groups])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(title="Drain of a backlog that is due", ylabel="records a second")
    axes.legend(frameon=False)


def _lateness(axes: Axes, part: Part, *, brokers: str = "") -> None:
    rows: dict[str, Part] = {}
    for rate, figures in part.items():
        rows[f"{int(rate):,}/s"] = figures
        rows[f"floor\n{int(rate):,}/s"] = figures["floor"]
    _percentile_bars(axes, rows)
    axes.set(title=f"Lateness: from the due time to the receipt by a consumer{brokers}", ylabel="ms")


def _peers(axes: Axes, part: Part) -> None:
    rows = {
        f"{name.replace(', ', chr(10))}\n{int(rate):,}/s": figures
        for name, by_rate in part.items()
        if NOT_TO_BE_HAD not in by_rate
        for rate, figures in by_rate.items()
    }
    _percentile_bars(axes, rows)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.set(title="Beside what else there is: from sending + 1 s to receipt", ylabel="ms")


def _recovery(axes: Axes, part: Part) -> None:
    rows = {name: figures for name, figures in part.items() if NOT_TO_BE_HAD not in figures}
    values = [figures["serving_s"] for figures in rows.values()]
    bars = _bars(axes, range(len(rows)), values, 0.5, color=SHADES[1])
    axes.bar_label(bars, [f"{value.median:,.1f} s" for value in values])
    axes.set_xticks(range(len(rows)), [name.replace(", ", "\n") for name in rows])
    axes.set(title="From the start after a crash until the system serves again", ylabel="seconds")


def _percentile_bars(axes: Axes, rows: Mapping[str, Part]) -> None:
    for n, (share, label) in enumerate(PERCENTILES.items()):
        places = [row + (n - 1.5) * 0.2 for row in range(len(rows))]
        values = [figures.get(share, NOTHING) for figures in rows.values()]
        bars = _bars(axes, places, values, 0.19, color=SHADES[n], label=label)
        labels = [f"{v.median:,.0f}" if v.median >= 10 else f"{v.median:.1f}" for v in values]
        axes.bar_label(bars, labels, fontsize=7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(rows)), list(rows))
    axes.legend(frameon=False, ncols=4)


def _burst(axes: Axes, part: Part) -> None:
    for records, figures in part.items():
        at_ms, counts = zip(*figures["timeline"], strict=True)
        axes.plot([ms / 1000 for ms in at_ms], counts, color=SHADES[2], label="appended to the ready topic")
        top_seconds = int(records) / figures["top_per_s"].median
        axes.plot([0, top_seconds], [0, int(records)], color=CEILING, linestyle="--", label="at top speed")
        axes.set(title=f"{int(records):,} records due in the same millisecond")
    axes.set(xlabel="seconds after the due time", ylabel="records")
    axes.legend(frameon=False)


def _memory(axes: Axes, part: Part) -> None:
    values = [figures["bytes_per_record"] for figures in part.values()]
    bars = _bars(axes, range(len(values)), values, 0.5, color=SHADES[1])
    axes.bar_label(bars, [f"{value.median:,.0f}" for value in values])
    axes.set_xticks(range(len(values)), [f"{size} B value, 3 headers" for size in part])
    axes.set(title="Resident memory of a worker for each record that waits", ylabel="bytes")


def _cpu(axes: Axes, part: Part) -> None:
    _stacked(axes, part, SECTIONS)
    axes.set(title="CPU of a worker, by thread")


def _profile(axes: Axes, part: Part) -> None:
    _stacked(axes, part, AREAS)
    axes.set(title="CPU of a worker, by what it is for")


def _stacked(axes: Axes, part: Part, names: Sequence[str]) -> None:
    """Draws a bar for each row, in µs per record, divided by name."""
    colours = mpl.colormaps["Blues"]
    left = [0.0] * len(part)
    for n, name in enumerate(names):
        values = [figures[name].median for figures in part.values()]
        colour = colours(0.2 + 0.6 * n / len(names))
        bars = axes.barh(range(len(part)), values, 0.6, left=left, color=colour, label=name)
        axes.bar_label(bars, [f"{v:.1f}" if v >= 0.2 else "" for v in values], label_type="center", fontsize=8)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(part)), list(part))
    axes.invert_yaxis()
    axes.set(xlabel="µs per record")
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=8)


def _rebalance(axes: Axes, part: Part) -> None:
    names = list(part)
    axes.get_figure().set_size_inches(9, 1.5 + 0.22 * len(names))  # type: ignore[union-attr]
    found = [figures["convergence_s"] for figures in part.values()]
    spread = [[f.median - f.lowest for f in found], [f.highest - f.median for f in found]]
    colors = [SHADES[2] if "worker" in name else SHADES[0] for name in names]
    axes.barh(names, [f.median for f in found], 0.7, xerr=spread, error_kw=SPREAD, color=colors)
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set(title="Rebalances of busy groups: until every partition gives records again", xlabel="seconds")


def _shared(axes: Axes, part: Part) -> None:
    names = [f"{int(topics):,}" for topics in part]
    cores = [figures["cores"] for figures in part.values()]
    spread = [[f.median - f.lowest for f in cores], [f.highest - f.median for f in cores]]
    axes.bar(names, [f.median for f in cores], 0.6, yerr=spread, error_kw=SPREAD, color=SHADES[2])
    axes.set(title="Workers that share topics with nothing to do", xlabel="topics", ylabel="cores, each worker")


def _neighbours(axes: Axes, part: Part) -> None:
    _percentile_bars(axes, {key.replace(", ", "\n").replace(" on ", "\non "): figures for key, figures in part.items()})
    axes.set(title="A topic on a shared worker, with and without a noisy neighbour", ylabel="ms")


_PLOTS: Mapping[str, Callable[[Axes, Part], None]] = {
    "drain": _drain,
    "lateness": _lateness,
    "replicated": partial(_lateness, brokers=", three brokers"),
    "burst": _burst,
    "memory": _memory,
    "cpu": _cpu,
    "profile": _profile,
    "peers": _peers,
    "recovery": _recovery,
    "rebalance": _rebalance,
    "shared": _shared,
    "neighbours": _neighbours,
    **OPERATOR_PLOTS,
}
