"""A record that cannot be honoured becomes a dead letter with a reason, and its neighbours are not affected."""

import pytest
from confluent_kafka import Producer
from delayed_topics_core.headers import Header
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.foreign_client import produce_with_raw_header_key
from delayed_topics_worker_testing.harness import WorkerHarness

pytestmark = pytest.mark.broker

BAD: list[tuple[list[Header], bytes]] = [
    ([("dt-attempt", b"1"), ("dt-attempt", b"1")], b"HeaderTwice"),
    ([("dt-attempt", b"-1")], b"HeaderUnreadable"),
    ([("dt-attempt", b" 5 ")], b"HeaderUnreadable"),
    ([("dt-attempt", b"1e9")], b"HeaderUnreadable"),
    ([("dt-attempt", "٣".encode())], b"HeaderUnreadable"),
    ([("dt-attempt", None)], b"HeaderUnreadable"),
    ([("dt-attempt", b"9" * 30)], b"HeaderUnreadable"),
    ([("dt-attempt", b"4")], b"RetryCapExceeded"),
    ([("dt-delay-level", b"0")], b"HeaderUnreadable"),
    ([("dt-deliver-at", b"1900000000000")], b"NoLadder"),
    ([("dt-target", b"elsewhere")], b"TargetNotAllowed"),
    ([("dt-target", b"no topic")], b"HeaderUnreadable"),
]

READABLE_HEADERS = 99_983
"""The most foreign headers with which Kafka's client can read all copies of a record."""


def test_headers_that_cannot_be_honoured_are_dead_letters_with_their_reason(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1, retry_cap=3)
    harness.start(orders)
    for n, (headers, _) in enumerate(BAD):
        orders.produce(b"bad %d" % n, key=b"k", headers=headers, partition=0)
        orders.produce(b"good %d" % n, headers=[("trace", b"%d" % n)], partition=0)
    orders.flush()

    ready, dead = orders.ready(len(BAD)), orders.dead(len(BAD))

    assert [r.value for r in sorted(ready, key=lambda r: r.offset)] == [b"good %d" % n for n in range(len(BAD))]
    reasons = {r.value: r.header("dt-reason") for r in dead}
    assert reasons == {b"bad %d" % n: reason for n, (_, reason) in enumerate(BAD)}
    assert all(r.key == b"k" and r.header("dt-error") for r in dead)
    assert all((r.header("dt-origin") or b"").startswith(b"f:0:") for r in dead)


def test_a_header_key_that_is_not_utf8_costs_its_record_the_headers_only(harness: WorkerHarness) -> None:
    """The broker has not read the record, because it is compressed as the topic is."""
    orders = harness.declare((0,), front_partitions=1)
    harness.start(orders)
    for n in range(3):
        orders.produce(b"before %d" % n, headers=[("trace", b"x")], partition=0)
    orders.flush()
    value = b"v" * 1000
    produce_with_raw_header_key(
        harness.connection, orders.names.front, partition=0, key=b"k", value=value, headers=[(b"caf\xe9", b"latin-1")]
    )
    for n in range(3):
        orders.produce(b"after %d" % n, headers=[("trace", b"x")], partition=0)
    orders.flush()

    ready = orders.ready(6)
    (dead,) = orders.dead(1)

    assert all(r.foreign == [("trace", b"x")] for r in ready)
    assert (dead.key, dead.value, dead.foreign) == (b"k", value, [])
    assert dead.header("dt-reason") == b"HeaderUnreadable"
    assert dead.header("dt-origin") == b"f:0:3"


def test_a_record_that_a_broker_compresses_anew_has_a_replacement_character_where_a_header_key_is_not_utf8(
    harness: WorkerHarness,
) -> None:
    orders = harness.declare((0,), front_partitions=1)
    harness.start(orders)
    produce_with_raw_header_key(
        harness.connection, orders.names.front, partition=0, key=b"k", value=b"v", headers=[(b"caf\xe9", b"latin-1")]
    )
    (released,) = orders.ready(1)
    assert released.foreign == [("caf\ufffd", b"latin-1")]


def test_a_record_with_more_headers_than_can_be_read_is_a_dead_letter_and_never_early(harness: WorkerHarness) -> None:
    """Kafka's client reads no record with more than 100,000 headers, so it cannot read a copy that exceeds this with its `dt-` headers."""
    orders = harness.declare((0, 3, 3600), front_partitions=1)
    harness.start(orders)
    orders.produce(b"served", partition=0)
    orders.flush()
    orders.ready(1)
    counts = (READABLE_HEADERS, READABLE_HEADERS + 1, 100_001)
    for count in counts:
        level = b"2" if count == READABLE_HEADERS else b"3"
        own: list[Header] = [("dt-delay-level", level), ("dt-attempt", b"2")]
        orders.produce(b"%d" % count, headers=[*own, *[("h", None)] * count], partition=0)
    orders.flush()

    (hopped,) = (r for r in orders.ready(2) if r.value != b"served")
    dead = orders.dead(2)

    assert hopped.value == b"%d" % READABLE_HEADERS
    assert hopped.foreign == [("h", None)] * READABLE_HEADERS
    assert (hopped.header("dt-attempt"), hopped.header("dt-hops")) == (b"2", b"1")
    assert [r.value for r in dead] == [b"%d" % count for count in counts[1:]]
    assert {(r.header("dt-reason"), len(r.foreign)) for r in dead} == {(b"HeaderUnreadable", 0)}


def test_forged_worker_headers_are_dropped(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    harness.start(orders)
    forged: list[Header] = [
        ("dt-root", b"f:7:7:forged"),
        ("dt-origin", b"f:7:7"),
        ("dt-due-at", b"1"),
        ("dt-hops", b"9"),
        ("dt-reason", b"Rejected"),
    ]
    orders.produce(b"v", headers=forged, partition=1)
    orders.flush()

    (record,) = orders.ready(1)

    assert record.header("dt-root") == f"f:1:0:{orders.topics.ids[orders.names.front]}".encode()
    assert record.header("dt-origin") == b"f:1:0"
    assert record.header("dt-hops") == b"0"
    assert record.header("dt-reason") is None
    assert record.due_at_ms > 1


def test_a_copy_that_is_too_large_is_a_dead_letter_and_its_batch_is_not(harness: WorkerHarness) -> None:
    orders = harness.declare(
        (0,),
        front_partitions=1,
        config={"ready": {"max.message.bytes": "5000"}, "dead-letter": {"max.message.bytes": "20000"}},
    )
    orders.change(compression="none")
    sizes = [100, 1000, 4500, 9000, 1000, 50_000, 100]
    for n, size in enumerate(sizes):
        orders.produce(b"%d" % n * size, key=b"key", headers=[("trace", b"x")], partition=0)
    orders.flush()
    harness.start(orders)  # only now, so that the records come in one batch

    ready = sorted(orders.ready(5), key=lambda r: r.offset)
    dead = sorted(orders.dead(2), key=lambda r: len(r.value or b""))

    assert [(r.value or b"")[:1] for r in ready] == [b"0", b"1", b"2", b"4", b"6"]
    assert [r.header("dt-reason") for r in dead] == [b"TooLarge"] * 2
    without_value, whole = dead
    assert (without_value.value, without_value.key) == (None, b"key")
    assert without_value.header("dt-origin") == b"f:0:5"
    assert (whole.value, whole.foreign) == (b"3" * 9000, [("trace", b"x")])


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_a_record_that_fits_into_no_request_once_it_is_not_compressed_is_a_dead_letter_and_holds_up_no_other(
    harness: WorkerHarness, guarantee: Guarantee
) -> None:
    """A broker closes the connection on which a request of more than 100 MiB begins, and says nothing."""
    orders = harness.declare((0,), front_partitions=1)
    orders.change(compression="none")
    worker = harness.start(orders, guarantee=guarantee)
    large = Producer(
        {**harness.connection.client_config(), "compression.type": "lz4", "message.max.bytes": 1_000_000_000}
    )
    large.produce(orders.names.front, bytes(100 << 20), key=b"key", partition=0)
    assert large.flush(60) == 0
    orders.produce(b"after", partition=0)
    orders.flush()

    (dead,) = orders.dead(1)

    assert (dead.value, dead.key, dead.header("dt-reason")) == (None, b"key", b"TooLarge")
    assert [r.value for r in orders.ready(1)] == [b"after"]
    assert not worker.alarm_reasons()
