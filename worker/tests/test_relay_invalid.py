"""A record that Kafka refuses even when it goes alone becomes a dead letter, and its neighbours are released."""

import re
import struct
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from delayed_topics_core.ready_topics import AllowedTopic
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.model import NewTopicSpec
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker_testing.harness import DeclaredTopic, Seen, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess
from delayed_topics_worker_testing.running import running_relay

pytestmark = pytest.mark.broker

LAST_EPOCH = 0x7FFF
PARTITIONS = 12
REFUSALS = 11_000
"""More than the 10,000 refused batches after which a producer is replaced."""
EPOCH = struct.Struct(">h")
WRITTEN = re.compile(rb"(orders-[0-9a-z.-]+)\x02(.{4})[\x80-\xff]*[\0-\x7f].{16}\x02.{26}(.{8})", re.DOTALL)
"""The part of a request with records of one partition that has the topic, the number of the partition, and the id of the producer. The
other bytes are the number of partitions, and the length and the header of the batch."""


def create_compacted(orders: DeclaredTopic) -> str:
    """Creates a compacted ready topic, which takes no record without a key. Returns its name."""
    states = f"{orders.names.front}.states"
    config = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    orders.harness.create([NewTopicSpec(name=states, partitions=1, replication_factor=1, config=config)])
    orders.change(ready_topics=(AllowedTopic(states, 0),))
    return states


def begin_with_epoch(wire: SlowWire, epoch: int) -> None:
    """Makes Kafka seem to give each new producer this epoch. Kafka accepts any epoch from a producer that it does not know yet."""

    def change(answer: bytes) -> bytes:
        assert answer[-3:] == b"\0\0\0", "an epoch of 0, and no tagged fields"
        return answer[:-3] + EPOCH.pack(epoch) + b"\0"

    wire.change_answers(Api.INIT_PRODUCER_ID, change)


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_record_without_a_key_does_not_hold_up_a_compacted_topic(harness: WorkerHarness, guarantee: str) -> None:
    orders = harness.declare((0, 1), front_partitions=1)
    states = create_compacted(orders)
    for n in range(40):
        level = ("dt-delay-level", b"%d" % (n % 2 + 1))
        key = None if n in (13, 20) else b"%d" % n
        orders.produce(b"%d" % n, key=key, headers=[("dt-target", states.encode()), level], partition=0)
    orders.produce(b"own", partition=0)
    orders.flush()
    worker = harness.start(orders, guarantee=guarantee)  # only now, so that the records come in one batch

    assert {int(r.value or b"") for r in harness.read(states, 38)} == set(range(40)) - {13, 20}
    assert [r.value for r in orders.ready(1)] == [b"own"]
    dead = orders.dead(2)
    assert {r.value for r in dead} == {b"13", b"20"}
    assert {r.header("dt-reason") for r in dead} == {b"InvalidRecord"}
    assert {r.header("dt-target") for r in dead} == {states.encode()}
    assert all(b"invalid record" in (r.header("dt-error") or b"") for r in dead)
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared", evidence=worker.evidence)


def wait_for_value(read: Callable[[], list[Seen]], value: bytes, worker: WorkerProcess | None = None) -> None:
    wait_until(
        lambda: value in {r.value for r in read()},
        what=f"{value!r} arrives",
        timeout_seconds=60,
        evidence=worker.evidence if worker is not None else None,
    )


def test_a_worker_to_which_kafka_has_refused_tens_of_thousands_of_records_goes_on(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """With each refusal, the client increments its epoch, which has 15 bits. The last epoch is followed by 0, and Kafka takes nothing from
    a producer that it knows with a higher epoch."""
    orders = harness.declare((0,), front_partitions=1)
    states = create_compacted(orders)
    begin_with_epoch(wire, LAST_EPOCH - 1)
    worker = harness.start(orders)
    with harness.reader(orders.names.ready) as ready, harness.reader(orders.names.dead_letter) as dead:
        for n in range(6):
            orders.produce(b"refused %d" % n, headers=[("dt-target", states.encode())])
            orders.produce(b"own %d" % n)
            orders.flush()
            wait_for_value(ready, b"own %d" % n, worker)
            wait_for_value(dead, b"refused %d" % n, worker)
        assert {r.header("dt-reason") for r in dead()} == {b"InvalidRecord"}
    wait_until(lambda: not worker.alarm_reasons(), what="all alarms are cleared", evidence=worker.evidence)


@pytest.mark.slow
def test_before_its_epochs_come_to_their_end_a_producer_is_followed_by_another_and_nothing_comes_twice(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    """Kafka takes a record with an epoch that it has seen for a repetition, and does not write it."""
    orders = harness.declare((0,), front_partitions=PARTITIONS, partitions=PARTITIONS)
    states = create_compacted(orders)
    begin_with_epoch(wire, LAST_EPOCH - REFUSALS + 500)
    for n in range(REFUSALS):
        orders.produce(b"%d" % n, headers=[("dt-target", states.encode())], partition=n % PARTITIONS)
        if n % 100 == 0:
            orders.produce(b"own %d" % n, partition=n % PARTITIONS)
    orders.flush()
    worker = harness.start(orders)

    dead = harness.read(orders.names.dead_letter, REFUSALS, timeout_seconds=500)
    assert sorted(int(r.value or b"") for r in dead) == list(range(REFUSALS))
    assert len(orders.ready(REFUSALS // 100)) == REFUSALS // 100
    assert "failed permanently" not in worker.log_path.read_text()


class CopyProducers:
    """The id of the producer that last wrote to each partition of a topic, from requests that Kafka gets through the proxy."""

    def __init__(self, wire: SlowWire) -> None:
        self.of: dict[tuple[str, int], int] = {}
        wire.change_requests(Api.PRODUCE, self._look)

    def _look(self, request: bytes) -> bytes:
        """Reads a request of the engine, which has records of one partition."""
        if found := WRITTEN.search(request):
            name, partition, producer_id = found.groups()
            self.of[name.decode(), struct.unpack(">i", partition)[0]] = struct.unpack(">q", producer_id)[0]
        return request


def outdate(wire: SlowWire, orders: DeclaredTopic, partition: int, producer_id: int) -> None:
    """Writes a record to a ready partition as a producer with this id and a later epoch. Kafka then refuses what the former one sends."""
    as_this = struct.pack(">qh", producer_id, LAST_EPOCH) + b"\0"
    wire.change_answers(Api.INIT_PRODUCER_ID, lambda answer: answer[: -len(as_this)] + as_this)
    producer = Producer({**orders.harness.connection.client_config(), "enable.idempotence": True})
    producer.produce(orders.names.ready, b"of another producer", partition=partition)
    assert producer.flush(60) == 0
    wire.change_answers(Api.INIT_PRODUCER_ID, bytes)


def test_what_other_producers_had_in_flight_does_not_come_twice_when_kafka_refuses_the_epoch_of_one(
    harness: WorkerHarness, wire: SlowWire, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies to topics with replicas are shared out among several producers."""
    orders = harness.declare((0,), front_partitions=PARTITIONS, partitions=1)
    slow = f"{orders.names.front}.slow"
    config = {"message.timestamp.type": "LogAppendTime"}
    harness.create([NewTopicSpec(name=slow, partitions=1, replication_factor=1, config=config)])
    orders.change(ready_topics=(AllowedTopic(slow, 0),))
    producers = CopyProducers(wire)
    with running_relay(orders, replicated=True):
        for partition in range(PARTITIONS):
            orders.produce(b"%d" % partition, partition=partition)
        to_slow = [("dt-target", slow.encode())]
        orders.produce(b"first", headers=to_slow)
        orders.flush()
        assert len(harness.read(slow, 1)) == 1
        ids = {r.partition: producers.of[orders.names.ready, r.partition] for r in orders.ready(PARTITIONS)}
        refused = next(r for r in orders.ready(PARTITIONS) if ids[r.partition] != producers.of[slow, 0])

        with wire.holding_back(slow) as held:
            orders.produce(b"slow", headers=to_slow, partition=(int(refused.value or b"") + 1) % PARTITIONS)
            orders.flush()
            assert held.wait(60)
            outdate(wire, orders, refused.partition, ids[refused.partition])
            orders.produce(b"refused", partition=int(refused.value or b""))
            orders.flush()
            with harness.reader(orders.names.ready) as read:
                wait_for_value(read, b"refused")
        orders.produce(b"last", headers=to_slow)
        orders.flush()

        with harness.reader(slow) as read:
            wait_for_value(read, b"last")
            time.sleep(1)
            assert sorted(r.value or b"" for r in read()) == [b"first", b"last", b"slow"]
    assert caplog.text.count("failed permanently") == 1
