"""Draws the figures of the operator."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes

__all__ = ["OPERATOR_PLOTS"]

Part = Mapping[str, Any]
LINE, AIM = "#08519c", "#d94801"
AIM_CPU_SECONDS, AIM_MIB = 60, 300
"""The aims for 1,000 resources."""


def _ready(axes: Axes, part: Part) -> None:
    for resources, figures in part.items():
        at, counts = zip(*figures["timeline"], strict=True)
        spent = figures["cpu_seconds"]["operator"].median
        label = f"{int(resources):,} resources: {spent:,.0f} s of the operator's processor time (aim for 1,000: {AIM_CPU_SECONDS} s)"
        axes.plot(at, counts, color=LINE, label=label)
    axes.set(title="DelayedTopics that are Ready", xlabel="seconds after the first was made", ylabel="resources")
    axes.legend(frameon=False)


def _idle(axes: Axes, part: Part) -> None:
    names = [f"{int(resources):,} resources" for resources in part]
    bars = axes.barh(names, [figures["operator_cpu_share"].median * 100 for figures in part.values()], 0.4, color=LINE)
    axes.bar_label(bars, [f"{figures['writes'].median:.0f} API writes" for figures in part.values()], padding=4)
    axes.margins(x=0.3)
    axes.set(title="Idle", xlabel="the operator's share of a core, %")


def _edits(axes: Axes, part: Part) -> None:
    for key, figures in part.items():
        at, mib = zip(*figures["memory"], strict=True)
        axes.plot(at, mib, color=LINE, label=key)
    axes.axhline(AIM_MIB, color=AIM, linestyle="--", label=f"aim: {AIM_MIB} MiB")
    axes.set_ylim(bottom=0)
    axes.set(title="Memory of the operator's processes", xlabel="seconds after its start", ylabel="MiB")
    axes.legend(frameon=False)


OPERATOR_PLOTS: Mapping[str, Callable[[Axes, Part], None]] = {"ready": _ready, "idle": _idle, "edits": _edits}
