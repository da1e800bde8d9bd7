"""The index of all audits: a table with one row for each audit, and a page for each topic, generated from the table."""

import posixpath
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from delayed_topics_core.audit_table import INDEX, index_file
from delayed_topics_core.audit_window import AuditWindow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit import session
from delayed_topics_audit.account import Account, Result
from delayed_topics_audit.findings import Findings
from delayed_topics_audit.output import Output
from delayed_topics_audit.report import render_index

MAX_SHOWN: Final = 200
"""The maximum number of audits on a page, as each of them is read from a file of its own. The table has all audits."""
_ROW: Final = {
    "audit": "string",
    "frozen_at_ms": "bigint",
    "verdict": "string",
    "message": "string",
    "sample_one_in": "int",
    **{term.name: "bigint" for term in fields(Account)},
    **dict.fromkeys(("late_p50_ms", "late_p99_ms", "late_max_ms", "overdue_max_ms"), "bigint"),
    "offenders": "map<string,array<string>>",
    "topic_id": "string",
}
COLUMNS: Final = {"topic": "string", **_ROW}
"""The first column is in the names of folders, from which Spark and other tools read it as a partition column."""


def add(spark: SparkSession, output: Output, window: AuditWindow, result: Result, findings: Findings | None) -> None:
    """Adds a row for the audit, in place of one that an earlier try of the same audit wrote, and writes the topic's page again. Raises
    AuditFailed."""
    table = f"{output.parent}/{INDEX}"
    file = f"{output.parent}/{index_file(window.topic, window.frozen_at_ms, output.name)}"
    of_topic = posixpath.dirname(file)
    row = _row(output.name, window, result, findings)
    output.write_file(session.table(spark, [row], _schema(_ROW)), file)
    files = sorted((name for name in output.names_in(spark, of_topic) if name.endswith(".parquet")), reverse=True)
    newest = files[:MAX_SHOWN]
    with output.raising_audit_failed():
        rows = read(spark, table, *(f"{of_topic}/{name}" for name in newest)).orderBy(sf.desc("frozen_at_ms")).collect()
    page = render_index(
        window.topic,
        [row.asDict() for row in rows],
        older=len(files) - len(newest),
        unreadable=len(newest) - len(rows),
    )
    output.write_text(spark, f"{output.parent}/{window.topic}.html", page)


def read(spark: SparkSession, table: str, *files: str) -> DataFrame:
    """Returns the rows of `files`, or of all files. Files that can't be read are left out, so that a truncated file does not break the
    index."""
    reader = spark.read.schema(_schema(COLUMNS)).option("ignoreCorruptFiles", "true").option("basePath", table)
    return reader.parquet(*files or (table,))


def _row(audit: str, window: AuditWindow, result: Result, findings: Findings | None) -> Mapping[str, Any]:
    counted = findings.counted if findings is not None else None
    return {
        "audit": audit,
        "frozen_at_ms": window.frozen_at_ms,
        "verdict": result.verdict,
        "message": result.message,
        "sample_one_in": window.sample_one_in,
        **(asdict(result.account) if result.account is not None else {}),
        "late_p50_ms": counted.percentiles_ms.get("p50") if counted else None,
        "late_p99_ms": counted.percentiles_ms.get("p99") if counted else None,
        "late_max_ms": counted.max_late_ms if counted else None,
        "overdue_max_ms": counted.overdue_ms if counted else None,
        "offenders": result.offenders,
        "topic_id": window.topic_ids[window.topic],
    }


def _schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
