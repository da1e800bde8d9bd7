"""docs/audit-table.md and the pages beside it describe every column and every bit of the Parquet tables of audits."""

import re
from pathlib import Path

import pytest
from delayed_topics_audit import facts, index
from delayed_topics_audit.flaws import FLAWS
from delayed_topics_audit_testing.rows import Window, front_of, ready_of
from delayed_topics_core.audit_table import FATES, FLAW_MEANINGS, OFFSET_BITS, PARTITION_BITS, TOPIC_LETTERS
from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = (DOCS / "audit-table.md").read_text()


def table(heading: str, page: str = "audit-table.md") -> list[tuple[str, str]]:
    """Returns the first two cells of each row of the table below a heading, without backquotes."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip().strip("`") for cell in line.split("|")[1:3]] for line in section.splitlines() if "|" in line]
    return [(first, second) for first, second in rows[2:]]


def meanings() -> list[str]:
    """Returns the meanings of the flaws, without backquotes."""
    section = DOCUMENT.partition("\n## Flaws\n")[2].partition("\nNext: ")[0]
    return [line.split("|")[3].strip().replace("`", "") for line in section.splitlines() if "|" in line][2:]


@pytest.mark.spark
def test_every_column_is_there_with_its_type(spark: SparkSession) -> None:
    written = Window(spark=spark, front=front_of(1), ready=ready_of(0)).places.schema
    assert table("Columns") == [(column.name, column.dataType.simpleString()) for column in written]


@pytest.mark.slow
@pytest.mark.spark
def test_its_queries_find_what_they_say(spark: SparkSession) -> None:
    """Spark runs the queries of the page. In the second query, the place that it asks for is replaced."""
    Window(spark=spark, front=front_of(2), ready=ready_of(0)).places.createOrReplaceTempView("places")
    lost, one = [query.partition("```")[0] for query in DOCUMENT.split("```text\n")[1:]]

    def found(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark.sql(query.replace("read_parquet('places/*.parquet')", "places")).collect()]

    assert [row[:3] for row in found(lost)] == [(0, 0, 1)]
    (row,) = found(one.replace(f"3 * {2**OFFSET_BITS} + 1041", "0"))
    assert (row[0], row[-3:]) == (FATES.index("released"), (2, 0, 0))
    assert found(one) == []


def test_the_table_of_all_audits_has_its_columns() -> None:
    assert table("Columns of all audits", "audit-history.md") == list(index.COLUMNS.items())


def test_fates_flaws_and_bits_have_their_numbers() -> None:
    assert table("Fates") == [(str(number), fate) for number, fate in enumerate(FATES)]
    assert table("Flaws") == [(str(1 << flaw.bit), name) for name, flaw in FLAWS.items()]
    assert dict(zip(FLAWS, meanings(), strict=True)) == FLAW_MEANINGS, "the client shows these meanings"
    declared = re.findall(r"^([A-Z_]+): Final = 1 << (\d+)", Path(facts.__file__).read_text(), re.MULTILINE)
    assert table("Bits", "audit-bits.md") == [(str(1 << int(at)), name) for name, at in declared]


def test_each_check_says_how_it_finds_what_it_looks_for() -> None:
    findings = [name for names, _ in table("Findings", "audit-verdict.md") for name in names.split(", ")]
    assert {re.sub("[ -]", "_", name) for name in findings} == {*FLAWS, "out_of_order"}


def test_a_place_is_taken_apart_as_it_was_put_together() -> None:
    assert table("Places")[:-1] == [(str(number), topic_number) for number, topic_number in enumerate(TOPIC_LETTERS)]
    assert table("Places")[-1][0] == f"{len(TOPIC_LETTERS)} and above"
    assert f"place >> {OFFSET_BITS + PARTITION_BITS}" in DOCUMENT
    assert f"(place >> {OFFSET_BITS}) & {2**PARTITION_BITS - 1}" in DOCUMENT
    assert f"place & {2**OFFSET_BITS - 1}" in DOCUMENT
