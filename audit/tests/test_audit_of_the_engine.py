"""The audit has to read the headers of this project as the engine does, because it checks every copy against its record."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import delayed_topics_engine as engine
import pytest
from delayed_topics_audit import refusals
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit_testing.rows import AT_MS, PROMISE, Row, Window, dead_letter, flaws
from delayed_topics_core.headers import DELIVER_AT, TARGET, Header
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_worker_testing.engine_records import OUTAGE_BUDGET_SECONDS, TOPIC_ID, Case, Cases
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = 1_000
FIRST = 2**41
"""Above the offsets that Cases uses as origins of hops, so that no case is the origin of another."""
PARTITIONS = 128
WORKERS_REASONS = [reason for reason in DeadLetterReason if reason != DeadLetterReason.REJECTED]
OF_DUE_TIMES = (DeadLetterReason.NO_LADDER, DeadLetterReason.MAX_DELAY_EXCEEDED)
OF_TARGETS = (DeadLetterReason.TARGET_NOT_ALLOWED, DeadLetterReason.TARGET_UNAVAILABLE)
EVERYWHERE = Bounds(
    front_from=(0,) * PARTITIONS, front_committed=(2 * FIRST,) * PARTITIONS,
    delays_from=(0,) * PARTITIONS, delays_committed=(2 * FIRST,) * PARTITIONS,
    ready_partitions=(1, PARTITIONS), retry_cap=2**31, least_limit_bytes=0, front_id=TOPIC_ID, delays_id=TOPIC_ID,
    target_partitions={4: PARTITIONS, 5: PARTITIONS},
)  # fmt: skip


def cases(seed: int) -> list[Case]:
    """Draws cases, each at a place of its own. No worker sees a header key with a zero byte, because librdkafka cuts it there."""
    drawn = Cases(Random(seed))
    every = [drawn.draw() for _ in range(CASES)]
    return [
        replace(case, partition=min(case.partition, 99), offset=FIRST + at, headers=whole(case.headers))
        for at, case in enumerate(every)
    ]


def whole(headers: Sequence[Header] | None) -> Sequence[Header] | None:
    return headers and [header for header in headers if "\0" not in header[0]]


def copied(case: Case, random: Random) -> engine.Copy:
    """Returns the first copy that the engine makes of the record. One in ten is made as if Kafka had refused a copy as too large."""
    record, policy = case.record(), case.setting.policy
    if random.random() < 0.1:
        return engine.too_large(record, value_bytes=5, foreign_headers=random.random() < 0.5)
    found = engine.decide(record, policy, case.now_ms)
    for overdue_ms in (0, OUTAGE_BUDGET_SECONDS * 1000):  # a record may wait that long in memory for its topic
        if isinstance(found, engine.Wait):
            found = engine.take_turn(record, found, policy, found.due_at_ms + overdue_ms)
    assert isinstance(found, engine.Copy)
    return found


def headers_of(case: Case) -> Sequence[Header]:
    """Returns the headers as Java shows them, also where a key is not UTF-8."""
    return [("\ufffd", b"1")] if case.headers is None else case.headers


def named(headers: Sequence[tuple[bytes, bytes | None]]) -> list[Header]:
    return [(name.decode(), value) for name, value in headers]


def test_what_the_engine_makes_of_any_record_is_right(spark: SparkSession) -> None:
    seed = Random().randrange(10**6)
    print("seed", seed)  # to repeat a failure
    random = Random(seed)
    rows: dict[str, list[Row]] = {"f": [], "d": [], "ready": [], "delays": [], "dead-letter": []}
    others: dict[str, list[Row]] = {"invoices": [], "missing": []}
    cut: dict[int, None] = {}
    hopped = set()
    for case in cases(seed):
        copy = copied(case, random)
        rows[case.topic_letter].append((case.partition, case.offset, 0, headers_of(case)))
        (rows | others)[copy.target].append((0, case.offset, 0, named(copy.headers)))
        if copy.target == "delays":  # the window does not have these copies
            hopped.add(f"{case.topic_letter}:{case.partition}:{case.offset}")
        if copy.reason == DeadLetterReason.TOO_LARGE:
            cut[case.offset] = None
    assert all(rows.values()), "the cases take every way that a record can take"
    noted_later = replace(PROMISE, lists=[replace(PROMISE.lists[0], from_ms=AT_MS)])  # the cases have caps of their own
    window = Window(
        spark=spark, front=rows["f"], delays=rows["d"], ready=rows["ready"], dead=rows["dead-letter"], dead_values=cut,
        others=others, bounds=EVERYWHERE, promise=noted_later,
    )  # fmt: skip
    found = flaws(window)
    for flaw in ("changed", "wrong_attempt", "wrongly_dead_lettered", "wrongly_released"):
        assert flaw not in found, found[flaw]
    assert set(found.get("lost", ())) == hopped


@pytest.mark.slow
def test_no_other_reason_than_the_engines_is_right(spark: SparkSession) -> None:
    """Some reasons are left out, because a record's own headers do not decide them. These are the retry cap, the size, the ladder for a
    due time, and whether another ready topic was allowed and available."""
    seed = Random().randrange(10**6)
    print("seed", seed)
    random = Random(seed)
    others = [
        reason for reason in WORKERS_REASONS if reason not in (*refusals.NOT_TAKEN, DeadLetterReason.RETRY_CAP_EXCEEDED)
    ]
    front: list[Row] = []
    dead: list[Row] = []
    for case in cases(seed):
        if case.topic_letter == "f" and case.headers is not None:
            found = engine.decide(case.record(), case.setting.policy, case.now_ms)
            right = found.reason if isinstance(found, engine.Copy) else None
            names = {name for name, _ in case.headers}
            unknown = [*(OF_DUE_TIMES if DELIVER_AT in names else ()), *(OF_TARGETS if TARGET in names else ())]
            wrong = random.choice([reason for reason in others if reason != right and reason not in unknown])
            front.append((0, case.offset, 0, case.headers))
            dead.append((0, case.offset, 1, dead_letter(("f", 0, case.offset), reason=wrong)))
    window = Window(spark=spark, front=front, dead=dead, bounds=EVERYWHERE)
    assert flaws(window)["wrongly_dead_lettered"] == [f"f:0:{at}" for _, at, _, _ in front]
