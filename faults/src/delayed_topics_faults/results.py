"""Results of campaigns: faults/results/ROW.json has a line for each guarantee, and docs/fault-results.md has a table of all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delayed_topics_devcluster.generated_section import GeneratedSection, markdown_table
from delayed_topics_devcluster.paths import REPOSITORY

from delayed_topics_faults.rows import ROWS

RESULTS: Final = REPOSITORY / "faults" / "results"
DOCUMENT: Final = REPOSITORY / "docs" / "fault-results.md"
SECTION: Final = GeneratedSection(begin="<!-- results: written by make faults -->", end="<!-- end of results -->")
COLUMNS: Final = (
    "row",
    "fault",
    "trials",
    "records",
    "doubled",
    "before the crash, ms",
    "dead letters",
    "exempt from order",
    "after the fault, s",
    "late at p50, p99, p99.9, ms",
    "audit",
    "commit",
)

Entry = Mapping[str, Any]


def save_entry(folder: Path, entry: Entry) -> None:
    """Writes the entry into the folder, where it replaces the row's last one with this guarantee."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{entry['row']}.json"
    others = [one for one in _read(file) if one["guarantee"] != entry["guarantee"]]
    kept = sorted([*others, entry], key=lambda one: str(one["guarantee"]))
    file.write_text("".join(json.dumps(one) + "\n" for one in kept))


def table(folder: Path = RESULTS) -> str:
    """Returns all results as a Markdown table, formatted as `mdformat` does it."""
    rows: list[list[str]] = []
    for name, row in ROWS.items():
        for entry in _read(folder / f"{row.name}.json"):
            exactly = ", `ExactlyOnce`" if entry["guarantee"] == "ExactlyOnce" else ""
            counts = "".join(f"; {count} {what}" for what, count in entry.get("counts", {}).items())
            broken = "" if entry["clean"] else f" **broken: {', '.join(entry['broken'])}**"
            rows.append(
                [
                    name.upper(),
                    f"{row.fault}{exactly}{counts}{broken}",
                    *(f"{entry[count]:,}" for count in ("trials", "records", "doubled")),
                    f"{back_ms:,}" if (back_ms := entry.get("most_back_ms")) else "-",
                    *(f"{entry[count]:,}" for count in ("dead_lettered", "order_exempt")),
                    f"{late_ms / 1000:.1f}" if (late_ms := entry["most_late_ms"]) else "-",
                    ", ".join(f"{ms:,}" for ms in entry.get("lateness_ms", {}).values()) or "-",
                    entry.get("audit", "-"),
                    entry["commit"],
                ]
            )
    return markdown_table(COLUMNS, rows, texts=("row", "fault", "commit"))


def write_document(document: Path = DOCUMENT) -> None:
    """Writes the table into the document."""
    SECTION.write(document, table())


def _read(file: Path) -> list[Entry]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
