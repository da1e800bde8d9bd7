"""Kafka is slow while transactions are aborted or topics are created again. Nothing is lost, and with ExactlyOnce, nothing is doubled."""

import base64
import os
import random
import re
import signal
import struct
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.generations import members_now
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load

pytestmark = pytest.mark.broker

GRACE_SECONDS = 25.0
"""Less than the 30 s that Kubernetes gives a pod by default."""
EXACTLY: Any = {"guarantee": "ExactlyOnce"}


@pytest.mark.slow
def test_a_transaction_that_is_committed_while_it_is_given_up_is_not_done_again(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The request that commits the transaction is in flight, and reaches Kafka before the next producer with the same transactional id."""
    orders = harness.declare((0, 1))
    harness.start(orders, **EXACTLY)
    wire.hold_back_requests(Api.ADD_OFFSETS_TO_TXN, 0.15)
    wire.hold_back_requests(Api.INIT_PRODUCER_ID, 0.4)
    with steady_load(orders) as sent:
        for codec in ("zstd", "none", "gzip", "lz4"):
            time.sleep(1.5)
            orders.change(compression=codec)

    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_partitions_first_record_that_kafka_refuses_for_a_moment_is_sent_again(
    harness: WorkerHarness, wire: SlowWire, guarantee: str
) -> None:
    """Kafka accepts any sequence number from a producer that it does not know, and librdkafka then considers all earlier records
    delivered. These may include a record that was just refused, by a broker that became the partition's leader a moment later."""
    orders = harness.declare((0,))
    harness.start(orders, guarantee=guarantee)
    orders.produce(b"0", partition=0)
    orders.flush()
    orders.ready(1)
    refused = wire.refuse_first(orders.names.ready)
    wire.hold_back_requests(Api.PRODUCE, 0.1, client_id="orders-0")  # while more arrive that may be sent with it
    for n in range(1, 50):
        orders.produce(b"%d" % n, partition=1)
        time.sleep(0.02)
    wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")
    orders.flush()

    assert doubled(all_ready(orders, list(range(50)), timeout_seconds=30)) == 0
    assert refused.is_set()


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_what_kafka_refuses_of_a_topic_that_was_made_again_is_sent_again(
    harness: WorkerHarness, wire: SlowWire, guarantee: str
) -> None:
    """Kafka does not know the producers of the new topic, and a worker that has not noticed the deletion takes it for the former topic.
    As above, librdkafka considers a refused record delivered."""
    orders = harness.declare((0, 4), front_partitions=1)
    invoices = f"{orders.names.front}.invoices"
    orders.change(ready_topics=(AllowedTopic(invoices, 0),))
    spec = NewTopicSpec(name=invoices, partitions=1, replication_factor=1, config={})
    harness.create([spec])
    harness.start(orders, guarantee=guarantee)
    orders.produce(b"0", headers=[("dt-target", invoices.encode())])
    orders.flush()
    harness.read(invoices, 1)
    for n in range(1, 50):
        orders.produce(b"%d" % n, headers=[("dt-target", invoices.encode()), ("dt-delay-level", b"2")])
        time.sleep(0.02)
    orders.flush()
    assert harness.admin.delete_topics([invoices]) == {invoices: None}
    harness.create([spec])
    refused = wire.refuse_first(invoices)
    wire.hold_back_requests(Api.PRODUCE, 0.1, client_id="orders-0")  # while more become due that may be sent with it
    wait_until(refused.is_set, what="the first record is refused", timeout_seconds=20)
    time.sleep(2)
    wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")

    found = harness.read(invoices, 49, timeout_seconds=30)
    assert sorted(int(record.value or b"") for record in found) == list(range(1, 50))


@pytest.mark.slow
def test_a_worker_that_ends_while_it_asks_what_is_committed_commits_nothing_of_a_transaction_that_was_given_up(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    orders = harness.declare((0, 1))
    worker = harness.start(orders, **EXACTLY)
    with steady_load(orders) as sent:
        for codec in ("zstd", "none", "gzip"):
            time.sleep(1)
            wire.hold_back_requests(Api.OFFSET_FETCH, 2)
            orders.change(compression=codec)
            time.sleep(0.3)
            worker.terminate()
            wire.hold_back_requests(Api.OFFSET_FETCH, 0)
            worker = harness.start(orders, **EXACTLY)

    assert doubled(all_ready(orders, sent, timeout_seconds=60)) == 0


def test_records_that_were_read_in_time_keep_their_order_though_they_became_due_before_they_could_be_sent(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Some records hop. Then Kafka answers no commits, so the worker sends nothing until the records that it reads later are due too."""
    orders = harness.declare((1,), front_partitions=1)
    worker = harness.start(orders)
    with steady_load(orders, per_second=100, levels=1) as sent:
        wait_until(lambda: orders.released() > 0, what="records come out")
        wire.hold_back_requests(Api.OFFSET_COMMIT, 3, client_id="orders-0")
        held_at = len(sent)
        wait_until(lambda: len(sent) >= held_at + 450, what="commits are answered again, and more records arrive")
        wire.hold_back_requests(Api.OFFSET_COMMIT, 0, client_id="orders-0")

    ready = sorted(all_ready(orders, sent, timeout_seconds=60), key=lambda record: record.offset)
    assert [int(record.value or b"") for record in ready] == sent
    assert Reason.TARGET_UNAVAILABLE not in worker.alarm_reasons(), "this alarm would be shown for longer than a minute"


def test_a_worker_that_ends_while_a_transaction_fails_commits_nothing_of_it(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Kafka refuses one copy of the transaction after it has acknowledged the others."""
    orders = harness.declare((1,), config={"ready": {"max.message.bytes": "5000"}})
    worker = harness.start(orders, **EXACTLY)
    for n in range(100):
        orders.produce(b"%d" % n, partition=0)
    orders.produce(os.urandom(6000), partition=1)
    orders.flush()
    wire.hold_back_requests(Api.PRODUCE, 1)
    time.sleep(1.5)
    worker.terminate()
    wire.hold_back_requests(Api.PRODUCE, 0)
    harness.start(orders, **EXACTLY)

    assert [r.header("dt-reason") for r in orders.dead(1)] == [b"TooLarge"]
    assert len(orders.ready(100)) == 100


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_copies_that_arrive_when_their_topic_was_made_again_finish_nothing_of_the_new_one(
    harness: WorkerHarness, wire: SlowWire, guarantee: str
) -> None:
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders, guarantee=guarantee)
    orders.produce(b"first")  # its copy is sent alone
    orders.flush()
    orders.ready(1)
    wire.hold_back_requests(Api.PRODUCE, 60, client_id="orders-0")
    for n in range(30):
        orders.produce(b"old%d" % n)
    orders.flush()

    def in_flight() -> int:
        """Returns the number of copies in flight, or 0 until the worker has read all 30 records."""
        seen = worker.status()["topics"][orders.names.front]
        return 30 - int(seen["waiting"]) if seen["due_lag"] == 30 else 0

    wait_until(lambda: in_flight() > 0, what="copies are sent", evidence=worker.evidence)
    sent = in_flight()
    harness.admin.delete_topics([orders.names.front])
    info = orders.make("front", 1)
    wait_until(lambda: Reason.TOPIC_RECREATED in worker.alarm_reasons(), what="the alarm", evidence=worker.evidence)
    orders.accept(info, begun=0)
    wait_until(
        lambda: Reason.TOPIC_RECREATED not in worker.alarm_reasons(),
        what="the new topic is served",
        evidence=worker.evidence,
    )

    wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")
    wait_until(
        lambda: orders.released() > sent or worker.metric("delayedtopics_failed_commits_total") > 0,
        what="the copies from the old topic arrive, or their transaction has timed out",
        evidence=worker.evidence,
    )

    new = {b"new%d" % n for n in range(30)}
    for value in sorted(new):
        orders.produce(value)
    orders.flush()
    with harness.reader(orders.names.ready) as read:
        wait_until(lambda: {r.value for r in read()} >= new, what="all new records are released", timeout_seconds=60)


@pytest.mark.slow
def test_that_records_were_removed_is_not_said_of_a_topic_that_was_made_again_meanwhile(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The worker's offset is out of range, and Kafka answers which offsets it has only when the new topic is accepted."""
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders)
    for n in range(30):
        orders.produce(b"old%d" % n)
    orders.flush()
    orders.ready(30)
    wire.hold_back_requests(Api.LIST_OFFSETS, 4, client_id="orders-0-watch")
    harness.admin.delete_topics([orders.names.front])
    info = orders.make("front", 1)
    wait_until(lambda: Reason.TOPIC_RECREATED in worker.alarm_reasons(), what="the alarm", evidence=worker.evidence)
    orders.accept(info, begun=0)
    wire.hold_back_requests(Api.LIST_OFFSETS, 0, client_id="orders-0-watch")
    for n in range(60):
        orders.produce(b"new%d" % n)
        orders.flush()
        time.sleep(0.05)

    wait_until(lambda: orders.released() == 90, what="all are released", evidence=worker.evidence, timeout_seconds=30)


class BehindTheEnd:
    """Changes one fetch of the first front partition at offset 0 into a fetch of an offset that Kafka does not have. In the request, a
    topic's id is followed by the number of its partitions, and a partition by its leader's epoch and the offset."""

    def __init__(self, topic_id: str) -> None:
        partition = base64.urlsafe_b64decode(topic_id + "==") + b"\x02" + struct.pack(">i", 0)
        self._at = re.compile(re.escape(partition) + b".{4}" + re.escape(struct.pack(">q", 0)), re.DOTALL)
        self.done = False

    def __call__(self, request: bytes) -> bytes:
        if self.done or not (found := self._at.search(request)):
            return request
        self.done = True
        return request[: found.end() - 8] + struct.pack(">q", 1_000_000) + request[found.end() :]


def test_a_fetch_of_a_deleted_topic_that_is_refused_late_is_done_again_from_the_new_topic(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Kafka's client reports the refusal after the worker knows where the new topic begins."""
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders)
    orders.produce(b"0")
    orders.flush()
    orders.ready(1)
    harness.admin.delete_topics([orders.names.front])
    info = orders.make("front", 1)
    behind_the_end = BehindTheEnd(info.id)
    wire.change_requests(Api.FETCH, behind_the_end)
    wait_until(lambda: Reason.TOPIC_RECREATED in worker.alarm_reasons(), what="the alarm", evidence=worker.evidence)
    orders.accept(info, begun=0)
    for n in range(1, 30):
        orders.produce(b"%d" % n)
    orders.flush()
    assert doubled(all_ready(orders, list(range(30)))) == 0
    assert behind_the_end.done
    wait_until(lambda: not worker.alarm_reasons(), what="no alarm", evidence=worker.evidence)


@pytest.mark.slow
def test_what_is_committed_counts_though_it_is_answered_after_where_the_partition_begins(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Of 100 records, 60 were released, and 50 are removed, as by retention. Workers once never got an answer that took over a second."""
    orders = harness.declare((0,), front_partitions=1)
    for n in range(100):
        orders.produce(b"%d" % n)
    orders.flush()
    admin = AdminClient(harness.connection.client_config())
    for future in admin.delete_records([TopicPartition(orders.names.front, 0, 50)]).values():
        future.result()
    harness.commit(orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(60)})
    wire.hold_back_requests(Api.OFFSET_FETCH, 1.2)
    worker = harness.start(orders, **EXACTLY)

    assert [r.value for r in orders.ready(40)] == [b"%d" % n for n in range(60, 100)]
    assert not worker.alarm_reasons()


@pytest.mark.slow
def test_nothing_is_passed_over_when_transactions_are_given_up_while_fetches_are_slow(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """The engine places silent partitions again, even if it does not know yet where they begin."""
    orders = harness.declare((0, 1))
    harness.start(orders, **EXACTLY)
    with steady_load(orders, per_second=200, levels=2) as sent:
        for codec in ("zstd", "none", "gzip"):
            orders.change(compression=codec)
            wire.hold_back_requests(Api.FETCH, 60, client_id="orders-0")
            time.sleep(1.4)
            wire.hold_back_requests(Api.FETCH, 0, client_id="orders-0")
            time.sleep(1)

    assert doubled(all_ready(orders, sent, timeout_seconds=60)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [False, True], ids=["another-joins", "it-is-stopped"])
def test_a_worker_whose_copies_take_long_to_arrive_repeats_none(
    harness: WorkerHarness, wire: SlowWire, *, is_stopped: bool
) -> None:
    """The worker has no more copies in flight than arrive in the time in which it may give partitions up."""
    orders = harness.declare((0,), front_partitions=8, partitions=1)
    wire.limit_requests(500_000, client_id="orders-0")
    numbers = [random.getrandbits(1000) for _ in range(20_000)]  # lz4 can't make them smaller
    for n, number in enumerate(numbers):
        orders.produce(b"%d" % number, partition=n % 8)
    orders.flush()
    worker = harness.start(orders, member="orders-0")
    wait_until(lambda: orders.released() > 3_000, what="some records are released", poll_seconds=0.2)
    assert orders.released() < len(numbers) / 2, "the worker is slow"
    if is_stopped:
        assert worker.terminate() == 0
    harness.start(orders, member="orders-1")

    assert doubled(all_ready(orders, numbers)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_a_worker_that_is_stopped_while_it_gives_partitions_up_repeats_none(
    harness: WorkerHarness, wire: SlowWire, protocol: str
) -> None:
    """The worker learns of the rebalance within 2 s, and then waits up to 4 s for its copies."""
    orders = harness.declare((0,), front_partitions=4, partitions=1)
    worker = harness.start(orders, member="orders-0", protocol=protocol)
    with steady_load(orders, per_second=100, levels=1) as sent:
        harness.start(orders, member="orders-1", protocol=protocol, ready=False)
        wait_until(lambda: "orders-1" in members_now(orders), what="a rebalance", evidence=worker.evidence)
        wire.hold_back_requests(Api.PRODUCE, 60, client_id="orders-0")
        time.sleep(2.2)
        worker.signal(signal.SIGTERM)
        time.sleep(0.8)
        wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")
        assert worker.wait() == 0

    assert doubled(all_ready(orders, sent)) == 0


@pytest.mark.parametrize(
    ("protocol", "guarantee", "unanswered"),
    [
        pytest.param("classic", "AtLeastOnce", Api.OFFSET_COMMIT, marks=pytest.mark.slow),
        ("consumer", "AtLeastOnce", Api.PRODUCE),
        pytest.param("classic", "AtLeastOnce", Api.PRODUCE, marks=pytest.mark.slow),
        pytest.param("consumer", "AtLeastOnce", Api.OFFSET_COMMIT, marks=pytest.mark.slow),
        pytest.param("classic", "ExactlyOnce", Api.TXN_OFFSET_COMMIT, marks=pytest.mark.slow),
        pytest.param("consumer", "ExactlyOnce", Api.END_TXN, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_is_stopped_while_kafka_does_not_answer_ends_before_its_pod_is_killed(
    harness: WorkerHarness, wire: SlowWire, protocol: str, guarantee: str, unanswered: Api
) -> None:
    orders = harness.declare((0,), front_partitions=4, partitions=1)
    worker = harness.start(orders, member="orders-0", protocol=protocol, guarantee=guarantee)
    with steady_load(orders, per_second=100, levels=1) as sent:
        wait_until(lambda: orders.released() > 0, what="records are released", evidence=worker.evidence)
        wire.hold_back_requests(unanswered, 60, client_id="orders-0")
        worker.signal(signal.SIGTERM)
        assert worker.wait(GRACE_SECONDS) == 0
    harness.start(orders, member="orders-1", protocol=protocol, guarantee=guarantee)

    copies = doubled(all_ready(orders, sent, timeout_seconds=60))
    assert copies == 0 or guarantee == "AtLeastOnce"


@pytest.mark.slow
def test_a_worker_that_waits_for_acknowledgements_takes_no_processor_for_it(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Ten copies to one partition are in flight, and ten more records are due."""
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders)
    orders.produce(b"0")
    orders.flush()
    orders.ready(1)
    wire.hold_back_requests(Api.PRODUCE, 4, client_id="orders-0")
    released, used = orders.released(), worker.cpu_seconds()
    for ten in (range(1, 11), range(11, 21)):
        for number in ten:
            orders.produce(b"%d" % number)
        orders.flush()
        time.sleep(1.5)
    used = worker.cpu_seconds() - used

    assert orders.released() == released
    assert used < 0.7
    wire.hold_back_requests(Api.PRODUCE, 0, client_id="orders-0")
    assert doubled(all_ready(orders, list(range(21)), timeout_seconds=60)) == 0
