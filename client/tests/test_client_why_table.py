"""`delayed-topics why --table` on tables that the test writes. Tables of real audits are in the tests of the audit."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result
from delayed_topics.cli import main
from delayed_topics_core.audit_table import (
    DEAD_LETTER,
    DELAYS,
    FATES,
    FLAW_NAMES,
    FRONT,
    OFFSET_BITS,
    PARTITION_BITS,
    READY,
    TableDescription,
    index_file,
)
from delayed_topics_core.names import TopicNames

HOUR_MS = 3_600_000
AT_MS = 1_764_061_200_000  # 2025-11-25T09:00:00Z
COLUMNS = {
    "place": "BIGINT", "root": "BIGINT", "appended_ms": "BIGINT", "due_ms": "BIGINT", "attempt": "INTEGER", "chain": "BIGINT",
    "ends": "BIGINT", "first_at": "BIGINT", "last_at": "BIGINT", "first_ms": "BIGINT", "last_ms": "BIGINT",
    "reason": "VARCHAR", "late_ms": "BIGINT", "fate": "INTEGER", "flaws": "INTEGER",
}  # fmt: skip


def at(topic_number: int, partition: int, offset: int) -> int:
    return (((topic_number << PARTITION_BITS) + partition) << OFFSET_BITS) + offset


def described(audit: str, *, hours: int = 0, topic: str = "orders", target: str = "billing") -> TableDescription:
    topics = (*TopicNames.of(topic).topics, target)
    ids = tuple(f"id-of-{name}" for name in topics)
    return TableDescription(audit=audit, frozen_at_ms=AT_MS + hours * HOUR_MS, topics=topics, topic_ids=ids)


def write(
    folder: Path, table: TableDescription, *rows: Mapping[str, Any], said: Mapping[str, Any] | None = None
) -> None:
    """Writes the table below the folder of the audit, as Spark does. Columns that a row does not have are null. `said`: metadata in place
    of the description."""
    places = folder / table.audit / "places"
    places.mkdir(parents=True)
    full = [{**dict.fromkeys(COLUMNS), "ends": 0, "flaws": 0, **row} for row in rows]
    values = ", ".join(f"({', '.join(_sql(row[name]) for name in COLUMNS)})" for row in full)
    typed = ", ".join(f"{name}::{kind} AS {name}" for name, kind in COLUMNS.items())
    metadata = table.metadata() if said is None else said
    schema = json.dumps({"fields": [{"name": "place", "metadata": metadata}]})
    duckdb.execute(
        f"COPY (SELECT {typed} FROM (VALUES {values}) rows ({', '.join(COLUMNS)})) TO '{places}/part-0.parquet' "
        f"(FORMAT parquet, KV_METADATA {{'org.apache.spark.sql.parquet.row.metadata': '{schema}'}})"
    )


def _sql(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def why(folder: Path, place: str, *arguments: str) -> Result:
    """Runs the command without an address of Kafka."""
    command = ["why", "orders", place, "--table", str(folder), *arguments]
    return CliRunner().invoke(main, command, env={"KAFKA_BOOTSTRAP": ""})


def attempts(folder: Path, place: str) -> list[dict[str, Any]]:
    shown = why(folder, place, "--json")
    assert shown.exit_code == 0, shown.output
    found: list[dict[str, Any]] = json.loads(shown.stdout)["attempts"]
    return found


def refused(folder: Path, place: str = "0@42") -> str:
    shown = why(folder, place)
    assert (shown.exit_code, shown.stdout) == (1, ""), shown.output
    return shown.stderr


CAME_IN = {"place": at(FRONT, 2, 5310), "appended_ms": AT_MS, "due_ms": AT_MS + 5_000, "attempt": 0}
HOPPED = {
    "place": at(DELAYS, 4, 977), "root": CAME_IN["place"], "appended_ms": AT_MS + 3, "due_ms": AT_MS + 5_000, "attempt": 0,
}  # fmt: skip
RELEASED_AT = at(READY, 2, 1041)


def write_chain(folder: Path) -> None:
    """In the first link, the record waits. In the second link, it comes out twice."""
    write(
        folder,
        described("orders-1"),
        {**CAME_IN, "fate": FATES.index("hopped"), "last_at": HOPPED["place"]},
        {**HOPPED, "fate": FATES.index("pending"), "flaws": 1 << FLAW_NAMES.index("overdue")},
    )
    out = {"ends": 2, "first_at": RELEASED_AT, "last_at": RELEASED_AT + 9, "late_ms": 2}
    times = {"first_ms": AT_MS + 5_002, "last_ms": AT_MS + 5_900}
    write(
        folder,
        described("orders-2", hours=1),
        {**CAME_IN, **out, **times, "flaws": 1 << FLAW_NAMES.index("doubled")},
        {**HOPPED, "fate": FATES.index("released"), "last_at": RELEASED_AT + 9},
    )


@pytest.mark.parametrize(
    "place", ["orders.ready-2@1041", "orders.ready-2@1050", "2@5310", "orders.delays-4@977", "f:2:5310:id-of-orders"]
)
def test_a_way_is_put_together_from_the_audits_of_a_chain_wherever_it_is_looked_at(tmp_path: Path, place: str) -> None:
    write_chain(tmp_path)
    verdict = tmp_path / index_file("orders", AT_MS + HOUR_MS, "orders-2")
    verdict.parent.mkdir(parents=True)
    duckdb.execute(f"COPY (SELECT 'Violated' AS verdict) TO '{verdict}'")

    shown = why(tmp_path, place)

    assert shown.stdout.splitlines() == [
        "orders-2@5310, attempt 0: released",
        "  2025-11-25T09:00:00.000Z  came in       orders-2@5310  due 2025-11-25T09:00:05.000Z",
        "  2025-11-25T09:00:00.003Z  hopped        orders.delays-4@977  due 2025-11-25T09:00:05.000Z",
        "  2025-11-25T09:00:05.002Z  released      orders.ready-2@1041  2 ms after its due time",
        "  2025-11-25T09:00:05.900Z  released      orders.ready-2@1050",
        "  audit orders-1 of 2025-11-25T09:00:00.000Z: orders-2@5310 hopped; orders.delays-4@977 pending",
        "    orders.delays-4@977 overdue: The record is pending, and has been due for more than maxLatenessMs.",
        "  audit orders-2 of 2025-11-25T10:00:00.000Z, Violated: orders.delays-4@977 released",
        "    orders-2@5310 doubled: The record came out, or hopped, more than once.",
    ]
    assert shown.stderr == ""


def test_one_table_is_enough_and_says_what_its_audit_knew(tmp_path: Path) -> None:
    write_chain(tmp_path)
    for folder in (tmp_path / "orders-1", tmp_path / "orders-1" / "places"):
        shown = why(folder, "2@5310").stdout.splitlines()
        assert shown[0] == (
            "orders-2@5310, attempt 0: pending at 2025-11-25T09:00:00.000Z, due 2025-11-25T09:00:05.000Z"
        )
        assert [line.split()[1] for line in shown[1:3]] == ["came", "hopped"]


@pytest.mark.parametrize(
    ("row", "state", "steps"),
    [
        ({"fate": FATES.index("lost"), "flaws": 1}, "Lost", []),
        ({"fate": FATES.index("hopped"), "last_at": at(DELAYS, 1, 1)}, "Hopped", []),
        ({}, "Unknown", []),
        (
            {"ends": 1, "first_at": at(DEAD_LETTER, 0, 3), "last_at": at(DEAD_LETTER, 0, 3), "reason": "TooLarge"},
            "DeadLettered",
            [("dead-lettered", "orders.dead-0@3", None, "TooLarge")],
        ),
        (
            {"ends": 1, "first_at": at(DEAD_LETTER, 0, 3), "last_at": at(DEAD_LETTER, 0, 3), "reason": "Cancelled"},
            "Cancelled",
            [("dead-lettered", "orders.dead-0@3", None, "Cancelled")],
        ),
        (
            # the record was released, although its offset is not yet committed
            {"fate": FATES.index("pending"), "last_at": at(READY, 1, 8)},
            "Released",
            [("released", "orders.ready-1@8", None, None)],
        ),
        (
            # it is unknown which time belongs to which copy
            {"ends": 2, "first_at": at(READY, 0, 7), "last_at": at(4, 1, 8), "first_ms": 1, "last_ms": 2, "late_ms": 0},
            "Released",
            [("released", "billing-1@8", None, None), ("released", "orders.ready-0@7", None, None)],
        ),
    ],
    ids=["lost", "hopped", "unknown", "dead", "cancelled", "done", "two partitions"],
)
def test_what_became_of_a_record_is_said_as_far_as_its_row_says(
    tmp_path: Path, row: dict[str, Any], state: str, steps: list[tuple[object, ...]]
) -> None:
    write(tmp_path, described("orders-1"), {**CAME_IN, **row})
    (attempt,) = attempts(tmp_path, "2@5310")
    found = [(step["what"], step["place"], step["at_ms"], step["reason"]) for step in attempt["steps"][1:]]
    assert (attempt["state"], found) == (state, steps)


def test_an_origin_that_no_audit_read_and_a_strangers_record_are_told_as_such(tmp_path: Path) -> None:
    lost_root = {"root": at(FRONT, 0, 1), "attempt": 3, "fate": FATES.index("lost"), "flaws": 1}
    write(
        tmp_path,
        described("orders-1"),
        {**HOPPED, **lost_root},
        {"place": at(READY, 0, 5), "flaws": 1 << FLAW_NAMES.index("foreign")},
    )
    assert why(tmp_path, "0@1").stdout.splitlines()[:2] == [
        "orders-0@1, attempt 3: lost",
        f"  {'-':<24}  came in       orders-0@1",
    ]
    (stranger,) = attempts(tmp_path, "orders.ready-0@5")
    assert (stranger["state"], [step["what"] for step in stranger["steps"]]) == ("Foreign", ["foreign"])


def test_a_flaw_that_only_a_newer_version_knows_is_shown(tmp_path: Path) -> None:
    write(tmp_path, described("orders-1"), {**CAME_IN, "flaws": (1 << len(FLAW_NAMES)) + 1})
    flaws = why(tmp_path, "2@5310").stdout.splitlines()[-2:]
    assert [line.split()[1] for line in flaws] == ["lost:", f"{1 << len(FLAW_NAMES)}:"]


def test_what_a_table_says_can_not_steer_a_terminal(tmp_path: Path) -> None:
    end = {"ends": 1, "first_at": at(DEAD_LETTER, 0, 3), "last_at": at(DEAD_LETTER, 0, 3), "reason": "\x1b[2J"}
    write(tmp_path, described("orders-1"), {**CAME_IN, **end})
    assert "orders.dead-0@3  \\x1b[2J\n" in why(tmp_path, "2@5310").stdout


def test_further_attempts_and_a_rejection_are_named(tmp_path: Path) -> None:
    first = {"place": at(FRONT, 0, 1), "attempt": 1, "chain": -7, "fate": FATES.index("released")}
    second = {"place": at(FRONT, 1, 2), "attempt": 2, "chain": -7, "fate": FATES.index("released")}
    write(tmp_path, described("orders-1"), first, {"place": at(FRONT, 0, 2), "attempt": 1, "chain": 8})
    write(tmp_path, described("orders-2", hours=1), second, {"place": at(DEAD_LETTER, 0, 3), "chain": -7})
    assert "  other attempts: orders-1@2 (attempt 2), orders.dead-0@3 (rejected)" in why(tmp_path, "0@1").stdout
    (rejection,) = attempts(tmp_path, "orders.dead-0@3")
    assert (rejection["state"], rejection["others"]) == (
        "Rejected",
        ["orders-0@1 (attempt 1)", "orders-1@2 (attempt 2)"],
    )


def test_a_record_that_no_audit_knows_is_not_found(tmp_path: Path) -> None:
    write_chain(tmp_path)
    says = "Error: orders-0@42 is in no table of 2 audits. The newest is orders-2, of 2025-11-25T10:00:00.000Z\n"
    assert refused(tmp_path) == says
    assert "orders-99999@42 is in no table" in refused(tmp_path, "99999@42")
    write(tmp_path, replace(described("orders-3", hours=2), sample_one_in=1000), CAME_IN)
    assert "is in no table of 3 audits, which looked at one record in 1,000." in refused(tmp_path)


def test_a_folder_without_such_a_table_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path} has no table of an audit of orders. It has no Parquet files of an audit" in refused(tmp_path)
    write(tmp_path, described("payments-1", topic="payments"), CAME_IN)
    assert "has no table of an audit of orders. It has tables of payments" in refused(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"no Parquet at all")
    assert f"Error: {tmp_path} is not a table of an audit that can be read: Invalid Input" in refused(tmp_path)
    duckdb.execute(f"COPY (SELECT 1 AS place) TO '{tmp_path}/x.parquet'")
    assert "that can be read: it does not say which audit wrote it, so no audit did" in refused(tmp_path)


def test_a_table_of_another_version_is_refused_and_others_are_read(tmp_path: Path) -> None:
    newer = {"delayed_topics": {"version": 2, "what": "is not known"}}
    write(tmp_path, described("orders-9"), CAME_IN, said=newer)
    says = "it has version 2, and this program reads version 1. Use the version that the audit has"
    assert says in refused(tmp_path)
    write_chain(tmp_path)
    shown = why(tmp_path, "2@5310")
    assert (shown.exit_code, says in shown.stderr) == (0, True), shown.output
    assert shown.stderr.startswith("1 table not read: ")


def test_a_table_with_a_file_that_is_cut_off_or_of_another_audit_is_left_out_and_others_are_read(
    tmp_path: Path,
) -> None:
    """Once, `why` refused all tables because of the first file, and took the rows of the second for those of its own table."""
    write_chain(tmp_path)
    write(tmp_path, described("orders-3", hours=2), {**CAME_IN, "attempt": 9})
    places, whole = tmp_path / "orders-3" / "places", tmp_path / "orders-2" / "places" / "part-0.parquet"
    for data, says in (
        (whole.read_bytes()[:99], "Invalid Input"),
        (whole.read_bytes(), "not all of its files are of one audit"),
    ):
        (places / "part-1.parquet").write_bytes(data)
        shown = why(tmp_path, "2@5310")
        assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "orders-2@5310, attempt 0: released"), (
            shown.output
        )
        assert shown.stderr.startswith(
            f"1 table not read: {places} is not a table of an audit that can be read: {says}"
        )


def test_records_of_a_topic_that_was_deleted_are_not_taken_for_those_of_the_next_of_its_name(tmp_path: Path) -> None:
    write_chain(tmp_path)
    old = described("orders-0", hours=-1)
    write(tmp_path, replace(old, topic_ids=tuple(f"old-{name}" for name in old.topics)), {**CAME_IN, "attempt": 9})
    shown = why(tmp_path, "2@5310")
    assert shown.stderr == "1 table not read, of another topic that had the name orders\n"
    assert shown.stdout.startswith("orders-2@5310, attempt 0: released")
    assert why(tmp_path, "f:2:5310:old-orders").stdout.startswith("orders-2@5310, attempt 9: ")
    assert "with the id other. The topic was deleted and created again" in refused(tmp_path, "f:2:5310:other")


@pytest.mark.parametrize("option", ["--all-copies", "--show-value"])
def test_what_a_table_does_not_have_can_not_be_asked_for(tmp_path: Path, option: str) -> None:
    shown = why(tmp_path, "0@42", option)
    assert (shown.exit_code, "can't be used with --table" in shown.output) == (2, True), shown.output


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "delayed_topics.audit_tables", raising=False)
    monkeypatch.delitem(sys.modules, "delayed_topics.audit_tables_shown", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert refused(tmp_path) == (
        "Error: --table needs duckdb, which comes with the extra parquet of the client. "
        "Install it from a checkout of the project with pip install ./core ./kafka './client[cli,parquet]'\n"
    )
