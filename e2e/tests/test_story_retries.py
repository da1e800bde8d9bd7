"""Consumers retry with any client: they send a copy to the front topic, with the attempt raised by one, until the retry cap."""

from collections import Counter

import pytest
from delayed_topics_core import headers as own
from delayed_topics_e2e.java import console_consume, console_produce
from delayed_topics_e2e.plain import Record, TopicReader
from delayed_topics_e2e.tenant import Declared, Tenant
from delayed_topics_e2e.waiting import until

pytestmark = pytest.mark.cluster


def test_plain_java_retries_end_after_exactly_the_cap_in_dead_letter(tenant: Tenant) -> None:
    records, cap = 200, 3
    orders = tenant.declare("orders", delaySeconds=[0, 1, 2], retryCap=cap, partitions=4).apply().wait_ready()
    address = orders.kafka.address()
    console_produce(address, orders.topic, (f"shop:e2e\tk{i}\torder {i}" for i in range(records)))
    for attempt in range(cap + 1):
        lines = console_consume(address, orders.names.ready, group=tenant.namespace, count=records, timeout_seconds=180)
        assert len(lines) == records, f"attempt {attempt}"
        assert all(f"{own.ATTEMPT}:{attempt}," in line for line in lines), lines[0]
        # copies every header, as a consumer that does not know them would, and raises only the attempt
        console_produce(
            address,
            orders.topic,
            (line.replace(f"{own.ATTEMPT}:{attempt},", f"{own.ATTEMPT}:{attempt + 1},") for line in lines),
        )
    with orders.checker() as checker:
        account = checker.settled(produced=records * (cap + 2))
        assert account.clean, account
        assert (account.released, account.dead) == (records * (cap + 1), records)
        assert_exhausted(checker.dead, cap)
        assert set(Counter(r.header(own.ID) for r in checker.ready).values()) == {cap + 1}
        assert {r.header("shop") for r in checker.dead} == {b"e2e"}


def test_a_retry_that_forgets_to_raise_the_attempt_ends_at_the_cap_too(tenant: Tenant) -> None:
    records, cap = 20, 2
    orders = tenant.declare("orders", delaySeconds=[0, 1], retryCap=cap).apply().wait_ready()
    orders.kafka.produce(orders.topic, [(b"k", b"order %d" % i, ()) for i in range(records)])
    dead = fail_every_record(orders, expected=records)
    assert_exhausted(dead, cap)
    attempts = Counter(int(r.header(own.ATTEMPT) or 0) for r in orders.kafka.read(orders.names.ready))
    assert attempts == dict.fromkeys(range(cap + 1), records)


def test_a_header_nobody_can_read_is_a_dead_letter_and_its_neighbours_are_served(tenant: Tenant) -> None:
    orders = tenant.declare("orders", delaySeconds=[0, 1], retryCap=2).apply().wait_ready()
    bad = {
        b"negative": [(own.ATTEMPT, b"-1")],
        b"twice": [(own.DELAY_LEVEL, b"1"), (own.DELAY_LEVEL, b"2")],
        b"arabic": [(own.DELAY_LEVEL, "\u0661".encode())],
        b"exact": [(own.DELIVER_AT, b"1795244907225")],
        b"elsewhere": [(own.TARGET, b"other")],
    }
    good = [(b"same", b"good %d" % i, ((own.DELAY_LEVEL, b"%d" % (i % 3 + 1)),)) for i in range(30)]
    orders.kafka.produce(
        orders.topic, [*good[:15], *((b"same", value, headers) for value, headers in bad.items()), *good[15:]]
    )
    dead = until(
        lambda: orders.kafka.read(orders.names.dead_letter),
        what="the bad records are dead letters",
        enough=lambda found: len(found) >= len(bad),
    )
    assert {r.value: r.header(own.REASON) for r in dead} == {
        b"negative": b"HeaderUnreadable",
        b"twice": b"HeaderTwice",
        b"arabic": b"HeaderUnreadable",
        b"exact": b"NoLadder",
        b"elsewhere": b"TargetNotAllowed",
    }
    assert all(r.header(own.ERROR) for r in dead)
    with orders.checker(lambda record: 0) as checker:
        account = checker.settled(produced=len(good) + len(bad))
        assert (account.lost, account.doubled, account.released, account.dead) == (0, 0, len(good), len(bad))


def assert_exhausted(dead: list[Record], cap: int) -> None:
    assert {r.header(own.REASON) for r in dead} == {b"RetryCapExceeded"}
    assert {r.header(own.ATTEMPT) for r in dead} == {b"%d" % (cap + 1)}
    assert len({r.header(own.ID) for r in dead}) == len(dead)


def fail_every_record(orders: Declared, *, expected: int) -> list[Record]:
    """Copies all released records back to the front topic unchanged, until there are `expected` dead letters, and returns these."""
    reader = TopicReader(orders.kafka.config, orders.names.ready)

    def turn() -> list[Record]:
        orders.kafka.produce(orders.topic, [(r.key, r.value, r.headers) for r in reader.read_new()])
        return orders.kafka.read(orders.names.dead_letter)

    try:
        return until(
            turn,
            what=f"{expected} records are dead letters",
            enough=lambda dead: len(dead) >= expected,
        )
    finally:
        reader.close()
