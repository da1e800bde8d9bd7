"""A link of a chain that reads only new rows from Kafka, and the rest from a table, finds the same as one that reads everything."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

import pytest
from delayed_topics_audit import carried, checks, refusals
from delayed_topics_audit.account import judge
from delayed_topics_audit.carried import Table, Unusable
from delayed_topics_audit.findings import Findings, WorkerEvents, count
from delayed_topics_audit.job import Reading, bounds_of, places_and_blocks
from delayed_topics_audit.output import Output
from delayed_topics_audit.repeats import Takeover
from delayed_topics_audit.requests import Requests
from delayed_topics_audit.sources import Read
from delayed_topics_audit.visibility import WindowVisibility
from delayed_topics_audit_testing.chain import HOUR_MS, IDS, NAMES, Day, DayGenerator
from delayed_topics_audit_testing.rows import AT_MS, hop, level, release
from delayed_topics_core.audit_table import DELAYS, FRONT, PARTITION_BITS
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.carried import Carried
from delayed_topics_core.registry import AuditedRecord
from delayed_topics_operator.audits.reconcile.chain import ended
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

pytestmark = pytest.mark.spark

EVERY_LINE = frozenset((topic << PARTITION_BITS) + p for topic in (FRONT, DELAYS) for p in range(16))
WORKER_EVENTS = WorkerEvents(
    takeovers=[Takeover(lines=EVERY_LINE, from_ms=AT_MS + 7 * HOUR_MS, to_ms=AT_MS + 7 * HOUR_MS + 1000)],
    known=[(AT_MS, AT_MS + 24 * HOUR_MS)],
)


@dataclass(frozen=True, kw_only=True)
class Link:
    """The result of a link: its places with their fates, and the number of rows that it read from Kafka."""

    window: AuditWindow
    places: DataFrame
    blocks: DataFrame | None
    read: int

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in self.places.collect())


def visibility_of(window: AuditWindow) -> WindowVisibility:
    return WindowVisibility(spots=(), starts={name: window.read_from(name) for name in NAMES.topics}, readable=True)


def link(spark: SparkSession, read: Read, window: AuditWindow, table: Table | None, *, carries: bool) -> Link:
    reading = Reading(window=window, visibility=visibility_of(window), table=table)
    places, blocks = places_and_blocks(spark, read, reading, Requests(), carries=carries)
    planned_once = places.localCheckpoint()
    places.unpersist()
    return Link(window=window, places=planned_once, blocks=blocks, read=reading.offsets)


def recorded(spark: SparkSession, once: Link, folder: Path, hour: int, found: Findings) -> AuditedRecord:
    """Writes the table of the link and returns the record of the registry that follows."""
    assert once.blocks is not None
    output, since_ms = output_of(folder, hour), found.counted.pending_since_ms
    seen = visibility_of(once.window)
    bounds = bounds_of(once.window, seen)
    sha256 = carried.written(spark, output, once.window, once.blocks, bounds, starts=seen.starts, since_ms=since_ms)
    return ended(once.window, since_ms, Carried(folder=output.name, sha256=sha256))


def output_of(folder: Path, hour: int) -> Output:
    return Output(folder=str(folder / f"hour-{hour}"), parquet=False)


def links(spark: SparkSession, day: Day, folder: Path) -> Iterator[tuple[Link, Findings, AuditedRecord]]:
    """Yields for each hour a link that writes a table, its findings, and its record of the registry."""
    read, last = day.reader(spark), None
    for hour in range(day.hours):
        window = day.freeze((hour + 1) * HOUR_MS, last)
        table = carried.opened(spark, output_of(folder, hour), window)
        once = link(spark, read, window, table, carries=True)
        found = count(spark, once.places, window, WORKER_EVENTS, lambda _: None, offsets_read=once.read)
        last = recorded(spark, once, folder, hour, found)
        yield once, found, last


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_chain_that_carries_reads_each_row_once_and_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    day = DayGenerator(hours=8).until_nothing_is_left()
    read, terms, of_windows, of_chain = day.reader(spark), Counter[str](), 0, 0
    for once, found, _ in links(spark, day, tmp_path):
        every = link(spark, read, once.window, None, carries=False)
        assert once.rows == every.rows, "all counts are derived from these rows"
        account = judge(found.counted).account
        assert account is not None
        terms.update(asdict(account))
        of_windows, of_chain = of_windows + every.read, of_chain + once.read
    befell = ("hopped", "dead_lettered", "lost", "early", "doubled", "doubled_beyond_promise")
    assert all(terms[term] for term in befell), terms
    assert terms["doubled"] > terms["doubled_beyond_promise"], (
        "the records that the killed worker let hop twice are within the promise"
    )
    appended = sum(topic.end(p, day.hours * HOUR_MS) for topic in day.topics.values() for p in range(4))
    assert (of_chain, of_windows > 2 * of_chain) == (appended, True)
    kept = {folder.name for folder in (tmp_path / "carried" / IDS[NAMES.front]).iterdir()}
    assert kept == {"hour-6", "hour-7"}


@pytest.mark.slow
def test_a_record_that_was_written_into_the_delays_topic_and_hopped_on_is_judged_by_the_link_that_sees_it_come_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The record requests a due time. It has hopped on before the first link, and is released before the requested time, although the
    release claims that it was due."""
    never_ms, due_ms = 24 * HOUR_MS, HOUR_MS * 3 // 2
    day = Day(hours=2, grown_ms=never_ms, edited_ms=never_ms)
    asked = [("dt-deliver-at", b"%d" % (AT_MS + due_ms))]
    root = ("d", 1, day.append(NAMES.delays, 1, 600_000, asked))
    hopped = ("d", 2, day.append(NAMES.delays, 2, 1_200_000, hop(root, due_ms)))
    day.commit(NAMES.delays, 1, 1, 1_200_000)
    out_ms = due_ms - 1000
    day.append(NAMES.ready, 0, out_ms, release(hopped, out_ms, root=root, hops=2))
    day.commit(NAMES.delays, 2, 1, out_ms)
    *_, (once, found, _) = links(spark, day, tmp_path)
    assert (found.counted.unread_roots, found.counted.flaws["early"]) == (0, 1)
    assert once.rows == link(spark, day.reader(spark), once.window, None, carries=False).rows
    assert once.read == 1, "the other rows come from the table of the previous link"


def rewritten(file: Path, change: Callable[[str], str]) -> None:
    """Changes the file, and removes the checksum against accidental changes that Hadoop keeps beside it."""
    file.write_text(change(file.read_text()))
    file.with_name(f".{file.name}.crc").unlink()


def altered(spark: SparkSession, table: Path) -> None:
    """Changes the attempt of one row."""
    rows = spark.read.parquet(str(table / "rows"))
    first = sf.col("rows")[0]
    other = sf.concat(sf.array(first.withField("attempt", sf.lit(7))), sf.slice("rows", 2, 10_000))
    rows.select(other.alias("rows")).write.parquet(str(table / "altered"))
    shutil.rmtree(table / "rows")
    (table / "altered").rename(table / "rows")


def with_a_row_twice(spark: SparkSession, table: Path) -> None:
    spark.read.parquet(str(table / "rows")).limit(1).write.mode("append").parquet(str(table / "rows"))


def with_other_offsets(_spark: SparkSession, table: Path) -> None:
    rewritten(table / "covers.json", lambda said: said.replace('"version": ', '"version":  '))


def with_a_block_that_went_into_the_offsets(spark: SparkSession, table: Path) -> None:
    blocks = spark.read.parquet(str(table / "rows")).select("rows", sf.sha2(sf.to_json("rows"), 256).alias("hash"))
    least = min(row.hash for row in blocks.select("hash").collect())
    blocks.where(sf.col("hash") != least).select("rows").write.parquet(str(table / "fewer"))
    shutil.rmtree(table / "rows")
    (table / "fewer").rename(table / "rows")
    rewritten(table / "covers.json", lambda said: f"{said}\n{least}")


def replaced_by_the_one_before(_spark: SparkSession, table: Path) -> None:
    shutil.rmtree(table)
    shutil.copytree(table.with_name("hour-0"), table)


def gone(_spark: SparkSession, table: Path) -> None:
    shutil.rmtree(table)


def no_parquet(_spark: SparkSession, table: Path) -> None:
    for file in (table / "rows").glob("*.parquet"):
        file.write_bytes(b"PAR1 and nothing else")


@pytest.mark.slow
def test_a_table_that_is_not_the_one_that_was_noted_is_not_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = DayGenerator(hours=2).until_nothing_is_left()
    *_, (_, _, last) = links(spark, day, tmp_path)
    window, output = day.freeze(3 * HOUR_MS, last), output_of(tmp_path, 2)
    table = tmp_path / "carried" / IDS[NAMES.front] / "hour-1"
    kept = tmp_path / "kept"
    shutil.copytree(table, kept)
    assert carried.opened(spark, output, window) is not None
    with monkeypatch.context() as newer:
        newer.setattr(carried, "VERSION", carried.VERSION + 1)
        with pytest.raises(Unusable, match="another version"):
            carried.opened(spark, output, window)
    with monkeypatch.context() as newer:
        newer.setattr(refusals, "REASONS", refusals.REASONS[::-1])
        with pytest.raises(Unusable, match="other reasons of dead letters"):
            carried.opened(spark, output, window)
    made_again = replace(window, topic_ids={**window.topic_ids, NAMES.ready: "another"})
    opened = carried.opened(spark, output, made_again)
    assert opened is not None
    assert opened.covers(NAMES.ready, (0, 0), (9, 9)) == (0, 0), "the rows belong to the former topic"
    assert opened.covers(NAMES.front, (0, 0), (9, 9)) == (9, 9)
    shorter = {**window.end_offsets, NAMES.ready: (0, 0)}
    with pytest.raises(Unusable, match=r"topic orders.ready ends below"):
        carried.opened(spark, output, replace(window, end_offsets=shorter))
    cases = {
        altered: "its hash is not that of the table which the previous audit wrote",
        with_a_row_twice: "its hash is not that of the table which the previous audit wrote",
        with_other_offsets: "its hash is not that of the table which the previous audit wrote",
        with_a_block_that_went_into_the_offsets: "its hash is not that of the table which the previous audit wrote",
        replaced_by_the_one_before: "its hash is not that of the table which the previous audit wrote",
        no_parquet: "can't be read",
        gone: "can't be read: .*covers.json",
    }
    for change, reason in cases.items():
        change(spark, table)
        spark.catalog.clearCache()
        with pytest.raises(Unusable, match=reason):
            carried.opened(spark, output, window)
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(kept, table)


def test_tables_of_other_columns_have_another_version() -> None:
    columns = sha256(repr(carried._ROW).encode()).hexdigest()
    assert (carried.VERSION, columns[:12]) == (2, "60ffeab525c2"), (
        "raise VERSION, and say so in docs/audit-read-once.md"
    )


@pytest.mark.slow
def test_what_retention_has_removed_since_the_last_link_was_not_settled_by_it(spark: SparkSession) -> None:
    """One of three front records was settled by the first link, and comes out again. The others came later, and retention has removed all
    of them before the second link. Their copies were once taken for doubles, and the verdict was `Violated`."""
    never_ms, due_ms = 24 * HOUR_MS, 20 * HOUR_MS
    day = Day(hours=2, grown_ms=never_ms, edited_ms=never_ms)
    for at_ms, headers in ((600_000, []), (HOUR_MS + 600_000, []), (HOUR_MS + 700_000, level(3))):
        root = ("f", 0, day.append(NAMES.front, 0, at_ms, headers))
        if headers:
            day.append(NAMES.delays, 2, at_ms, hop(root, due_ms))
        else:
            day.append(NAMES.ready, 0, at_ms, release(root, at_ms))
        day.commit(NAMES.front, 0, root[2] + 1, at_ms)
    last = ended(day.freeze(HOUR_MS, None), None)
    again_ms = HOUR_MS * 3 // 2
    day.append(NAMES.ready, 0, again_ms, release(("f", 0, 0), 600_000, wrote_ms=again_ms))
    window = day.freeze(2 * HOUR_MS, last)
    seen = visibility_of(window)
    removed = replace(seen, starts={**seen.starts, NAMES.front: window.end_offsets[NAMES.front]})
    reading = Reading(window=window, visibility=removed)
    places, _ = places_and_blocks(spark, day.reader(spark), reading, Requests(), carries=False)
    doubled = checks.offenders(places, "doubled").collect()
    assert [row.record for row in doubled] == ["f:0:0 r:0:2 r:0:2"]
