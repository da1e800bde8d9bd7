"""While a target takes no records, records for other targets come out on time."""

import statistics
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import cast

import pytest
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka_testing.slow_wire import SlowWire
from delayed_topics_worker.clients import SOCKET_TIMEOUT_MS
from delayed_topics_worker.topic_watch import TopicWatch
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.running import ReplicatedWatch, running_relay

pytestmark = pytest.mark.broker

TARGETS = 4
"""The number of targets. The first one takes no records for a while."""
BACKLOG = 3000
"""The number of records for the first target. More than may be in flight at once."""
RECORDS = 200
"""The number of records for each target in a round."""
PER_SECOND = 200
KEYS = 10
MEDIAN_MS = 1000
"""The bound for the median lateness, which is 40 ms on a quiet machine. If the machine stands still, the test sends another round."""

Send = Callable[[int, int], None]
"""Sends a record. Takes the number of the target and the number of the record."""


def shared(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """Starts a worker that serves one delayed topic for each target. Returns their ready topics, and how to send a record."""
    topics = harness.declare_many(TARGETS, (0, 1), group=f"shared-{uuid.uuid4().hex[:8]}")
    harness.start(*topics, guarantee=guarantee)
    return sent_to(topics)


def sent_to(topics: list[DeclaredTopic]) -> tuple[list[str], Send]:
    def send(target: int, n: int) -> None:
        topics[target].produce(b"%d" % n, key=b"%d" % (n % KEYS), headers=[("dt-delay-level", b"%d" % (n % 2 + 1))])

    return [orders.names.ready for orders in topics], send


def apart(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """Like `shared`, but each delayed topic has its own worker, because a worker with ExactlyOnce serves only one."""
    topics = harness.declare_many(TARGETS, (0, 1))
    workers = [
        harness.start(orders, member=f"orders-{n}", ready=False, guarantee=guarantee) for n, orders in enumerate(topics)
    ]
    for worker in workers:
        worker.ready()
    return sent_to(topics)


def allowed(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """Starts a worker that serves one delayed topic. Each record requests the ready topic of its target."""
    orders, ready, send = with_ready_topics(harness)
    harness.start(orders, guarantee=guarantee)
    return ready, send


def with_ready_topics(harness: WorkerHarness) -> tuple[DeclaredTopic, list[str], Send]:
    """Declares a delayed topic with a ready topic for each target. The records for each target have their own partitions, also as hops."""
    orders = harness.declare((0, 1), front_partitions=TARGETS, lanes_per_delay=TARGETS, partitions=2 * TARGETS)
    ready = [f"{orders.names.front}.{n}" for n in range(TARGETS)]
    config = {"message.timestamp.type": "LogAppendTime"}
    harness.create([NewTopicSpec(name=name, partitions=2, replication_factor=1, config=config) for name in ready])
    orders.change(ready_topics=tuple(AllowedTopic(name, 0) for name in ready), outage_budget_seconds=3600)

    def send(target: int, n: int) -> None:
        headers = [("dt-target", ready[target].encode()), ("dt-delay-level", b"%d" % (n % 2 + 1))]
        orders.produce(b"%d" % n, key=b"%d" % (n % KEYS), headers=headers, partition=target)

    return orders, ready, send


def release_first(harness: WorkerHarness, ready: list[str], send: Send) -> None:
    """Sends record 0 to each target, and waits until it has come out."""
    for target in range(TARGETS):
        send(target, 0)
    harness.flush()
    for topic in ready:
        harness.read(topic, 1)


def check_released(released: list[Seen], count: int) -> None:
    """Checks that each number below `count` came out once, and that the records of a key, which have one delay, came out in order. Records
    that a busy worker read too late for their hop are exempt from the order."""
    assert sorted(int(record.value or b"") for record in released) == list(range(count)), "lost, or doubled"
    last: dict[bytes | None, int] = {}
    for record in sorted(released, key=lambda record: record.offset):
        n = int(record.value or b"")
        if n % 2 == 0 or record.header("dt-hops") != b"0":
            assert n > last.get(record.key, -1), "out of order"
            last[record.key] = n


@pytest.mark.parametrize(
    ("serve", "guarantee"),
    [(shared, "AtLeastOnce"), (allowed, "AtLeastOnce"), pytest.param(apart, "ExactlyOnce", marks=pytest.mark.slow)],
)
def test_while_one_target_takes_no_records_those_for_others_come_out_on_time_and_its_own_when_it_does(
    harness: WorkerHarness,
    wire: SlowWire,
    serve: Callable[[WorkerHarness, str], tuple[list[str], Send]],
    guarantee: str,
) -> None:
    ready, send = serve(harness, guarantee)
    release_first(harness, ready, send)
    sent = 0

    def send_to_all(_: int) -> None:
        nonlocal sent
        sent += 1
        for target in range(TARGETS):
            send(target, (BACKLOG if target == 0 else 0) + sent)

    def late_ms() -> float:
        """Sends a round of records, of which all for the other targets come out. Returns the median of how late these are."""
        before = sent
        with paced(send_to_all, lambda: PER_SECOND):
            wait_until(lambda: sent >= before + RECORDS, what="records for all targets are sent")
        harness.flush()
        others = [record for topic in ready[1:] for record in harness.read(topic, 1 + sent, timeout_seconds=60)]
        assert min(record.late_ms for record in others) >= 0, "early"
        return statistics.median(record.late_ms for record in others if int(record.value or b"") > before)

    with wire.refusing(ready[0]) as refused:
        for n in range(BACKLOG):
            send(0, n + 1)
        harness.flush()
        assert refused.wait(60)
        wait_until(late_ms, what="records for the others are on time", enough=lambda ms: ms < MEDIAN_MS)
        assert len(harness.read(ready[0], 1)) == 1, "the first target takes records"

    for topic in ready[1:]:
        check_released(harness.read(topic, 1 + sent), 1 + sent)
    check_released(harness.read(ready[0], 1 + BACKLOG + sent), 1 + BACKLOG + sent)


def test_copies_to_topics_without_replicas_go_through_one_connection(harness: WorkerHarness, wire: SlowWire) -> None:
    """A broker answers these requests at once. Several connections would only make more requests, each with fewer records."""
    ready, send = shared(harness, "AtLeastOnce")
    connections = wire.producing(ready)
    release_first(harness, ready, send)
    assert len(connections) == 1


def test_while_one_partition_waits_for_an_acknowledgement_partitions_of_the_same_broker_get_theirs(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """A broker answers the requests of a connection one after the other, and one with records only when its replicas have them. A broker
    without others has no replicas, so the worker is told that there are some."""
    orders, ready, send = with_ready_topics(harness)
    without_delay = range(2, 2 * KEYS, 2)

    with ExitStack() as stack:
        stack.enter_context(running_relay(orders, replicated=True))
        release_first(harness, ready, send)
        held = stack.enter_context(wire.holding_back(ready[0]))
        read_others = [stack.enter_context(harness.reader(topic)) for topic in ready[1:]]
        send(0, 2)
        harness.flush()
        assert held.wait(60)
        for target in range(1, TARGETS):
            for n in without_delay:
                send(target, n)
        harness.flush()

        def others() -> list[Seen]:
            return [record for read in read_others for record in read() if record.value != b"0"]

        came_out = wait_until(others, what="records for the others come out")
        assert min(record.late_ms for record in came_out) < SOCKET_TIMEOUT_MS / 2, "they waited for another connection"
        assert len(harness.read(ready[0], 1)) == 1, "the request was not held back"

    for topic in ready[1:]:
        assert len(harness.read(topic, 1 + len(without_delay))) == 1 + len(without_delay)
    harness.read(ready[0], 2)


def test_records_come_out_once_and_in_order_while_topics_get_replicas_and_lose_them(harness: WorkerHarness) -> None:
    """Their copies go through other producers from then on, which must not overtake those in flight."""
    orders = harness.declare((0, 1))
    with running_relay(orders) as (relay, published):
        wait_until(lambda: published.ready, what="the worker is ready")
        watch = relay._watch
        with steady_load(orders, levels=2) as sent:
            for seen in (ReplicatedWatch(watch), watch) * 3:
                relay._watch = cast(TopicWatch, seen)
                count = len(sent) + PER_SECOND
                wait_until(lambda: len(sent) >= count, what="more records are sent")  # noqa: B023
        released = all_ready(orders, sent)

    assert doubled(released) == 0
    last: dict[tuple[int, bytes, int], int] = {}
    for record in sorted(released, key=lambda record: record.offset):
        n = int(record.value or b"")
        _, front_partition, offset, _ = (record.header("dt-root") or b"").split(b":")
        if n % 2 == 0 or record.header("dt-hops") != b"0":
            way = (record.partition, front_partition, n % 2)
            assert int(offset) > last.get(way, -1), "out of order"
            last[way] = int(offset)


@pytest.mark.slow
def test_with_exactly_once_nothing_is_lost_or_doubled_where_one_of_the_targets_takes_no_records_for_a_while(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The targets share transactions. No transaction with a record for the first target is committed."""
    orders, ready, send = with_ready_topics(harness)
    worker = harness.start(orders, guarantee="ExactlyOnce")
    release_first(harness, ready, send)
    with wire.refusing(ready[0]):
        for n in range(RECORDS):
            for target in range(TARGETS):
                send(target, n + 1)
        harness.flush()
        wait_until(lambda: worker.metric("delayedtopics_failed_commits_total") >= 2, what="transactions are given up")

    for topic in ready:
        check_released(harness.read(topic, 1 + RECORDS, timeout_seconds=60), 1 + RECORDS)
