"""Shows the figures of the operator as tables."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delayed_topics_bench.grid import Grid, count, hundredth, percent, tenth
from delayed_topics_bench.results import Figure

__all__ = ["OPERATOR_GRIDS"]

Part = Mapping[str, Any]
PROCESSES = {
    "operator": "operator",
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "broker": "broker",
    "benchmark": "benchmark",
}


def _ready(part: Part) -> Grid:
    rows = [
        [
            f"{int(resources):,}",
            tenth(figures["seconds"]),
            *(tenth(figures["cpu_seconds"].get(name)) for name in PROCESSES),
            count(figures["peak_mib"]),
            *_calls(figures["calls_per_resource"]),
        ]
        for resources, figures in part.items()
    ]
    return Grid(
        title="DelayedTopics that are made at once, until all are Ready",
        columns=[
            "resources",
            "seconds",
            *(f"CPU s, {name}" for name in PROCESSES.values()),
            "operator's peak, MiB",
            "API calls each",
            "Kafka calls each",
        ],
        rows=rows,
    )


def _idle(part: Part) -> Grid:
    rows = [
        [
            f"{int(resources):,}",
            count(figures["seconds"]),
            count(figures["writes"]),
            percent(figures["operator_cpu_share"]),
            count(figures["peak_mib"]),
            *_calls(figures["calls_per_second"]),
        ]
        for resources, figures in part.items()
    ]
    return Grid(
        title="Idle: nothing changes",
        columns=[
            "resources",
            "seconds",
            "API writes",
            "operator's share of a core",
            "operator's peak, MiB",
            "API calls a second",
            "Kafka calls a second",
        ],
        rows=rows,
    )


def _edits(part: Part) -> Grid:
    rows = [
        [
            key,
            tenth(figures["edits_per_s"]),
            count(figures["edits"]),
            hundredth(figures["p50_seconds"]),
            hundredth(figures["p99_seconds"]),
            tenth(figures["converged_seconds"]),
            percent(figures["operator_cpu_share"]),
            count(figures["peak_mib"]),
            *_calls(figures["calls_per_edit"]),
        ]
        for key, figures in part.items()
    ]
    return Grid(
        title="Edits at a steady rate, until all are followed",
        columns=[
            "resources, rate",
            "edits/s",
            "edits",
            "followed after, s, p50",
            "p99",
            "all, s after the last edit",
            "operator's share of a core",
            "operator's peak, MiB",
            "API calls each",
            "Kafka calls each",
        ],
        rows=rows,
    )


def _calls(calls: Mapping[str, Mapping[str, Figure]]) -> Iterator[str]:
    for kind in ("kube", "kafka"):
        yield hundredth(calls[kind]["all"])


OPERATOR_GRIDS: Mapping[str, Callable[[Part], Grid]] = {"ready": _ready, "idle": _idle, "edits": _edits}
