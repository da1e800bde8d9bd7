"""The figures of relay.json as tables: for the terminal, and for docs/performance.md."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.paths import REPOSITORY
from rich.console import Console
from rich.table import Table

from delayed_topics_bench.cpu import SECTIONS
from delayed_topics_bench.others import MOST_SHARE

__all__ = ["BEGIN", "DOCUMENT", "END", "Grid", "grids", "markdown", "show", "write_document"]

Body = Mapping[str, Any]

DOCUMENT = REPOSITORY / "docs" / "performance.md"
BEGIN = "<!-- figures: written by make bench -->"
END = "<!-- end of figures -->"
PICTURES = "../bench/results/relay"
WIDTH = 130


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table as text: the first column is of names, all others are of figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def grids(body: Body) -> Iterator[tuple[str, Grid]]:
    """Of what was measured so far, each with the name of its part."""
    for part, build in _BUILDERS.items():
        if body.get(part):
            yield part, build(body[part])


def show(body: Body, console: Console | None = None) -> None:
    """Print them."""
    console = console or Console(width=WIDTH)
    for _, grid in grids(body):
        table = Table(title=grid.title, title_justify="left")
        for n, column in enumerate(grid.columns):
            table.add_column(column, justify="right" if n else "left")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    if "runs" in body:
        console.print(f"early {body['early']}, lost {body['lost']}, doubled {body['doubled']}")
        if said := _disturbed(body):
            console.print(said)


def markdown(body: Body) -> str:
    """The same for a document."""
    lines: list[str] = []
    for part, grid in grids(body):
        lines += [f"**{grid.title}**", "", _row(grid.columns), _row(["---", *["---:"] * (len(grid.columns) - 1)])]
        lines += [*map(_row, grid.rows), "", f"![{grid.title}]({PICTURES}/{part}.png)", ""]
    machine = body["machine"]
    records = sum(run["checked"]["records"] for run in body["runs"].values() if "checked" in run)
    lines += [
        f"Of {records:,} records that the checker followed: {body['early']} early, {body['lost']} lost, "
        f"{body['doubled']} doubled. Measured on {machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, "
        "broker, workers, load and receivers all on it.",
    ]
    if said := _disturbed(body):
        lines += ["", said]
    return "\n".join(lines) + "\n"


def write_document(body: Body, document: Path = DOCUMENT) -> None:
    """Put the tables between the document's two marks."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{markdown(body)}{END}{after}")


def _disturbed(body: Body) -> str:
    """Nothing if the machine had nothing else to do."""
    found = {name: run["others"] for name, run in body["runs"].items() if run["others"] > MOST_SHARE}
    named = ", ".join(f"{name} ({share:.0%})" for name, share in found.items())
    return (
        f"Disturbed by other programs, with their share of the machine: {named}. Measure these again." if found else ""
    )


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _tenth(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _share(value: float, whole: float) -> str:
    return f"{value:,.0f} ({value / whole:.0%})"


def _speed(part: Body) -> Grid:
    rows: list[list[str]] = []
    workers = sorted({int(n) for figures in part.values() for n in figures["by_hop"]})
    for size, figures in part.items():
        top = figures["ceiling"]
        direct = [_share(figures[str(n)], top) if str(n) in figures else "-" for n in workers]
        rows.append([f"{size} B, front → ready", _count(top), *direct])
        hops = figures["by_hop"]
        hopped = [_count(hops[str(n)]["records_per_s"]) if str(n) in hops else "-" for n in workers]
        rows.append([f"{size} B, front → delays → ready", _count(top / 2), *hopped])
    return Grid(
        title="Drain of a backlog that is due, records/s by worker processes (share of the ceiling)",
        columns=["", "ceiling", *map(str, workers)],
        rows=rows,
    )


def _lateness(part: Body) -> Grid:
    rows: list[list[str]] = []
    for rate, figures in part.items():
        rows.append([f"{int(rate):,}/s", *_percentiles(figures), _ack(figures)])
        rows += [[f"… delay {delay}", *_percentiles(by), ""] for delay, by in figures["by_delay"].items()]
    return Grid(
        title="Lateness from the due time to the receipt by a consumer, ms",
        columns=["", "p50", "p99", "p99.9", "max", "broker's own ack p99.9"],
        rows=rows,
    )


def _percentiles(figures: Body) -> list[str]:
    return [_tenth(figures.get(name)) for name in ("p50", "p99", "p999", "max")]


def _ack(figures: Body) -> str:
    said = [] if figures["valid"] else ["above 15: not a valid run"]
    said += [f"{figures['unfinished']:,} unfinished"] if figures["unfinished"] else []
    return _tenth(figures["ack_p999"]) + (f" ({', '.join(said)})" if said else "")


def _burst(part: Body) -> Grid:
    row = [
        _count(part["records"]),
        str(part["lanes"]),
        str(part["workers"]),
        _count(part["records_per_s"]),
        f"{part['share_of_top']:.0%}",
        _count(part["first_ms"]),
        str(part["disordered"]),
    ]
    return Grid(
        title="A burst: all records due in the same millisecond",
        columns=["records", "lanes", "workers", "records/s", "of top speed", "first one, ms after", "out of order"],
        rows=[row],
    )


def _memory(part: Body) -> Grid:
    rows = [
        [
            f"{size} B",
            _count(figures["bytes_per_record"]),
            _count(figures["idle_mib"]),
            f"{_count(figures['full_window_mib'])} ({_count(figures['full_window_held'])} held)",
        ]
        for size, figures in part.items()
    ]
    return Grid(
        title="Resident memory of a worker",
        columns=["value", "bytes per held record", "idle, MiB", "with a full window, MiB"],
        rows=rows,
    )


def _cpu(part: Body) -> Grid:
    rows = [
        [way, *(_tenth(figures[s]) for s in SECTIONS), _tenth(sum(figures.values()))] for way, figures in part.items()
    ]
    return Grid(title="CPU of a worker, µs per record", columns=["", *SECTIONS, "in all"], rows=rows)


def _peers(part: Body) -> Grid:
    rows: list[list[str]] = []
    for name, figures in part.items():
        if "not_to_be_had" in figures:
            rows.append([f"{name}: not to be had: {figures['not_to_be_had']}", *[""] * 8])
            continue
        for rate, by in figures.items():
            missing = next(value for key, value in by.items() if key.startswith("not_received"))
            counts = [_count(by["early"]), _count(by.get("rejected", 0)), _count(missing), _count(by["doubled"])]
            rows.append([f"{name}, {int(rate):,}/s", *_percentiles(by), *counts])
    return Grid(
        title="Beside what else there is: from sending + 1 s to receipt, ms",
        columns=["", "p50", "p99", "p99.9", "max", "early", "rejected", "not received in 60 s", "doubled"],
        rows=rows,
    )


_BUILDERS: Mapping[str, Callable[[Body], Grid]] = {
    "records_per_s": _speed,
    "lateness_ms": _lateness,
    "burst": _burst,
    "memory": _memory,
    "cpu_us_per_record": _cpu,
    "peers": _peers,
}
