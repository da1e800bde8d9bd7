"""Windows in which records came out more than once."""

from delayed_topics_audit.repeats import TAKEOVERS, Takeover, repeats, rows
from delayed_topics_audit.session import table
from delayed_topics_core.audit_table import FRONT, PARTITION_BITS
from pyspark.sql import SparkSession

from delayed_topics_audit_testing.rows import AT_MS, Row, Window, release

FRONT_0 = FRONT << PARTITION_BITS


def repeated(
    spark: SparkSession, *, count: int = 3, spread_ms: int = 40, wrote_ms: int = 50_000, after_ms: int = 50_000
) -> Window:
    """Returns a window of records that came out when they came in, and again `after_ms` later."""
    front: list[Row] = [(0, at, at * spread_ms, []) for at in range(count)]
    ready = [(0, at, at * spread_ms, release(("f", 0, at), at * spread_ms)) for at in range(count)]
    again = [
        (0, count + at, at * spread_ms + after_ms, release(("f", 0, at), at * spread_ms, wrote_ms=wrote_ms))
        for at in range(count)
    ]
    return Window(spark=spark, front=front, ready=[*ready, *again])


def taken(ms: int, *lines: int) -> Takeover:
    return Takeover(lines=frozenset(lines), from_ms=AT_MS + ms, to_ms=AT_MS + ms)


def beyond(
    window: Window,
    *taken_over: Takeover,
    known_from_ms: int = 0,
    read_ms: int | None = None,
    exactly_once_from_ms: int | None = None,
) -> tuple[int, int, int]:
    """Returns the number of copies beyond the first, how many of them break the promise, and of how many this is unknown."""
    known = [(AT_MS + known_from_ms, AT_MS + 1_000_000)]
    took = table(window.spark, rows(taken_over), TAKEOVERS)
    read_ms = None if read_ms is None else AT_MS + read_ms
    doubles = repeats(window.places, took, known=known, read_ms=read_ms, exactly_once_from_ms=exactly_once_from_ms)
    found = doubles.collect()
    unknown = sum(r.unexplained + r.untold + r.set_back for r in found)
    return sum(r.extra for r in found), sum(r.beyond for r in found), unknown
