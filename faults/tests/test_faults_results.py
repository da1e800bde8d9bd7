"""The table in docs/reliability.md has what was played last, and nothing else."""

from pathlib import Path
from typing import Any

from delayed_topics_faults.results import BEGIN, DOCUMENT, END, note, table

PLAYED: dict[str, Any] = {
    "row": "W1",
    "guarantee": "AtLeastOnce",
    "trials": 200,
    "records": 2_000_000,
    "doubled": 48_997,
    "dead_lettered": 0,
    "most_late_ms": 1521,
    "clean": True,
    "broken": [],
    "commit": "abc",
}


def test_the_document_has_the_results_and_no_others() -> None:
    assert f"{BEGIN}\n{table()}\n{END}" in DOCUMENT.read_text(), (
        "run a row, or delayed_topics_faults.results.write_document"
    )


def test_a_row_that_is_played_again_replaces_the_last_of_its_guarantee(tmp_path: Path) -> None:
    exactly = {**PLAYED, "guarantee": "ExactlyOnce", "doubled": 0, "audit": "Verified"}
    for entry in (PLAYED, exactly, {**PLAYED, "trials": 3, "clean": False, "broken": ["L"]}):
        note(tmp_path, entry)
    (*_, at_least_once, exactly_once) = table(tmp_path).splitlines()
    assert "**broken: L** | 3 | 2,000,000 | 48,997 | 0 | 1.5 | - | abc |" in at_least_once
    assert "`ExactlyOnce` | 200 | 2,000,000 | 0 | 0 | 1.5 | Verified | abc |" in exactly_once
