"""Shows the figures of a results file as tables, in the terminal and on the pages about performance in docs/."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.generated_section import GeneratedSection, markdown_table
from delayed_topics_devcluster.paths import REPOSITORY
from rich.console import Console
from rich.table import Table

from delayed_topics_bench.cpu import IN_ALL, SECTIONS
from delayed_topics_bench.grid import Grid, count, hundredth, percent, tenth
from delayed_topics_bench.operator_report import OPERATOR_GRIDS
from delayed_topics_bench.profile import AREAS
from delayed_topics_bench.rebalance_report import rebalances, timelines_of
from delayed_topics_bench.results import NOT_RECEIVED, NOT_TO_BE_HAD, PATIENCE_SECONDS, Figure, merged, runs_of

__all__ = ["Grid", "Part", "documents", "grids", "markdown", "parts_of", "section_of", "show", "write_documents"]

Body = Mapping[str, Any]
Part = Mapping[str, Any]
"""The figures of a part by key, merged from all runs."""

DOCS = REPOSITORY / "docs"
STANDARD = "performance.md"
DOCUMENTS = {
    "exactly-once": "performance-exactly-once.md",
    "operator": "performance-operator.md",
    "rebalance": "performance-rebalances.md",
    "shared": "performance-shared-workers.md",
}
"""Results file → its page, if that is not the standard one."""
COMPARED, COMPARISON = ("peers", "recovery"), "performance-comparison.md"
"""These parts of a results file have a page of their own."""
WIDTH = 150
PAGE_WIDTH = 100
"""The width at which `mdformat` wraps pages."""
NOTHING = "No figures are recorded yet."
PERCENTILES = {"p50": "p50", "p99": "p99", "p999": "p99.9", "max": "max"}


def parts_of(body: Body) -> dict[str, Part]:
    """Returns the medians and spreads of all measurements so far, in the order of the tables."""
    return {
        part: {key: merged([run["figures"] for run in runs]) for key, runs in body["parts"][part].items()}
        for part in _BUILDERS
        if body["parts"].get(part)
    }


def grids(body: Body) -> Iterator[tuple[str, Grid]]:
    """Yields the name and the table of each part."""
    for part, merged_figures in parts_of(body).items():
        yield part, _BUILDERS[part](merged_figures)


def show(body: Body, console: Console | None = None) -> None:
    """Prints the tables, and the notes about them."""
    console = console or Console(width=WIDTH)
    for _, grid in grids(body):
        table = Table(title=grid.title, title_justify="left")
        for n, column in enumerate(grid.columns):
            table.add_column(column, justify="right" if n else "left")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    for line in _notes(body):
        console.print(line)


def markdown(body: Body, pictures: str) -> str:
    """Returns tables and notes as Markdown, formatted as `mdformat` does it. `pictures`: the folder of the plots, relative to the page."""
    blocks: list[str] = []
    for part, grid in grids(body):
        blocks += [f"### {grid.title}", markdown_table(grid.columns, grid.rows, texts=grid.columns[:1])]
        blocks += [f"![{grid.title}]({pictures}/{part}.png)"]
    blocks += [f"![{shown.title}]({pictures}/{shown.name}.png)" for shown in timelines_of(body)]
    blocks += [textwrap.fill(note, PAGE_WIDTH, break_long_words=False, break_on_hyphens=False) for note in _notes(body)]
    return "\n\n".join(blocks)


def documents(body: Body, name: str) -> dict[str, str]:
    """Returns the pages that show the results file of this name, each with the text that it shows."""
    parts = body["parts"]
    shown = {DOCUMENTS.get(name, STANDARD): {part: runs for part, runs in parts.items() if part not in COMPARED}}
    if compared := {part: parts[part] for part in COMPARED if part in parts}:
        shown[COMPARISON] = compared
    pictures = f"../bench/results/{name}"
    return {page: markdown({**body, "parts": some}, pictures) or NOTHING for page, some in shown.items()}


def section_of(name: str) -> GeneratedSection:
    """Returns the section of a page that shows the results file of this name."""
    return GeneratedSection(
        begin=f"<!-- figures of {name}.json: written by make bench -->", end=f"<!-- end of {name}.json -->"
    )


def write_documents(body: Body, name: str, docs: Path = DOCS) -> None:
    """Writes the tables into their sections of the pages."""
    for page, text in documents(body, name).items():
        section_of(name).write(docs / page, text)


def _notes(body: Body) -> Iterator[str]:
    runs = [run for _, run in runs_of(body)]
    if not runs:
        return
    machine = body["machine"]
    checked = [run["checked"] for run in runs if "checked" in run]
    if checked:
        yield _followed(checked)
    of_operator = body["parts"].keys() & OPERATOR_GRIDS.keys()
    who = "API server, etcd, broker, operator and load" if of_operator else "broker, workers, load and receivers"
    slowed = [run["slowed"] for run in runs]
    commits, cpus = sorted({run["commit"] for run in runs}), sorted({run["cpu"] for run in runs})
    yield (
        f"Figures are medians of {_few_or_many({len(r) for part in body['parts'].values() for r in part.values()})} runs, "
        "with the lowest and the highest run in brackets. "
        f"The machine has {machine['cores']} cores ({' or '.join(cpus)}) and {machine['memory_gib']} GiB of memory. "
        f"The {who} all run on it. Other programs took at most {max(r['others'] for r in runs):.1%} of the processors. "
        f"The host of the machine slowed the processors for {min(slowed):.0%} to {max(slowed):.0%} of the time. "
        f"The runs were made at {'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}."
    )
    problems = [f"{name} ({run['problem']})" for name, run in runs_of(body) if "problem" in run]
    if problems:
        yield f"These runs are not valid: {', '.join(problems)}."


def _followed(checked: Sequence[Mapping[str, int]]) -> str:
    names = ("records", "early", "lost", "doubled", "disordered", "order_exempt")
    counts = {name: sum(verdict.get(name, 0) for verdict in checked) for name in names}
    return (
        f"The checker followed {counts['records']:,} records. Of these, {counts['early']:,} were early, {counts['lost']:,} lost, "
        f"{counts['doubled']:,} doubled and {counts['disordered']:,} out of order."
        + (f" No order is promised for {counts['order_exempt']:,} of the latter." if counts["order_exempt"] else "")
    )


def _few_or_many(counts: set[int]) -> str:
    return " to ".join(str(n) for n in sorted({min(counts), max(counts)}))


def _drain(part: Part) -> Grid:
    rows: list[list[str]] = []
    for size, figures in part.items():
        ceiling = figures["ceiling"]["relay"]
        for way, name in (("direct", "front → ready"), ("by_hop", "front → delays → ready")):
            for workers, by in figures[way].items():
                top = ceiling if way == "direct" else Figure(*(value / 2 for value in ceiling))
                rows.append([
                    f"{size} B, {name}, {workers} worker{'s' if workers != '1' else ''}",
                    count(by["records_per_s"]),
                    count(top),
                    percent(by["share_of_ceiling"]),
                    tenth(by["cpu_us"]),
                ])  # fmt: skip
    return Grid(
        title="Drain of a backlog that is due",
        columns=["", "records/s", "ceiling", "of the ceiling", "CPU µs per record"],
        rows=rows,
    )


def _lateness(part: Part, *, brokers: str = "") -> Grid:
    rows: list[list[str]] = []
    for rate, figures in part.items():
        named = f"{int(rate):,}/s"
        rows.append([named, *_percentiles(figures), tenth(figures["ack_p999"]), count(figures["unfinished"])])
        rows += [[f"… delay {delay}", *_percentiles(by), "", ""] for delay, by in figures["by_delay"].items()]
        floor = figures["floor"]
        rows.append(["… floor: no worker, no delay", *_percentiles(floor), tenth(floor["ack_p999"]), ""])
    return Grid(
        title=f"Lateness from the due time to the receipt by a consumer{brokers}, ms",
        columns=["", *PERCENTILES.values(), "broker's ack p99.9", "unfinished"],
        rows=rows,
    )


def _percentiles(figures: Part) -> list[str]:
    return [tenth(figures.get(name)) for name in PERCENTILES]


def _burst(part: Part) -> Grid:
    return Grid(
        title="A burst: all records due in the same millisecond",
        columns=["records", "records/s", "of top speed", "first one, ms after", "out of order"],
        rows=[
            [
                f"{int(records):,}",
                count(figures["records_per_s"]),
                percent(figures["share_of_top"]),
                count(figures["first_ms"]),
                count(figures["disordered"]),
            ]
            for records, figures in part.items()
        ],
    )


def _memory(part: Part) -> Grid:
    rows = [
        [
            f"{size} B",
            count(figures["bytes_per_record"]),
            count(figures["beyond_bytes_per_record"]),
            count(figures["idle_mib"]),
            f"{count(figures['full_window_mib'])}, {count(figures['full_window_held'])} held",
        ]
        for size, figures in part.items()
    ]
    return Grid(
        title="Resident memory of a worker",
        columns=["value", "bytes per held record", "beyond its own bytes", "idle, MiB", "with a full window, MiB"],
        rows=rows,
    )


def _cpu(part: Part) -> Grid:
    rows = [[way, *(tenth(figures[name]) for name in (*SECTIONS, IN_ALL))] for way, figures in part.items()]
    return Grid(title="CPU of a worker by thread, µs per record", columns=["", *SECTIONS, IN_ALL], rows=rows)


def _profile(part: Part) -> Grid:
    rows = [[area, *(hundredth(figures[area]) for figures in part.values())] for area in AREAS]
    return Grid(title="CPU of a worker by activity, µs per record", columns=["", *part], rows=rows)


def _peers(part: Part) -> Grid:
    counts = ("early", "rejected", NOT_RECEIVED, "doubled")
    rows: list[list[str]] = []
    for name, figures in part.items():
        if NOT_TO_BE_HAD in figures:
            rows.append([f"{name}: not to be had: {figures[NOT_TO_BE_HAD]}", *[""] * 8])
            continue
        for rate, by in figures.items():
            rows.append([f"{name}, {int(rate):,}/s", *_percentiles(by), *(count(by[counted]) for counted in counts)])
    return Grid(
        title="Lateness of each system from sending + 1 s to the receipt, ms",
        columns=[
            "",
            *PERCENTILES.values(),
            "early",
            "rejected",
            f"not received in {PATIENCE_SECONDS} s",
            "doubled",
        ],
        rows=rows,
    )


def _recovery(part: Part) -> Grid:
    rows: list[list[str]] = []
    for name, figures in part.items():
        if NOT_TO_BE_HAD in figures:
            rows.append([f"{name}: not to be had: {figures[NOT_TO_BE_HAD]}", *[""] * 10])
            continue
        rows.append([
            name,
            count(figures["sent_per_s"]),
            count(figures["disk_bytes"]),
            count(figures["resident_mib"]),
            tenth(figures["serving_s"]),
            count(figures["received_per_s"]),
            count(figures["late"].get("p99")),
            *(count(figures[counted]) for counted in ("rejected", "early", "lost", "doubled")),
        ])  # fmt: skip
    pending = {count(figures["records"]) for figures in part.values() if "records" in figures}
    return Grid(
        title=f"A crash of all servers while {' or '.join(sorted(pending))} records are pending",
        columns=[
            "",
            "sent/s",
            "bytes on the disk per record",
            "memory of the servers, MiB",
            "serves again after, s",
            "received/s",
            "p99 of the lateness, ms",
            "rejected",
            "early",
            "lost",
            "doubled",
        ],
        rows=rows,
    )


def _shared(part: Part) -> Grid:
    rows = [
        [
            f"{int(topics):,}",
            count(figures["partitions"]),
            count(figures["workers"]),
            percent(figures["cores"]),
            count(figures["resident_mib"]),
            tenth(figures["served_s"]),
            count(figures["new_topic_ms"]),
        ]
        for topics, figures in part.items()
    ]
    return Grid(
        title="Topics with nothing to do, on workers that share them",
        columns=[
            "DelayedTopics",
            "partitions",
            "workers",
            "of a core, each",
            "MiB, each",
            "all served after, s",
            "first record of a new one, ms",
        ],
        rows=rows,
    )


def _neighbours(part: Part) -> Grid:
    rates = {count(figures["quiet_rate"]) for figures in part.values()}
    rows = [[key, *_percentiles(figures), tenth(figures["ack_p999"])] for key, figures in part.items()]
    return Grid(
        title=f"Lateness of a topic with {' or '.join(sorted(rates))} records/s on a shared worker, ms",
        columns=["", *PERCENTILES.values(), "broker's ack p99.9"],
        rows=rows,
    )


_BUILDERS: Mapping[str, Callable[[Part], Grid]] = {
    "drain": _drain,
    "lateness": _lateness,
    "replicated": partial(_lateness, brokers=", three brokers and replicas"),
    "burst": _burst,
    "memory": _memory,
    "cpu": _cpu,
    "profile": _profile,
    "peers": _peers,
    "recovery": _recovery,
    "rebalance": rebalances,
    "shared": _shared,
    "neighbours": _neighbours,
    **OPERATOR_GRIDS,
}
