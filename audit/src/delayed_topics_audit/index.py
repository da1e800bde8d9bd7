"""All audits beside each other: a table with a row for each, and a page for each topic that is made from it."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from delayed_topics_core.audit_window import AuditWindow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit import session
from delayed_topics_audit.account import Account, Result
from delayed_topics_audit.findings import Findings
from delayed_topics_audit.output import Output
from delayed_topics_audit.report import render_index

TABLE: Final = "audits"
"""A folder beside those of the audits."""
MAX_SHOWN: Final = 1000
"""Audits on a page. The table has all of them."""
_ROW: Final = {
    "frozen_at_ms": "bigint",
    "verdict": "string",
    "message": "string",
    "sample_one_in": "int",
    **{term.name: "bigint" for term in fields(Account)},
    **dict.fromkeys(("late_p50_ms", "late_p99_ms", "late_max_ms", "overdue_max_ms"), "bigint"),
    "offenders": "map<string,array<string>>",
    "topic_id": "string",
}
COLUMNS: Final = {"topic": "string", "audit": "string", **_ROW}
"""The first two stand in the names of the folders, as Spark and others read partitions of a table."""


def add(spark: SparkSession, output: Output, window: AuditWindow, result: Result, findings: Findings | None) -> None:
    """A row, in the place of one that an earlier try of the same audit wrote, and the topic's page anew. Raises AuditFailed."""
    of_topic = f"{output.parent}/{TABLE}/topic={window.topic}"
    row = session.table(spark, [_row(window, result, findings)], _schema(_ROW))
    output.write_table(row.coalesce(1), f"{of_topic}/audit={output.name}")
    there = sum(name.startswith("audit=") for name in output.names_in(spark, of_topic))
    with output.said():
        known = read(spark, f"{output.parent}/{TABLE}").where(sf.col("topic") == window.topic).persist()
        read_of_these = known.count()
        newest = known.orderBy(sf.desc("frozen_at_ms")).limit(MAX_SHOWN).collect()
        known.unpersist()
    page = render_index(
        window.topic,
        [row.asDict() for row in newest],
        older=read_of_these - len(newest),
        unreadable=there - read_of_these,
    )
    output.write_text(spark, f"{output.parent}/{window.topic}.html", page)


def read(spark: SparkSession, folder: str) -> DataFrame:
    """All rows of the table in `folder` that can be read: a file that was cut off is no reason to have no index."""
    return spark.read.schema(_schema(COLUMNS)).option("ignoreCorruptFiles", "true").parquet(folder)


def _row(window: AuditWindow, result: Result, findings: Findings | None) -> Mapping[str, Any]:
    counted = findings.counted if findings is not None else None
    return {
        "frozen_at_ms": window.frozen_at_ms,
        "verdict": result.verdict,
        "message": result.message,
        "sample_one_in": window.sample_one_in,
        **(asdict(result.account) if result.account is not None else {}),
        "late_p50_ms": counted.percentiles_ms.get("p50") if counted else None,
        "late_p99_ms": counted.percentiles_ms.get("p99") if counted else None,
        "late_max_ms": counted.flaws.max_late_ms if counted else None,
        "overdue_max_ms": counted.overdue_ms if counted else None,
        "offenders": result.offenders,
        "topic_id": window.topic_ids[window.topic],
    }


def _schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
