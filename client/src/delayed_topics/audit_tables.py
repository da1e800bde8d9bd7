"""Finds out from the Parquet tables of audits what happened to one record, and what each audit found. Makes no calls to Kafka.

A row is about the record at one place (docs/audit-table.md). Each audit of a chain covers only the records since the audit before it,
so the way of a record is put together from the rows of all tables. If several rows are about one place, the newest audit counts.
"""

import glob
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import duckdb
from delayed_topics_core.audit_table import (
    DEAD_LETTER,
    FATES,
    FLAW_NAMES,
    LOST,
    MAX_OFFSET,
    MAX_PARTITION,
    OFFSET_BITS,
    PARTITION_BITS,
    PENDING,
    READY,
    TableDescription,
    index_file,
)
from delayed_topics_core.errors import DelayedTopicsError, UnreadableRecord
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_core.words import counted, shortened

from delayed_topics.moments import shown_moment
from delayed_topics.way import RecordNotFound, RecordPlace

State = Literal["Released", "DeadLettered", "Cancelled", "Pending", "Lost", "Hopped", "Foreign", "Rejected", "Unknown"]

_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark writes the schema of a table, with the metadata of its columns, into each file."""


class AuditTableUnusable(DelayedTopicsError):
    """The folder has no table of an audit of this topic, or none that this version can read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The table of one audit. `verdict` is None if the folder does not also have the table of all audits."""

    description: TableDescription
    files: tuple[Path, ...]
    verdict: str | None

    def shown(self, place: int) -> str:
        """Returns the place as `<topic>-<partition>@<offset>`."""
        line = place >> OFFSET_BITS
        topic_number, topics = line >> PARTITION_BITS, self.description.topics
        topic = topics[topic_number] if topic_number < len(topics) else f"topic {topic_number}"
        return f"{topic}-{line & MAX_PARTITION}@{place & MAX_OFFSET}"


class _Row(NamedTuple):
    """The columns that are read from the table."""

    place: int
    root: int | None
    appended_ms: int | None
    due_ms: int | None
    attempt: int | None
    chain: int | None
    ends: int
    first_at: int | None
    last_at: int | None
    first_ms: int | None
    last_ms: int | None
    reason: str | None
    late_ms: int | None
    fate: int | None
    flaws: int

    @property
    def came_in_at(self) -> int:
        """The place where the record's attempt came in."""
        return self.place if self.root is None else self.root


_TableRow = tuple[Table, _Row]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a record's way. `place` is spelled `<topic>-<partition>@<offset>`. Unknown values are None."""

    what: str
    place: str
    at_ms: int | None = None
    due_at_ms: int | None = None
    late_ms: int | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """What one audit found: by place, the fates of an attempt's records that were in its window, and their flaws."""

    audit: str
    frozen_at_ms: int
    verdict: str | None
    fates: Mapping[str, str]
    flaws: Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedWay:
    """The way of one attempt. `statements` begin with the oldest audit. `others` has the places of the record's other attempts, and of its
    rejection. `due_at_ms` is the earliest time at which a pending record comes out.
    """

    attempt: int | None
    state: State
    due_at_ms: int | None
    steps: Sequence[Step]
    statements: Sequence[Statement]
    others: Sequence[str]


def tables_in(folder: Path, names: TopicNames, place: RecordPlace) -> tuple[list[Table], list[str]]:
    """Returns the tables of audits of the topic that may have the place, oldest first, and sentences about tables that are left out.

    `folder` is the folder of one table, of one audit, or of all audits. Raises AuditTableUnusable.
    """
    kept = {file.parent for pattern in ("*", "places/*", "*/places/*") for file in folder.glob(f"{pattern}.parquet")}
    tables, unusable, others = [], [], set()
    for places in sorted(kept):
        try:
            table = _table(places, names.front)
        except AuditTableUnusable as e:
            unusable.append(str(e))
            continue
        if table.description.topics[0] == names.front:
            tables.append(table)
        else:
            others.add(table.description.topics[0])
    if not tables and unusable:
        raise AuditTableUnusable(unusable[-1])
    if not tables:
        found = f"It has tables of {shortened(sorted(others))}" if others else "It has no Parquet files of an audit"
        raise AuditTableUnusable(f"{folder} has no table of an audit of {names.front}. {found}")
    notes = [f"{counted(len(unusable), 'table')} not read: {unusable[-1]}"] if unusable else []
    tables.sort(key=lambda table: table.description.frozen_at_ms)
    topic_number = names.topics.index(place.topic)
    wanted = place.topic_id or tables[-1].description.topic_ids[topic_number]
    same = [table for table in tables if table.description.topic_ids[topic_number] == wanted]
    if not same:
        raise AuditTableUnusable(
            f"no table in {folder} is of the topic {place.topic} with the id {wanted}. The topic was deleted and created again"
        )
    if len(same) < len(tables):
        former = counted(len(tables) - len(same), "table")
        notes.append(f"{former} not read, of another topic that had the name {place.topic}")
    return same, notes


def ways_at(tables: Sequence[Table], names: TopicNames, place: RecordPlace) -> list[AuditedWay]:
    """Returns the ways of the attempts that the record at this place belongs to. There are several only if a copy is forged.

    Raises RecordNotFound, AuditTableUnusable.
    """
    line = (names.topics.index(place.topic) << PARTITION_BITS) + place.partition
    number = (line << OFFSET_BITS) + place.offset
    fits = place.partition <= MAX_PARTITION and place.offset <= MAX_OFFSET
    seen = _rows(tables, f"{number} IN (place, root, first_at, last_at)") if fits else []
    if not seen:
        newest, one_in = tables[-1].description, max(table.description.sample_one_in for table in tables)
        sampled = f", which looked at one record in {one_in:,}" if one_in > 1 else ""
        raise RecordNotFound(
            f"{place.topic}-{place.partition}@{place.offset} is in no table of {counted(len(tables), 'audit')}{sampled}. "
            f"The newest is {newest.audit}, of {shown_moment(newest.frozen_at_ms)}"
        )
    roots = {row.came_in_at for _, row in seen}
    table_rows = _rows(tables, f"place IN ({_listed(roots)}) OR root IN ({_listed(roots)})")
    chains = {row.chain for _, row in table_rows if row.chain is not None}
    related = _rows(tables, f"chain IN ({_listed(chains)})") if chains else []
    return [_way(root, [one for one in table_rows if one[1].came_in_at == root], related) for root in sorted(roots)]


def _table(places: Path, topic: str) -> Table:
    """Reads the description of a table, which each of its files must repeat. A truncated file has none. Raises AuditTableUnusable."""
    files = tuple(sorted(places.glob("*.parquet")))
    query = "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = ?"
    try:
        schemas = duckdb.execute(query, [[glob.escape(str(file)) for file in files], _SCHEMA]).fetchall()
        descriptions = {TableDescription.decode(schema) for (schema,) in schemas or [("",)]}
    except (duckdb.Error, UnreadableRecord) as e:
        raise AuditTableUnusable(f"{places} is not a table of an audit that can be read: {_reason(e)}") from e
    if len(descriptions) > 1 or len(schemas) < len(files):
        raise AuditTableUnusable(
            f"{places} is not a table of an audit that can be read: not all of its files are of one audit"
        )
    (description,) = descriptions
    return Table(description=description, files=files, verdict=_verdict(places.parent.parent, topic, description))


def _verdict(audits: Path, topic: str, description: TableDescription) -> str | None:
    row = audits / index_file(topic, description.frozen_at_ms, description.audit)
    if not row.exists():
        return None
    try:
        found = duckdb.execute("SELECT verdict FROM read_parquet(?)", [glob.escape(str(row))]).fetchall()
    except duckdb.Error as e:
        raise AuditTableUnusable(f"{row} can't be read: {_reason(e)}") from e
    return str(found[0][0]) if found else None


def _rows(tables: Sequence[Table], condition: str) -> list[_TableRow]:
    """Returns the rows that meet the SQL condition, with their tables. The rows of the oldest audit come first."""
    by_file = {str(file): table for table in tables for file in table.files}
    query = (
        f"SELECT {', '.join(_Row._fields)}, filename FROM read_parquet(?, filename = true, hive_partitioning = false)"
    )
    try:
        found = duckdb.execute(f"{query} WHERE {condition}", [[glob.escape(file) for file in by_file]]).fetchall()
    except duckdb.Error as e:
        raise AuditTableUnusable(f"the tables of audits can't be read: {_reason(e)}") from e
    table_rows = [(by_file[filename], _Row(*columns)) for *columns, filename in found]
    return sorted(table_rows, key=lambda one: (one[0].description.frozen_at_ms, one[1].place))


def _way(root: int, table_rows: Sequence[_TableRow], related: Iterable[_TableRow]) -> AuditedWay:
    by_place: dict[int, list[_TableRow]] = defaultdict(list)
    for table, row in table_rows:
        by_place[row.place].append((table, row))
    known = {place: _MergedRow(rows) for place, rows in by_place.items()}
    hops = sorted(known.keys() - {root}, key=lambda place: (known[place].step.at_ms or 0, place))
    ends = _ends(table_rows)
    unended = [known[place] for place in (root, *hops) if place in known]
    pending = next((one for one in unended if one.fate == PENDING), None)
    state = _state(root, ends, [one.fate for one in unended])
    chains = {row.chain for _, row in table_rows if row.chain is not None}
    others = {
        row.place: f"{table.shown(row.place)} ({_role(row)})"
        for table, row in related
        if row.chain in chains and row.root is None and row.place != root
    }
    first = [known[root].step] if root in known else [Step(what="came in", place=table_rows[0][0].shown(root))]
    return AuditedWay(
        attempt=next((one.attempt for one in unended if one.attempt is not None), None),
        state=state,
        due_at_ms=pending.step.due_at_ms if pending is not None and state == "Pending" else None,
        steps=[*first, *(known[place].step for place in hops), *ends],
        statements=list(_statements(table_rows)),
        others=[others[place] for place in sorted(others)],
    )


class _MergedRow:
    """Merges all rows about one place, by taking the newest value of each column."""

    def __init__(self, table_rows: Sequence[_TableRow]) -> None:
        newest, row = table_rows[-1]
        values = {name: self._newest(table_rows, name) for name in ("appended_ms", "due_ms", "attempt", "fate")}
        self.attempt, fate = values["attempt"], values["fate"]
        self.fate = FATES[fate] if fate is not None else None
        self.step = Step(
            what=_what_is_at(row),
            place=newest.shown(row.place),
            at_ms=values["appended_ms"],
            due_at_ms=values["due_ms"],
        )

    @staticmethod
    def _newest(table_rows: Sequence[_TableRow], name: str) -> int | None:
        return next((value for _, row in reversed(table_rows) if (value := getattr(row, name)) is not None), None)


def _what_is_at(row: _Row) -> str:
    if _topic_number(row.place) >= READY:
        return "rejected" if _topic_number(row.place) == DEAD_LETTER else "foreign"
    return "came in" if row.root is None else "hopped"


def _ends(table_rows: Sequence[_TableRow]) -> list[Step]:
    """Returns the known steps where the attempt came out. The tables have only the first and the last place, and there may be more."""
    found: dict[str, Step] = {}
    for table, row in table_rows:
        # if the ends are in several partitions, it is unknown which time belongs to which end
        timed = row.first_at is None or row.ends == 1 or _line(row.first_at) == _line(row.last_at or 0)
        ends = [(row.first_at, row.first_ms, row.late_ms)]
        if row.last_at != row.first_at:
            ends.append((row.last_at, row.last_ms if row.ends > 1 else None, None))
        for place, at_ms, late_ms in ends:
            if place is None or _topic_number(place) < READY:
                continue
            dead = _topic_number(place) == DEAD_LETTER
            step = Step(
                what="dead-lettered" if dead else "released",
                place=table.shown(place),
                at_ms=at_ms if timed else None,
                late_ms=late_ms if timed and not dead else None,
                reason=row.reason if dead else None,
            )
            former = found.get(step.place)
            if former is None or former.at_ms is None:
                found[step.place] = step
    return sorted(found.values(), key=lambda step: (step.at_ms is None, step.at_ms, step.place))


def _state(root: int, ends: Sequence[Step], fates: Sequence[str | None]) -> State:
    if _topic_number(root) >= READY:
        return "Rejected" if _topic_number(root) == DEAD_LETTER else "Foreign"
    dead = [step for step in ends if step.what == "dead-lettered"]
    if dead:
        cancelled = {step.reason for step in dead} == {DeadLetterReason.CANCELLED.value}
        return "Cancelled" if cancelled else "DeadLettered"
    if ends:
        return "Released"
    by_fate: dict[str, State] = {LOST: "Lost", PENDING: "Pending", "hopped": "Hopped"}
    return next((state for fate, state in by_fate.items() if fate in fates), "Unknown")


def _statements(table_rows: Sequence[_TableRow]) -> Iterator[Statement]:
    by_audit: dict[tuple[int, str], list[_TableRow]] = defaultdict(list)
    for table, row in table_rows:
        if row.fate is not None or row.flaws:
            by_audit[table.description.frozen_at_ms, table.description.audit].append((table, row))
    for rows in by_audit.values():
        table = rows[0][0]
        yield Statement(
            audit=table.description.audit,
            frozen_at_ms=table.description.frozen_at_ms,
            verdict=table.verdict,
            fates={table.shown(row.place): FATES[row.fate] for _, row in rows if row.fate is not None},
            flaws={table.shown(row.place): _flaws_of(row.flaws) for _, row in rows if row.flaws},
        )


def _flaws_of(bits: int) -> list[str]:
    """Returns the names of the flaws. A flaw of a newer version has its bit in the place of a name."""
    bits_set = [at for at in range(bits.bit_length()) if bits & 1 << at]
    return [FLAW_NAMES[at] if at < len(FLAW_NAMES) else str(1 << at) for at in bits_set]


def _role(row: _Row) -> str:
    return "rejected" if row.attempt is None else f"attempt {row.attempt}"


def _line(place: int) -> int:
    return place >> OFFSET_BITS


def _topic_number(place: int) -> int:
    return _line(place) >> PARTITION_BITS


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _reason(error: Exception) -> str:
    """Returns only the first line of the message, because DuckDB shows the query on the others."""
    return str(error).partition("\n")[0]
