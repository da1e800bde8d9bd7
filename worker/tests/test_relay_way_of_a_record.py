"""The way of a record through a real worker process and a real broker."""

import json
import subprocess
import sys
from statistics import median
from typing import Any

import pytest
from delayed_topics_core.headers import Header
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness
from delayed_topics_worker_testing.load import steady_load

pytestmark = pytest.mark.broker

HOPS_ONCE = 10
"""A delay in seconds. A record that the worker first sees less than the shortest delay before its due time waits without a hop. On a busy
machine, this sometimes happens with a delay of one second."""


def level(number: int) -> Header:
    return ("dt-delay-level", b"%d" % number)


def why(orders: DeclaredTopic, *which: str) -> list[dict[str, Any]]:
    """Returns what `delayed-topics why` says about the way of a record, by attempt."""
    kafka = ("--bootstrap", orders.harness.connection.bootstrap_servers)
    command = [sys.executable, "-m", "delayed_topics", *kafka, "why", orders.names.front, *which, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    attempts: list[dict[str, Any]] = json.loads(done.stdout)["attempts"]
    return attempts


def test_a_record_comes_out_at_its_time_at_each_level(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1, 2))
    harness.start(orders)
    for number in (1, 2, 3, 9):
        orders.produce(b"%d" % number, headers=[level(number)], partition=0)
    orders.flush()

    ready = {record.value: record for record in orders.ready(4)}

    assert set(ready) == {b"1", b"2", b"3", b"9"}
    appended_at_ms = {record.value: record.at_ms for record in harness.read(orders.names.front, 4)}
    delays_ms = {value: record.due_at_ms - appended_at_ms[value] for value, record in ready.items()}
    assert delays_ms == {b"1": 0, b"2": 1000, b"3": 2000, b"9": 2000}, (
        "a level above the last entry means the last entry"
    )
    assert all(record.late_ms >= 0 for record in ready.values())


def test_at_least_half_of_the_records_of_an_idle_worker_come_out_within_a_tenth_of_a_second_of_their_due_time(
    harness: WorkerHarness,
) -> None:
    """All records are read before the first is due, so only the due time of a record wakes the worker."""
    orders = harness.declare((3,))
    harness.start(orders)
    with steady_load(orders, per_second=400, levels=1) as sent:
        wait_until(lambda: len(sent) >= 1000, what="records are produced for two and a half seconds")

    assert median(record.late_ms for record in orders.ready(len(sent))) < 100


def test_thousands_of_records_over_all_delays_are_never_early_never_lost_never_doubled(harness: WorkerHarness) -> None:
    orders = harness.declare((0, HOPS_ONCE, HOPS_ONCE + 1), front_partitions=3, partitions=6)
    harness.start(orders)
    for n in range(3000):
        orders.produce(b"%d" % n, key=b"%d" % n, headers=[level(n % 3 + 1)])
    orders.flush()

    ready = orders.ready(3000)

    assert sorted(int(r.value or b"") for r in ready) == list(range(3000))
    assert min(r.late_ms for r in ready) >= 0
    assert all(r.partition == int((r.header("dt-root") or b"").split(b":")[1]) for r in ready)
    assert in_order_by_partition_and_delay(ready)
    hops = [int(r.header("dt-hops") or b"") for r in ready]
    assert (hops.count(0), hops.count(1)) == (1000, 2000)


def in_order_by_partition_and_delay(ready: list[Seen]) -> bool:
    by_line: dict[tuple[int, int, bytes], list[int]] = {}
    for record in sorted(ready, key=lambda r: (r.partition, r.offset)):
        n = int(record.value or b"")
        lane = (record.header("dt-origin") or b"").rpartition(b":")[0]
        by_line.setdefault((record.partition, n % 3, lane), []).append(n)
    return all(line == sorted(line) for line in by_line.values())


@pytest.mark.parametrize("delay_level", [1, 2])
def test_value_key_and_foreign_headers_pass_byte_for_byte(harness: WorkerHarness, delay_level: int) -> None:
    orders = harness.declare((0, 1))
    harness.start(orders)
    foreign: list[Header] = [
        ("trace", b"\x00\xff\x80"),
        ("größe", "naïve".encode()),
        ("trace", b"again"),
        ("nothing", None),
        ("empty", b""),
        ("", b"no name"),
        ("Dt-id", b"not ours"),
        ("dtx", b""),
    ]
    orders.produce(
        b"\x00value\xff", key=b"\xffkey", headers=[*foreign[:3], level(delay_level), *foreign[3:]], partition=1
    )
    orders.produce(None, key=None, headers=[level(delay_level)], partition=1)
    orders.produce(b"", key=b"", headers=[level(delay_level)], partition=1)
    orders.flush()

    ready = sorted(orders.ready(3), key=lambda r: r.offset)

    assert [(r.key, r.value) for r in ready] == [(b"\xffkey", b"\x00value\xff"), (None, None), (b"", b"")]
    assert [r.foreign for r in ready] == [foreign, [], []]
    assert [r.header("dt-delay-level") for r in ready] == [None] * 3


@pytest.mark.slow
def test_own_headers_tell_a_records_way(harness: WorkerHarness) -> None:
    orders = harness.declare((0, HOPS_ONCE))
    harness.start(orders)
    topic_id = orders.topics.ids[orders.names.front]
    orders.produce(b"a", headers=[level(2), ("dt-id", b"order-17"), ("dt-created-at", b"5")], partition=1)
    orders.flush()

    (record,) = orders.ready(1)

    own = {name: value for name, value in record.headers if name.startswith("dt-")}
    attempt, released_at_ms = (own.pop("dt-released") or b"").split(b":")
    assert attempt == b"0"
    assert record.due_at_ms <= int(released_at_ms) <= record.at_ms
    assert (own.pop("dt-origin") or b"").startswith(b"d:")
    assert own.pop("dt-due-at") is not None
    assert own == {
        "dt-id": b"order-17",
        "dt-attempt": b"0",
        "dt-created-at": b"5",
        "dt-root": f"f:1:0:{topic_id}".encode(),
        "dt-hops": b"1",
    }
    lane = orders.record.layout.partition_for(HOPS_ONCE, 1)
    ways = [why(orders, *which) for which in (("1@0",), (f"{orders.names.ready}-1@0",), ("--id", "order-17"))]
    assert ways == [ways[0]] * 3, "the way is the same for each of these arguments"
    ((way,),) = ways[:1]
    assert (way["state"], way["attempt"], way["id"]) == ("Released", 0, "order-17")
    assert [(r["what"], r["topic"], r["partition"], r["offset"]) for r in way["records"]] == [
        ("came in", orders.names.front, 1, 0),
        ("hopped", orders.names.delays, lane, 0),
        ("released", orders.names.ready, 1, 0),
    ]


def test_a_plain_retry_goes_up_the_delays_and_ends_at_the_cap(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), retry_cap=2)
    harness.start(orders)
    orders.produce(b"poison", key=b"k", headers=[("trace", b"x")], partition=0)
    orders.flush()
    for attempt in range(3):
        copy = max(orders.ready(attempt + 1), key=lambda r: r.at_ms)
        assert copy.header("dt-attempt") == b"%d" % attempt
        # an ordinary client copies all headers, and knows nothing about attempts
        orders.produce(copy.value, key=copy.key, headers=copy.headers, partition=copy.partition)
        orders.flush()

    (dead,) = orders.dead(1)

    assert dead.header("dt-reason") == b"RetryCapExceeded"
    assert dead.header("dt-attempt") == b"3"
    assert (dead.key, dead.value, dead.foreign) == (b"k", b"poison", [("trace", b"x")])
    assert dead.partition == 0
    assert len(orders.ready(3)) == 3
    (record_id,) = {r.header("dt-id") for r in orders.ready(3)}  # all attempts have one id
    ways = why(orders, "--id", (record_id or b"").decode())
    assert [(way["attempt"], way["state"]) for way in ways] == [
        *((attempt, "Released") for attempt in range(3)),
        (3, "DeadLettered"),
    ]
    assert ways[-1]["records"][-1]["headers"]["dt-reason"] == "RetryCapExceeded"


def test_direct_writes_into_a_delays_partition_wait_its_delay(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), partitions=3)
    worker = harness.start(orders)
    lane = orders.record.layout.partition_for(1, 0)
    orders.produce(b"direct", headers=[("dt-generation", b"1")], partition=lane, topic=orders.names.delays)
    orders.produce(b"hashed there", key=b"k", partition=lane, topic=orders.names.delays)
    orders.flush()

    ready = orders.ready(2)

    assert {r.value for r in ready} == {b"direct", b"hashed there"}
    assert all(r.late_ms >= 0 for r in ready)
    assert all((r.header("dt-root") or b"").startswith(b"d:%d:" % lane) for r in ready)
    wait_until(lambda: "MisroutedRecords" in worker.alarm_reasons(), what="the alarm")
