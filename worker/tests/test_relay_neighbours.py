"""A target that takes no records is nobody else's problem: what is for others comes out on time meanwhile."""

import statistics
import uuid
from collections.abc import Callable

import pytest
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka_testing.slow_wire import SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness

pytestmark = pytest.mark.broker

TARGETS = 4
"""The first of them takes no records for a while."""
BACKLOG = 3000
"""Records for that one: more than may be on their way at once."""
RECORDS = 200
"""For each other target meanwhile."""
PER_SECOND = 200
KEYS = 10
MEDIAN_MS = 1000
"""40 on a quiet machine. On one that stands still for seconds, another round of records shows it."""

Send = Callable[[int, int], None]
"""A record for a target, by its number, that has a number of its own."""


def shared(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """A worker with as many delayed topics. Returns the topics that records come out in, too."""
    topics = harness.declare_many(TARGETS, (0, 1), group=f"shared-{uuid.uuid4().hex[:8]}")
    harness.start(*topics, guarantee=guarantee)
    return sent_to(topics)


def sent_to(topics: list[DeclaredTopic]) -> tuple[list[str], Send]:
    def send(target: int, n: int) -> None:
        topics[target].produce(b"%d" % n, key=b"%d" % (n % KEYS), headers=[("dt-delay-level", b"%d" % (n % 2 + 1))])

    return [orders.names.ready for orders in topics], send


def apart(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """As `shared`, each with a worker of its own: one with ExactlyOnce serves no more."""
    topics = harness.declare_many(TARGETS, (0, 1))
    workers = [
        harness.start(orders, member=f"orders-{n}", ready=False, guarantee=guarantee) for n, orders in enumerate(topics)
    ]
    for worker in workers:
        worker.ready()
    return sent_to(topics)


def allowed(harness: WorkerHarness, guarantee: str) -> tuple[list[str], Send]:
    """A worker with one delayed topic, whose records ask for as many other ready topics."""
    orders, ready, send = with_ready_topics(harness)
    harness.start(orders, guarantee=guarantee)
    return ready, send


def with_ready_topics(harness: WorkerHarness) -> tuple[DeclaredTopic, list[str], Send]:
    """Records for each of them are in partitions of their own, and so are their hops."""
    orders = harness.declare((0, 1), front_partitions=TARGETS, lanes_per_delay=TARGETS, partitions=2 * TARGETS)
    ready = [f"{orders.names.front}.{n}" for n in range(TARGETS)]
    config = {"message.timestamp.type": "LogAppendTime"}
    harness.create([NewTopicSpec(name=name, partitions=2, replication_factor=1, config=config) for name in ready])
    orders.change(ready_topics=tuple(AllowedTopic(name, 0) for name in ready), outage_budget_seconds=3600)

    def send(target: int, n: int) -> None:
        headers = [("dt-target", ready[target].encode()), ("dt-delay-level", b"%d" % (n % 2 + 1))]
        orders.produce(b"%d" % n, key=b"%d" % (n % KEYS), headers=headers, partition=target)

    return orders, ready, send


def begun(harness: WorkerHarness, ready: list[str], send: Send) -> None:
    """Record 0 of each target has come out."""
    for target in range(TARGETS):
        send(target, 0)
    harness.flush()
    for topic in ready:
        harness.read(topic, 1)


def in_order(released: list[Seen], count: int) -> None:
    """Each number below `count` came out once. A key's records have the same delay. Those that a busy worker read too late for their hop
    are exempt from order."""
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
    begun(harness, ready, send)
    sent = 0

    def send_to_all(_: int) -> None:
        nonlocal sent
        sent += 1
        for target in range(TARGETS):
            send(target, (BACKLOG if target == 0 else 0) + sent)

    def late_ms() -> float:
        """The median of a round of records for the others, all of which come out."""
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
        assert len(harness.read(ready[0], 1)) == 1, "it takes records"

    for topic in ready[1:]:
        in_order(harness.read(topic, 1 + sent), 1 + sent)
    in_order(harness.read(ready[0], 1 + BACKLOG + sent), 1 + BACKLOG + sent)


@pytest.mark.slow
def test_with_exactly_once_nothing_is_lost_or_doubled_where_one_of_the_targets_takes_no_records_for_a_while(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """They share transactions, which come true as a whole: none does that has a record for it."""
    orders, ready, send = with_ready_topics(harness)
    worker = harness.start(orders, guarantee="ExactlyOnce")
    begun(harness, ready, send)
    with wire.refusing(ready[0]):
        for n in range(RECORDS):
            for target in range(TARGETS):
                send(target, n + 1)
        harness.flush()
        wait_until(
            lambda: worker.metric("delayedtopics_failed_commits_total") >= 2, what="transactions with it are given up"
        )

    for topic in ready:
        in_order(harness.read(topic, 1 + RECORDS, timeout_seconds=60), 1 + RECORDS)
