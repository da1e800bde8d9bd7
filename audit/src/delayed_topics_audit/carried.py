"""The table that a link of a chain of audits hands on: the parsed rows of Kafka that the next link would otherwise read again.

Facts are made from these rows, whatever the window is. A row has places, times, numbers and hashes, and nothing of a record's content. So
the table and the rows appended since give the same facts as reading everything again. Rows are stored in blocks, one for each chunk of
places. The hash of the table covers its offsets and the hashes of its blocks as they are read here, so that a table that was altered,
shortened or extended is not accepted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from typing import Any, Final

from delayed_topics_core.audit_table import MAX_OFFSET, PARTITION_BITS
from delayed_topics_core.audit_window import AuditWindow, Offsets
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers
from delayed_topics_audit import refusals, session
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.output import Output
from delayed_topics_audit.place import chunk_of, line_of, offset_of, partition_of, topic_number_of
from delayed_topics_audit.promise import CLOCKS_MS

VERSION: Final = 2
"""The version of the rows' meaning. Raise it with each change of `facts.parse_…` that gives a row another meaning."""

_ROW: Final = {
    "at": "long", "at_ms": "long", "log_append": "boolean", "origin": "long", "root": "long", "hop": "boolean",
    "workers": "boolean", "attempt": "int", "hops": "int", "level": "int", "reason": "int", "due_ms": "long", "wrote_ms": "long",
    "size": "long", "garbled": "boolean", "target": "boolean", "misplaced": "boolean", "elsewhere": "boolean",
    "content": "long", "chain": "long", "id": "long",
}  # fmt: skip
"""The columns for all topics. Where a topic has no such column, it is null. `at` comes first, because blocks are sorted by it."""
_BLOCKS: Final = f"rows array<struct<{', '.join(f'{name}: {kind}' for name, kind in _ROW.items())}>>"
_COVERS: Final = "covers.json"
_PARQUET: Final = "rows"


class Unusable(Exception):
    """The table can't be used. The message says why."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the previous link. `blocks` hold all rows from `from_offsets` (inclusive) to `end_offsets` (exclusive), by topic and
    partition."""

    blocks: DataFrame
    from_offsets: Offsets
    end_offsets: Offsets

    def covers(self, topic: str, starts: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
        """Returns for each partition the offset up to which the table has all rows from `starts` on, or the start itself if it has none."""
        to = list(starts)
        known = zip(self.from_offsets.get(topic, ()), self.end_offsets.get(topic, ()), strict=True)
        for p, ((first, end), start) in enumerate(zip(known, starts, strict=False)):
            if first <= start < end:
                to[p] = min(end, ends[p])
        return tuple(to)


def blocks_of(parsed: Sequence[DataFrame]) -> DataFrame:
    """Returns the blocks of the rows that `facts.parse_…` returns for each topic."""
    rows = reduce(DataFrame.unionAll, (uniform(rows) for rows in parsed))
    of_chunk = sf.sort_array(sf.collect_list(sf.struct(*_ROW))).alias("rows")
    return rows.groupBy(chunk_of(sf.col("at")).alias("chunk")).agg(of_chunk).select("rows")


def rows_of(blocks: DataFrame, topic_number: int) -> DataFrame:
    """Returns the rows of that topic, as `facts.parse_…` returns them."""
    return blocks.where(topic_number_of(_first()) == topic_number).select(sf.inline("rows"))


def between(rows: DataFrame, starts: Sequence[int], ends: Sequence[int]) -> DataFrame:
    """Returns the rows of one topic between these offsets, by partition."""
    limits = [{"nr": p, "start": start, "end": end} for p, (start, end) in enumerate(zip(starts, ends, strict=True))]
    known = sf.broadcast(session.table(rows.sparkSession, limits, "nr: int, start: long, end: long"))
    offset = offset_of(sf.col("at"))
    there = (offset >= sf.col("start")) & (offset < sf.col("end"))
    return rows.join(known, (partition_of(sf.col("at")) == sf.col("nr")) & there).select(*_ROW)


def opened(spark: SparkSession, output: Output, window: AuditWindow) -> Table | None:
    """Returns the table of the previous link, or None if the window names none. Raises Unusable."""
    if window.carried is None:
        return None
    folder = f"{output.carried(window.topic_ids[window.topic])}/{window.carried.folder}"
    try:
        covers = output.read_text(spark, f"{folder}/{_COVERS}")
        blocks = session.checkpointed(spark.read.schema(_BLOCKS).parquet(f"{folder}/{_PARQUET}"))
        if _hash(covers, blocks) == window.carried.sha256:
            return _table(json.loads(covers), blocks, window)
    except (PySparkException, Py4JError) as e:
        raise Unusable(f"it can't be read: {session.reason(e, {})}") from e
    raise Unusable("its hash is not that of the table which the previous audit wrote")


def written(
    spark: SparkSession,
    output: Output,
    window: AuditWindow,
    blocks: DataFrame,
    bounds: Bounds,
    *,
    starts: Offsets,
    since_ms: int | None,
) -> str:
    """Writes the table for the next link, and returns its hash. `blocks` have the rows from `starts` on. `since_ms` is the earliest time at
    which the attempt of a pending record began.

    Removes older tables of these topics, except for that of the previous link: if this link fails, the next one begins where this one
    began. Raises AuditFailed."""
    began_ms = min(window.frozen_at_ms, since_ms or window.frozen_at_ms) - CLOCKS_MS
    last_over = _last_over(blocks, bounds, began_ms)
    from_offsets = {
        name: [
            last_over.get((topic_number << PARTITION_BITS) + p, start - 1) + 1 for p, start in enumerate(starts[name])
        ]
        for topic_number, name in enumerate(window.topics)
    }
    covers = json.dumps(
        {
            "version": VERSION,
            "reasons": [reason.value for reason in refusals.REASONS],
            "from_offsets": from_offsets,
            "topics": {name: window.topic_ids[name] for name in window.topics},
            "end_offsets": window.end_offsets,
        }
    )
    lines = [
        {"line": (topic_number << PARTITION_BITS) + p, "needed": first}
        for topic_number, name in enumerate(window.topics)
        for p, first in enumerate(from_offsets[name])
    ]
    known = sf.broadcast(session.table(spark, lines, "line: int, needed: long"))
    in_line = (line_of(_first()) == sf.col("line")) & (offset_of(_last()) >= sf.col("needed"))
    needed = blocks.join(known, in_line).select("rows")
    parent = output.carried(window.topic_ids[window.topic])
    output.write_table(needed, f"{parent}/{output.name}/{_PARQUET}")
    output.write_text(spark, f"{parent}/{output.name}/{_COVERS}", covers)
    output.keep_only(spark, parent, {output.name, *([window.carried.folder] if window.carried else ())})
    return _hash(covers, needed)


def _table(covers: Mapping[str, Any], blocks: DataFrame, window: AuditWindow) -> Table:
    if covers["version"] != VERSION:
        raise Unusable("an audit of another version wrote it")
    if covers["reasons"] != [reason.value for reason in refusals.REASONS]:
        raise Unusable("an audit that knows other reasons of dead letters wrote it")
    if window.topics[: len(covers["topics"])] != tuple(covers["topics"]):
        raise Unusable("the previous audit read other ready topics")
    # the rows of a topic that was created again since do not count
    same = [topic for topic, topic_id in covers["topics"].items() if window.topic_ids[topic] == topic_id]
    from_offsets, end_offsets = (
        {topic: tuple(covers[name][topic]) for topic in same} for name in ("from_offsets", "end_offsets")
    )
    for topic, known in end_offsets.items():
        if len(known) > len(window.end_offsets[topic]) or any(map(int.__gt__, known, window.end_offsets[topic])):
            raise Unusable(f"topic {topic} ends below the offsets that the previous audit had read")
    return Table(blocks=blocks, from_offsets=from_offsets, end_offsets=end_offsets)


def _last_over(blocks: DataFrame, bounds: Bounds, began_ms: int) -> dict[int, int]:
    """Returns by line the last offset that the next link need not read again, because its record does not wait and came before the oldest
    that does."""
    at = sf.col("at")
    waits = headers.or_false(bounds.begun(at) & ~bounds.settled(at))
    recent = sf.col("at_ms") >= began_ms
    over = blocks.select(sf.inline("rows")).where(~(waits | recent)).groupBy(line_of(at).alias("line")).agg(sf.max(at))
    return {line: last & MAX_OFFSET for line, last in over.collect()}


def uniform(rows: DataFrame) -> DataFrame:
    """Returns the rows with the columns that are common to all topics."""
    there = set(rows.columns)
    columns = {name: sf.col(name) if name in there else sf.lit(None) for name in _ROW}
    return rows.select(*(column.cast(_ROW[name]).alias(name) for name, column in columns.items()))


def _hash(covers: str, blocks: DataFrame) -> str:
    """Returns the hash of a table, whatever the order of its blocks. `covers` is hashed by itself, so that no part of it can pass for a
    block."""
    of_block = sf.coalesce(sf.sha2(sf.to_json("rows"), 256), sf.lit("")).alias("hash")
    hashes = sorted(row.hash for row in blocks.select(of_block).collect())
    return sha256("\n".join((sha256(covers.encode()).hexdigest(), *hashes)).encode()).hexdigest()


def _first() -> Column:
    return sf.get("rows", 0)["at"]


def _last() -> Column:
    return sf.element_at("rows", -1)["at"]
