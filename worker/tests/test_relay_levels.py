"""Delay levels work as in RocketMQ."""

import pytest
from delayed_topics_core.headers import Header
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness

pytestmark = pytest.mark.broker

MINUTE, HOUR = 60, 3600
ROCKETMQ = {
    1: 1,
    2: 5,
    3: 10,
    4: 30,
    5: 1 * MINUTE,
    6: 2 * MINUTE,
    7: 3 * MINUTE,
    8: 4 * MINUTE,
    9: 5 * MINUTE,
    10: 6 * MINUTE,
    11: 7 * MINUTE,
    12: 8 * MINUTE,
    13: 9 * MINUTE,
    14: 10 * MINUTE,
    15: 20 * MINUTE,
    16: 30 * MINUTE,
    17: 1 * HOUR,
    18: 2 * HOUR,
    19: 2 * HOUR,
    100: 2 * HOUR,
}
"""Seconds by level. For a level above the highest, RocketMQ takes the highest."""
DELAY_LIST = tuple(ROCKETMQ[number] for number in range(1, 19))
FOREIGN: list[Header] = [("TAGS", b"\xff\x00"), ("KEYS", "größe".encode()), ("TAGS", None)]


def level(number: int) -> Header:
    return ("dt-delay-level", b"%d" % number)


def hops(orders: DeclaredTopic) -> list[Seen]:
    """Returns all records that the delays topic has at this moment."""
    delays = orders.names.delays
    ends = orders.harness.admin.list_offsets([(delays, p) for p in range(len(DELAY_LIST))], "latest")
    return orders.harness.read(delays, sum(end for end in ends.values() if isinstance(end, int)))


def test_each_level_waits_as_long_as_in_rocketmq_and_above_the_highest_the_highest_does(harness: WorkerHarness) -> None:
    orders = harness.declare(DELAY_LIST, partitions=18, front_partitions=1)
    harness.start(orders)
    orders.produce(b"first", headers=[level(1)])  # a worker may take a second to read its first record
    orders.ready(1)
    for number in ROCKETMQ:
        orders.produce(b"%d" % number, key=b"\xff%d" % number, headers=[*FOREIGN, level(number)])
    orders.flush()

    ready = {int(record.value or b""): record for record in orders.ready(3) if record.key}
    hopped = {int(record.value or b""): record for record in hops(orders) if record.key}

    assert ready.keys() >= {1, 2}
    assert ready.keys() | hopped.keys() == ROCKETMQ.keys()
    came_in_ms = {int(r.value or b""): r.at_ms for r in harness.read(orders.names.front, 1 + len(ROCKETMQ)) if r.key}
    promised_ms = {number: came_in_ms[number] + 1000 * seconds for number, seconds in ROCKETMQ.items()}
    assert all(record.at_ms >= promised_ms[number] for number, record in ready.items())
    for number, record in (*ready.items(), *hopped.items()):
        assert record.due_at_ms == promised_ms[number]
        assert (record.key, record.value, record.foreign) == (b"\xff%d" % number, b"%d" % number, FOREIGN)
    # if the machine stood still for a second, the other records are late, and take delays that fit into the rest
    prompt = {number: record for number, record in hopped.items() if record.at_ms - came_in_ms[number] < 1000}
    assert prompt
    delays = orders.record.layout.partition_delays
    assert {number: delays[record.partition] for number, record in prompt.items()} == {n: ROCKETMQ[n] for n in prompt}


def test_without_a_level_a_record_waits_as_with_level_1_and_a_due_time_of_0_is_at_once(harness: WorkerHarness) -> None:
    orders = harness.declare(DELAY_LIST, partitions=18, front_partitions=1, ladder_seconds=(1,))
    assert orders.record.layout.partition_count == 18
    harness.start(orders)
    orders.produce(b"without")
    orders.produce(b"level 0", headers=[level(0)])
    orders.produce(b"at once", headers=[("dt-deliver-at", b"0")])
    orders.flush()

    ready, (dead,) = orders.ready(2), orders.dead(1)

    came_in_ms = {record.value: record.at_ms for record in harness.read(orders.names.front, 3)}
    waits_ms = {record.value: record.due_at_ms - came_in_ms[record.value] for record in ready}
    assert waits_ms == {b"at once": 0, b"without": 1000}
    assert (dead.value, dead.header("dt-reason")) == (b"level 0", b"HeaderUnreadable")
