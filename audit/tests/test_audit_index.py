"""The page that lists all audits of a topic, and the table that lists those of all topics."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from delayed_topics_audit import cli, index, session
from delayed_topics_audit.account import Account, Result, Verdict
from delayed_topics_audit.job import Audited
from delayed_topics_audit.output import Output
from delayed_topics_audit_testing.topics import whole_window
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.names import TopicNames
from pyspark.sql import SparkSession

MINUTE_MS = 60_000


def window_of(topic: str, *, frozen_at_ms: int = MINUTE_MS) -> AuditWindow:
    names = TopicNames.of(topic)
    window = whole_window(
        names,
        topic_ids={name: f"id-of-{name}" for name in names.topics},
        delay_seconds=[5],
        retry_cap=1,
        max_lateness_ms=1000,
        committed_offsets={names.front: [7], names.delays: [0]},
        end_offsets={name: [7] for name in names.topics},
    )
    return replace(window, frozen_at_ms=frozen_at_ms)


def add(
    spark: SparkSession,
    folder: Path,
    audit: str,
    *,
    at_ms: int,
    verdict: Verdict = "Verified",
    topic: str = "orders",
    lost: int = 0,
) -> None:
    account = Account(produced=7, released=7 - lost, lost=lost)
    offenders = {"lost": [f"f-0-{n}" for n in range(lost)]}
    result = Result(verdict=verdict, message=f"{lost} lost <b>in {topic}</b>", account=account, offenders=offenders)
    output = Output(folder=f"{folder}/{audit}", parquet=False)
    index.add(spark, output, window_of(topic, frozen_at_ms=at_ms), result, None)


@pytest.mark.slow
@pytest.mark.spark
def test_a_page_has_the_audits_of_its_topic_the_newest_first(spark: SparkSession, tmp_path: Path) -> None:
    add(spark, tmp_path, "first-1", at_ms=MINUTE_MS)
    add(spark, tmp_path, "third-3", at_ms=3 * MINUTE_MS, verdict="Violated", lost=2)
    add(spark, tmp_path, "second-2", at_ms=2 * MINUTE_MS, verdict="Unknown")
    add(spark, tmp_path, "other-4", at_ms=MINUTE_MS, topic="payments")
    page = (tmp_path / "orders.html").read_text()
    assert re.findall(r'<a href="([^"]*)">([^<]*)</a></td><td class="(\w+)">', page) == [
        ("third-3/report.html", "1970-01-01 00:03:00", "Violated"),
        ("second-2/report.html", "1970-01-01 00:02:00", "Unknown"),
        ("first-1/report.html", "1970-01-01 00:01:00", "Verified"),
    ]
    assert "2 lost &lt;b&gt;in orders&lt;/b&gt;" in page
    assert "1 Verified, 1 Violated, 1 Unknown" in page
    assert not re.search(r"<script|https?://", page), "the page loads nothing from elsewhere"
    assert "can't be read" not in page
    assert "other-4/report.html" in (tmp_path / "payments.html").read_text()


@pytest.mark.slow
@pytest.mark.spark
def test_the_table_has_a_row_for_each_audit_of_every_topic(spark: SparkSession, tmp_path: Path) -> None:
    add(spark, tmp_path, "a-1", at_ms=MINUTE_MS)
    add(spark, tmp_path, "b-2", at_ms=2 * MINUTE_MS, topic="2024", verdict="Violated", lost=2)
    add(spark, tmp_path, "a-1", at_ms=MINUTE_MS, verdict="Violated", lost=1)
    rows = {row.audit: row for row in index.read(spark, str(tmp_path / "audits")).collect()}
    assert {name: (row.topic, row.verdict, row.lost, row.produced) for name, row in rows.items()} == {
        "a-1": ("orders", "Violated", 1, 7),
        "b-2": ("2024", "Violated", 2, 7),
    }, "an audit that ran again has only the row of its last run"
    assert (rows["b-2"].offenders, rows["b-2"].topic_id) == ({"lost": ["f-0-0", "f-0-1"]}, "id-of-2024")


@pytest.mark.slow
@pytest.mark.spark
def test_a_row_that_was_cut_off_is_counted_on_the_page(spark: SparkSession, tmp_path: Path) -> None:
    add(spark, tmp_path, "first-1", at_ms=MINUTE_MS)
    (cut,) = (tmp_path / "audits" / "topic=orders").glob("*.parquet")
    cut.write_bytes(cut.read_bytes()[:40])
    cut.with_name(f".{cut.name}.crc").unlink(missing_ok=True)
    add(spark, tmp_path, "second-2", at_ms=2 * MINUTE_MS)
    page = (tmp_path / "orders.html").read_text()
    assert "first-1/" not in page
    assert "second-2/" in page
    assert "1 more are in files of the table <code>audits</code> that can't be read" in page


@pytest.mark.slow
@pytest.mark.spark
def test_an_index_that_can_not_be_written_costs_no_verdict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test runs the command with the Spark session of the tests, and without reading from Kafka."""
    (tmp_path / "audits").write_text("in the way")
    (tmp_path / "window.json.gz").write_bytes(window_of("orders").encode())
    (tmp_path / "bootstrap-servers").write_text("kafka:9092")
    unseen = Audited(result=Result(verdict="Unknown", message="nothing was read"))
    monkeypatch.setattr(cli, "audit", lambda *_: unseen)
    monkeypatch.setattr(session, "start", lambda **_: spark)
    monkeypatch.setattr(session, "stop", lambda: None)
    files = {"window": "window.json.gz", "connection": "", "result": "result.json", "output": "orders-1"}
    done = CliRunner().invoke(
        cli.main, ["run", "--index", *(f"--{name}={tmp_path / file}" for name, file in files.items())]
    )
    assert done.exit_code == 0, done.output
    assert "this audit is not in the index: " in done.output
    assert json.loads((tmp_path / "result.json").read_text())["message"] == "nothing was read"
    assert (tmp_path / "orders-1" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.spark
def test_a_page_is_made_from_the_newest_audits_whatever_their_number(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_SHOWN", 2)
    for n in (3, 1, 2):
        add(spark, tmp_path, f"audit-{n}", at_ms=n * MINUTE_MS)
    page = (tmp_path / "orders.html").read_text()
    assert re.findall(r'href="([^"]*)/report.html"', page) == ["audit-3", "audit-2"]
    assert "1 older ones are in the table" in page
