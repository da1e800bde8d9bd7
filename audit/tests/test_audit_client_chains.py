"""How an audit reads the copies that the Python client writes when a record fails."""

from dataclasses import replace

import pytest
from delayed_topics import Record
from delayed_topics.copies import rejected, retry
from delayed_topics_audit import checks
from delayed_topics_audit_testing.rows import BOUNDS, Window, release
from delayed_topics_core.audit_table import DEAD_LETTER
from delayed_topics_core.headers import Root
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = Record(
    key=b"k", value=b"v", id="payment-77", due_at_ms=1, released_at_ms=1, appended_at_ms=1,
    root=Root("f", 0, 0, "id"), topic="orders.ready", partition=0, offset=0,
)  # fmt: skip
SECOND = replace(FIRST, attempt=1, root=Root("f", 0, 1, "id"), offset=1)


def test_a_rejection_ends_the_chain_of_its_retries(spark: SparkSession) -> None:
    names = TopicNames.of("orders")
    again, *_ = retry(FIRST, names, group="billing", error=ValueError("not now"), done_at_ms=1).copies
    dead, *_ = rejected(SECOND, names, group="billing", reason=DeadLetterReason.REJECTED, error="never").copies
    window = Window(
        spark=spark,
        front=[(0, 0, 0, [("dt-id", b"payment-77")]), (0, 1, 1_000, again.headers)],
        ready=[(0, 0, 500, release(("f", 0, 0))), (0, 1, 11_000, release(("f", 0, 1), 11_000, attempt=1))],
        dead=[(0, 0, 12_000, dead.headers)],
    )
    (chain,) = checks.chains(window.places).collect()
    assert (chain.attempts, chain.end, chain.forks) == (1, "rejected", 0)
    link = replace(window, bounds=replace(BOUNDS, front_from=(2, 0), new_from={DEAD_LETTER: (0,)}))
    assert [row.end for row in checks.chains(link.places).collect()] == ["rejected"], "an earlier audit had the retry"
    after = replace(link, bounds=replace(link.bounds, new_from={DEAD_LETTER: (1,)}))
    assert checks.chains(after.places).collect() == [], "an earlier audit had the rejection, too"
