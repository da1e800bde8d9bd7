"""The table in docs/fault-results.md has the last results of each row, and nothing else."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from delayed_topics_faults.campaign import keep
from delayed_topics_faults.cli import main
from delayed_topics_faults.copies import Copy
from delayed_topics_faults.judge import Seen, Verdict
from delayed_topics_faults.results import DOCUMENT, RESULTS, SECTION, save_entry, table
from delayed_topics_faults.row import Trial
from delayed_topics_faults.rows import ROWS

PLAYED: dict[str, Any] = {
    "row": "W1",
    "guarantee": "AtLeastOnce",
    "trials": 200,
    "records": 2_000_000,
    "doubled": 48_997,
    "dead_lettered": 0,
    "order_exempt": 3_000,
    "most_late_ms": 1521,
    "most_back_ms": 1164,
    "clean": True,
    "broken": [],
    "commit": "abc",
}


def test_the_document_has_the_results_and_no_others() -> None:
    assert SECTION.containing(table()) in DOCUMENT.read_text(), (
        "run a row, or delayed_topics_faults.results.write_document"
    )


def test_a_row_that_is_played_again_replaces_the_last_of_its_guarantee(tmp_path: Path) -> None:
    exactly = {
        **PLAYED,
        "guarantee": "ExactlyOnce",
        "doubled": 0,
        "most_back_ms": 0,
        "audit": "Verified",
        "counts": {"kills": 199},
        "lateness_ms": {"p50": 1, "p99": 2_000},
    }
    for entry in (PLAYED, exactly, {**PLAYED, "trials": 3, "clean": False, "broken": ["L"]}):
        save_entry(tmp_path, entry)
    (*_, at_least_once, exactly_once) = table(tmp_path).splitlines()
    assert "**broken: L** | 3 | 2,000,000 | 48,997 | 1,164 | 0 | 3,000 | 1.5 | - | - | abc |" in at_least_once
    assert (
        "`ExactlyOnce`; 199 kills | 200 | 2,000,000 | 0 | - | 0 | 3,000 | 1.5 | 1, 2,000 | Verified | abc |"
        in exactly_once
    )


def test_each_row_was_played_with_every_guarantee_that_it_can_have() -> None:
    entries = [json.loads(line) for file in RESULTS.glob("*.json") for line in file.read_text().splitlines()]
    played = {(entry["row"], entry["guarantee"]) for entry in entries}
    assert played == {(name, guarantee) for name, row in ROWS.items() for guarantee in row.guarantees}


def test_the_figures_of_each_row_agree_with_one_another() -> None:
    for file in RESULTS.glob("*.json"):
        for entry in map(json.loads, file.read_text().splitlines()):
            name = f"{entry['row']} {entry['guarantee']}"
            broken = ("lost", "early", "doubled_beyond", "out_of_order", "changed", "late", "unalarmed")
            assert entry["clean"] == (not entry["broken"]), name
            assert not entry["clean"] or not any(entry[count] for count in broken), name
            assert entry["guarantee"] == "AtLeastOnce" or not entry["doubled"], name
            assert entry["doubled"] or not entry.get("most_back_ms"), name
            late_ms = list(entry.get("lateness_ms", {}).values())
            assert late_ms == sorted(late_ms), name
            assert 0 < entry["trials"] <= entry["records"], name
            assert max(entry["doubled"], entry["dead_lettered"], entry["order_exempt"]) < entry["records"], name


def test_lateness_after_the_fault_is_not_called_that_of_the_latest_record(tmp_path: Path) -> None:
    """A record that came out two seconds after the end of a fault may have been due a minute before that."""
    save_entry(tmp_path, {**PLAYED, "most_late_ms": 2_077, "lateness_ms": {"p50": 670, "p99": 61_728}})
    columns, _, cells = ([cell.strip() for cell in line.split("|")] for line in table(tmp_path).splitlines())
    shown = dict(zip(columns, cells, strict=True))
    assert (shown["after the fault, s"], shown["late at p50, p99, p99.9, ms"]) == ("2.1", "670, 61,728")


def test_a_guarantee_that_a_row_cannot_have_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--row", "B9", "--guarantee", "ExactlyOnce"])
    assert refused.exit_code == 2
    assert "row B9 can be played with AtLeastOnce, but not with ExactlyOnce" in refused.stderr


def test_what_a_broken_promise_leaves_is_kept_with_figures_of_any_kind(tmp_path: Path) -> None:
    copy = Copy(1, 7, 5, True, "k", "v", "f", {"dt-root": "f:0:1:id"})
    verdict = Verdict(late_by_ms=Counter({40: 2}), broken={"D": ["1 copy came twice"]})
    trial = Trial(injected="g +1", context={("orders", 0): "orders-0"})
    keep(tmp_path, "orders", trial, Seen([], [], [copy], []), verdict)

    assert (tmp_path / "ready.tsv").read_text() == "1\t7\t5\tTrue\tk\tv\tf\tdt-root=f:0:1:id\n"
    summary = (tmp_path / "verdict.txt").read_text()
    assert all(word in summary for word in ("g +1", "('orders', 0)", "1 copy came twice", "{40: 2}"))
