"""One window with every flaw that a record can have, and one window without flaws. Tests of each rule are in the other files, which
`make slow` runs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from delayed_topics_audit.flaws import FLAWS
from delayed_topics_audit.promise import Declared
from delayed_topics_audit.repeats import TAKEOVERS, Takeover, repeats, rows
from delayed_topics_audit.session import table
from delayed_topics_audit_testing.rows import (
    AT_MS,
    BOUNDS,
    DELAYS_MS,
    PROMISE,
    ControlRow,
    Row,
    Window,
    accounts,
    dead_letter,
    fates,
    flaws,
    hop,
    level,
    release,
    retry,
)
from delayed_topics_core.audit_table import FATES, FRONT, PARTITION_BITS
from delayed_topics_core.headers import Header
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW_MS = 10_001
"""Milliseconds after AT_MS, when all records came in. The delay of 10 s is over, and that of 60 s is not."""


@dataclass
class Topics:
    """Rows of front partition 0, and the copies that were made of them. `expected`: for each flaw, the names of the places that have it."""

    front: list[Row] = field(default_factory=list)
    delays: list[Row] = field(default_factory=list)
    ready: list[Row] = field(default_factory=list)
    dead: list[Row] = field(default_factory=list)
    control: list[ControlRow] = field(default_factory=list)
    fates: dict[str, str] = field(default_factory=dict)
    expected: dict[str, list[str]] = field(default_factory=dict)

    def produce(self, headers: Sequence[Header] = (), *, fate: str = "released", flaw: str | None = None) -> int:
        offset = len(self.front)
        self.front.append((0, offset, 0, headers))
        self._expect(f"f:0:{offset}", fate, flaw)
        return offset

    def hop(self, offset: int, partition: int, *, fate: str = "released", flaw: str | None = None) -> int:
        """Returns the offset of the hop in its delays partition."""
        hops = sum(row[0] == partition for row in self.delays)
        self.delays.append((partition, hops, 1, hop(("f", 0, offset), DELAYS_MS[partition])))
        self._expect(f"d:{partition}:{hops}", fate, flaw)
        return hops

    def put(self, ms: int, headers: Sequence[Header], *, partition: int = 0) -> str:
        """Appends a row to the ready topic and returns the name of its place."""
        offset = sum(row[0] == partition for row in self.ready)
        self.ready.append((partition, offset, ms, headers))
        return f"r:{partition}:{offset}"

    def bury(self, headers: Sequence[Header]) -> None:
        self.dead.append((0, len(self.dead), 1, headers))

    def cancel(self, offset: int, *, asked: bool) -> None:
        """The worker appends its answer to the control topic after the dead letter."""
        record_id = b"f:0:%d:id" % offset
        self.control += [(record_id, b"cancel", 0)] * asked + [(record_id, b"cancelled", 2)]
        self.bury(dead_letter(("f", 0, offset), reason=DeadLetterReason.CANCELLED))

    def window(self, spark: SparkSession) -> Window:
        """All rows of the front topic are committed, and so is the first hop of delays partition 1."""
        bounds = replace(BOUNDS, front_committed=(len(self.front) + 1, 0), delays_committed=(0, 1, 0))
        lists = (Declared(list_ms=DELAYS_MS, retry_cap=5, from_ms=0, until_ms=None),)
        promise = replace(PROMISE, lists=lists, overdue_before_ms=AT_MS + NOW_MS)
        return Window(
            spark=spark, front=self.front, delays=self.delays, ready=self.ready, dead=self.dead, control=self.control,
            bounds=bounds, promise=promise,
        )  # fmt: skip

    def _expect(self, name: str, fate: str, flaw: str | None) -> None:
        self.fates[name] = fate
        if flaw is not None:
            self.expected.setdefault(flaw, []).append(name)


def flawless() -> Topics:
    """Records that were released at once, after a hop, as a retry without a hop, and at the cap. Further, one beyond the cap, a cancelled
    one, and one that waits."""
    topics = Topics()
    topics.put(0, release(("f", 0, topics.produce())))
    hopped = topics.hop(topics.produce(level(2), fate="hopped"), 1)
    topics.put(10_000, release(("d", 1, hopped), 10_000, root=("f", 0, 1)))
    topics.put(10_000, release(("f", 0, topics.produce(retry(1))), 10_000, attempt=1))
    topics.put(60_000, release(("f", 0, topics.produce(retry(5))), 60_000, attempt=5))
    topics.bury(dead_letter(("f", 0, topics.produce(retry(6), fate="dead_lettered")), attempt=6))
    topics.cancel(topics.produce(level(2), fate="cancelled"), asked=True)
    topics.hop(topics.produce(level(3), fate="hopped"), 2, fate="pending")
    return topics


def flawed() -> Topics:
    topics = flawless()
    topics.produce(fate="lost", flaw="lost")
    topics.put(-1, release(("f", 0, topics.produce(flaw="early"))))
    topics.put(1_001, release(("f", 0, topics.produce(flaw="late"))))
    # a release does not become on time by the due time that it claims
    topics.put(9_999, release(("f", 0, topics.produce(retry(1), flaw="early")), 9_999, attempt=1))
    twice = topics.produce(flaw="doubled")
    for ms in (0, 500):
        topics.put(ms, release(("f", 0, twice), wrote_ms=ms))
    topics.put(0, release(("f", 0, topics.produce([("trace", b"1")], flaw="changed"))))
    topics.put(0, release(("f", 0, topics.produce(flaw="wrong_partition"))), partition=1)
    topics.put(10_000, release(("f", 0, topics.produce(retry(1), flaw="wrong_attempt")), 10_000, attempt=2))
    topics.put(60_000, release(("f", 0, topics.produce(retry(6), flaw="over_cap")), 60_000, attempt=6))
    spared = topics.produce(retry(5), fate="dead_lettered", flaw="wrongly_dead_lettered")
    topics.bury(dead_letter(("f", 0, spared), attempt=5))
    topics.cancel(topics.produce(fate="cancelled", flaw="wrongly_dead_lettered"), asked=False)
    topics.put(0, release(("f", 0, topics.produce([("dt-deliver-at", b"tomorrow")], flaw="wrongly_released"))))
    topics.hop(topics.produce(level(2), fate="hopped"), 1, fate="pending", flaw="overdue")
    topics.expected["foreign"] = [topics.put(0, [])]
    missing = len(topics.front)
    topics.put(0, release(("f", 0, missing)))
    topics.expected["forged"], topics.fates[f"f:0:{missing}"] = [f"f:0:{missing}"], "released"
    return topics


@pytest.mark.parametrize("made", [flawless, flawed])
def test_each_flaw_is_found_where_it_is_and_every_record_has_one_fate(
    spark: SparkSession, made: Callable[[], Topics]
) -> None:
    topics = made()
    window = topics.window(spark)

    assert flaws(window) == topics.expected
    assert fates(window) == topics.fates
    assert accounts(window) == {line: account(topics, line) for line in ("f:0", "d:1", "d:2")}


def account(topics: Topics, line: str) -> dict[str, int]:
    counted = Counter(fate for name, fate in topics.fates.items() if name.startswith(f"{line}:"))
    forged = sum(name.startswith(f"{line}:") for name in topics.expected.get("forged", ()))
    return {"produced": counted.total() - forged, **{term: counted[term] for term in FATES}}


def test_the_window_with_flaws_has_each_of_them() -> None:
    assert set(flawed().expected) == set(FLAWS) - {"perhaps_unasked"}, "no record has it if all requests are known"


def test_a_double_is_within_the_promise_if_a_crash_explains_it_and_never_with_exactly_once(spark: SparkSession) -> None:
    """A worker wrote the second copy half a second after the first."""
    window = flawed().window(spark)
    crash = Takeover(lines=frozenset({FRONT << PARTITION_BITS}), from_ms=AT_MS + 300, to_ms=AT_MS + 300)

    def beyond(*takeovers: Takeover, exactly_once_from_ms: int | None = None) -> list[tuple[int, int]]:
        found = repeats(
            window.places,
            table(spark, rows(takeovers), TAKEOVERS),
            known=[(AT_MS, AT_MS + 1000)],
            exactly_once_from_ms=exactly_once_from_ms,
        )
        return [(row.extra, row.beyond) for row in found.collect()]

    assert beyond() == [(1, 1)]
    assert beyond(crash) == [(1, 0)]
    assert beyond(crash, exactly_once_from_ms=AT_MS) == [(1, 1)]
