"""Windows in which records came out more than once."""

from pyspark.sql import SparkSession

from delayed_topics_audit_testing.rows import Row, Window, release


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
