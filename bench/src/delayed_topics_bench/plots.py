"""A picture of each part of relay.json, as PNG files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from delayed_topics_bench.cpu import SECTIONS

__all__ = ["draw"]

Body = Mapping[str, Any]

SHARES = {"p50": "p50", "p99": "p99", "p999": "p99.9", "max": "max"}
SHADES = ("#9ecae1", "#4292c6", "#08519c", "#08306b")
CEILING = "#d94801"


def draw(body: Body, directory: Path) -> list[Path]:
    """Returns the files; a part that was never measured has none."""
    files: list[Path] = []
    directory.mkdir(parents=True, exist_ok=True)
    for part, plot in _PLOTS.items():
        if not body.get(part):
            continue
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        plot(axes, body[part])
        files.append(directory / f"{part}.png")
        # without the version that it would write into the file: the same figures are the same bytes
        figure.savefig(files[-1], dpi=110, metadata={"Software": None})
    return files


def _speed(axes: Axes, part: Body) -> None:
    workers = sorted({n for figures in part.values() for n in figures["by_hop"]}, key=int)
    groups = [(size, way) for size in part for way in ("direct", "by hop")]
    for n, count in enumerate(workers):
        values = [_of_way(part[size], way, count) for size, way in groups]
        places = [g + (n - (len(workers) - 1) / 2) * 0.25 for g in range(len(groups))]
        bars = axes.bar(places, values, 0.24, color=SHADES[n % len(SHADES)], label=f"{count} worker processes")
        axes.bar_label(bars, [f"{value / 1000:,.0f}k" for value in values], fontsize=8)
    for g, (size, way) in enumerate(groups):
        top = part[size]["ceiling"] / (1 if way == "direct" else 2)
        label = "ceiling: Kafka's own tools" if g == 0 else "_nolegend_"
        axes.hlines(top, g - 0.42, g + 0.42, color=CEILING, linestyle="--", label=label)
    names = {"direct": "front → ready", "by hop": "front → delays → ready"}
    axes.set_xticks(range(len(groups)), [f"{size} B\n{names[way]}" for size, way in groups])
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(title="Drain of a backlog that is due", ylabel="records a second")
    axes.legend(frameon=False)


def _of_way(figures: Body, way: str, workers: str) -> float:
    found = figures.get(workers, 0) if way == "direct" else figures["by_hop"].get(workers, {}).get("records_per_s", 0)
    return float(found)


def _lateness(axes: Axes, part: Body) -> None:
    _percentile_bars(axes, {f"{int(rate):,}/s": figures for rate, figures in part.items()})
    axes.set(title="Lateness: from the due time to the receipt by a consumer", ylabel="ms")


def _peers(axes: Axes, part: Body) -> None:
    rows = {
        f"{name.replace(', ', chr(10))}\n{int(rate):,}/s": figures
        for name, by_rate in part.items()
        if "not_to_be_had" not in by_rate
        for rate, figures in by_rate.items()
    }
    _percentile_bars(axes, rows)
    axes.tick_params(axis="x", labelsize=6.5)
    axes.set(title="Beside what else there is: from sending + 1 s to receipt", ylabel="ms")


def _percentile_bars(axes: Axes, rows: Mapping[str, Body]) -> None:
    for n, (share, label) in enumerate(SHARES.items()):
        places = [row + (n - 1.5) * 0.2 for row in range(len(rows))]
        values = [figures.get(share, 0) for figures in rows.values()]
        bars = axes.bar(places, values, 0.19, color=SHADES[n], label=label)
        axes.bar_label(bars, [f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in values], fontsize=7)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(rows)), list(rows))
    axes.legend(frameon=False, ncols=4)


def _burst(axes: Axes, part: Body) -> None:
    at_ms, counts = zip(*part["timeline"], strict=True)
    axes.plot([ms / 1000 for ms in at_ms], counts, color=SHADES[2], label="appended to the ready topic")
    top_seconds = part["records"] / part["top_per_s"]
    axes.plot([0, top_seconds], [0, part["records"]], color=CEILING, linestyle="--", label="at top speed")
    axes.set(
        title=f"{part['records']:,} records due in the same millisecond",
        xlabel="seconds after the due time",
        ylabel="records",
    )
    axes.legend(frameon=False)


def _memory(axes: Axes, part: Body) -> None:
    values = [figures["bytes_per_record"] for figures in part.values()]
    bars = axes.bar(range(len(values)), values, 0.5, color=SHADES[1])
    axes.bar_label(bars, [f"{value:,}" for value in values])
    axes.set_xticks(range(len(values)), [f"{size} B value, 3 headers" for size in part])
    axes.set(title="Resident memory of a worker for each record that waits", ylabel="bytes")


def _cpu(axes: Axes, part: Body) -> None:
    colours = mpl.colormaps["Blues"]
    left = [0.0] * len(part)
    for n, section in enumerate(SECTIONS):
        values = [figures[section] for figures in part.values()]
        colour = colours(0.2 + 0.5 * n / len(SECTIONS))
        bars = axes.barh(range(len(part)), values, 0.6, left=left, color=colour, label=section)
        axes.bar_label(bars, [f"{v:.1f}" if v >= 0.4 else "" for v in values], label_type="center", fontsize=8)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(part)), list(part))
    axes.invert_yaxis()
    axes.set(title="CPU of a worker", xlabel="µs per record")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.15))


_PLOTS: Mapping[str, Callable[[Axes, Body], None]] = {
    "records_per_s": _speed,
    "lateness_ms": _lateness,
    "burst": _burst,
    "memory": _memory,
    "cpu_us_per_record": _cpu,
    "peers": _peers,
}
