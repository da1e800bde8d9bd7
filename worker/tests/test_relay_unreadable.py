"""A partition has records but delivers none. An alarm says which partition it is, for how long this lasts, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.settings import TopicRole
from delayed_topics_devcluster.broker import PATIENT, Broker, Brokers
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow]


class Application:
    """An application that produces in transactions, each of which may stay open for ten minutes."""

    def __init__(self, orders: DeclaredTopic) -> None:
        self._topic = orders.names.front
        config = {"transactional.id": f"app-{self._topic}", "transaction.timeout.ms": 600_000}
        self._producer = Producer({**orders.harness.connection.client_config(), **config})
        self._producer.init_transactions(60)

    @contextmanager
    def transaction(self, *values: bytes, partition: int, commit: bool = True) -> Iterator[None]:
        """Keeps a transaction with these records open until the block ends."""
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value, partition=partition)
        assert self._producer.flush(60) == 0
        yield
        if commit:
            self._producer.commit_transaction(60)
        else:
            self._producer.abort_transaction(60)


def message_of(worker: WorkerProcess) -> str:
    """Returns the message of the alarm NotReleasing, empty while it is not raised."""
    found = [a["message"] for a in worker.status().get("alarms", []) if a["reason"] == "NotReleasing"]
    return str(found[0]) if found else ""


def raised(worker: WorkerProcess) -> str:
    wait_until(lambda: message_of(worker) != "", what="the alarm NotReleasing", evidence=worker.evidence)
    return message_of(worker)


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", "ExactlyOnce"])
def test_a_transaction_that_stays_open_is_an_alarm_until_it_ends_and_those_that_ended_are_none(
    harness: WorkerHarness, guarantee: str
) -> None:
    """The other front partition has ended in transaction markers for longer, and so have both delays partitions with ExactlyOnce."""
    orders = harness.declare((0, 1), partitions=2, front_partitions=2)
    worker = harness.start(orders, guarantee=guarantee)
    orders.produce(b"1", partition=0)
    orders.produce(b"2", partition=1, headers=[("dt-delay-level", b"2")])
    orders.flush()
    application = Application(orders)
    with application.transaction(b"3", partition=1):
        pass
    with application.transaction(b"never", partition=1, commit=False):
        pass
    assert len(orders.ready(3)) == 3
    with application.transaction(b"4", partition=0):
        orders.produce(b"5", partition=0)
        orders.flush()

        message = raised(worker)

        assert f"the worker could not read anything from {orders.names.front} [0] at offset 1 for 3" in message
        assert "a transaction is open" in message
        assert f"kafka-transactions.sh --bootstrap-server {harness.connection.bootstrap_servers}" in message
        assert f"--topic {orders.names.front} --partition 0" in message
        assert "more partition" not in message
        assert len(orders.ready(3)) == 3
    assert {r.value for r in orders.ready(5)} == {b"1", b"2", b"3", b"4", b"5"}
    wait_until(lambda: not worker.alarm_reasons(), what="the alarm is cleared", evidence=worker.evidence)


def is_empty(admin: KafkaAdmin, orders: DeclaredTopic) -> bool:
    group = admin.describe_groups([orders.record.group])[orders.record.group]
    return isinstance(group, GroupInfo) and group.state == "Empty"


def damage(log: Path) -> None:
    """Changes bytes in the records of the first batch, as a bad disk does. The header of a batch has 61 bytes."""
    whole = bytearray(log.read_bytes())
    whole[80:160] = bytes(byte ^ 0x55 for byte in whole[80:160])
    log.write_bytes(whole)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_batch_that_cannot_be_decoded_is_an_alarm_and_nothing_is_passed_over(
    tmp_path: Path, compression: str
) -> None:
    with (
        Broker(settings=PATIENT) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness,
    ):
        as_produced: dict[TopicRole, dict[str, str]] = {"front": {"compression.type": "producer"}}
        orders = harness.declare((0,), front_partitions=1, partitions=1, config=as_produced)
        place = (orders.names.front, 0)
        producer = Producer({**harness.connection.client_config(), "compression.type": compression, "linger.ms": 500})
        for n in range(100):
            producer.produce(orders.names.front, b"%d" % n * 20, partition=0)
        assert producer.flush(60) == 0
        orders.produce(b"after")
        orders.flush()
        (log,) = (broker.directory / "data" / f"{orders.names.front}-0").glob("*.log")
        broker.stop()
        damage(log)
        broker.start()
        worker = harness.start(orders)

        message = raised(worker)

        assert f"the worker could not read anything from {orders.names.front} [0] at offset 0 for 3" in message
        assert "up to offset 101. The Kafka client can't decode the next batch" in message
        assert "failed CRC32C check" in message
        assert orders.released() == 0
        assert worker.log_path.read_text().count("failed CRC32C") <= 4, "a line for each attempt would hide all others"
        assert worker.terminate() == 0
        # a client that knew the coordinator before the restart may wait for it forever (librdkafka issue 5511)
        admin = KafkaAdmin(harness.connection, timeout_seconds=60)
        wait_until(lambda: is_empty(admin, orders), what="the static member's session is over")
        assert admin.commit(orders.record.group, {place: OffsetAndMetadata(100)}) == {place: None}
        harness.start(orders)
        assert [r.value for r in orders.ready(1)] == [b"after"]


def place_that_only_records_need(orders: DeclaredTopic) -> tuple[int, int]:
    """Returns a front partition and the id of its leader, which neither leads the clock's partition nor coordinates the group."""
    admin, group = AdminClient(orders.harness.connection.client_config()), orders.record.group
    topics = admin.list_topics(timeout=60).topics
    coordinator = admin.describe_consumer_groups([group])[group].result(60).coordinator
    assert coordinator is not None
    needed = {topics[CLOCK_TOPIC].partitions[0].leader, coordinator.id}
    leaders = {number: found.leader for number, found in topics[orders.names.front].partitions.items()}
    return next((number, leader) for number, leader in leaders.items() if leader not in needed)


def test_a_partition_whose_leader_is_out_of_reach_is_an_alarm_though_it_was_read_to_its_end(tmp_path: Path) -> None:
    """The cluster keeps the dead broker as the leader until its session is over. For a worker, that is like a broken network between it and
    this broker."""
    with (
        Brokers(settings=PATIENT) as brokers,
        WorkerHarness(Connection(bootstrap_servers=brokers.bootstrap), tmp_path) as harness,
    ):
        orders = harness.declare((0,), front_partitions=3)
        worker = harness.start(orders)
        for partition in range(3):
            orders.produce(b"before", partition=partition)
        orders.flush()
        assert len(orders.ready(3)) == 3
        partition, node_id = place_that_only_records_need(orders)
        leader = next(member for member in brokers.members if member.node_id == node_id)
        leader.kill()

        message = raised(worker)

        assert f"the worker could not read anything from {orders.names.front} [{partition}] at offset 1 for " in message
        assert "the worker has no connection to a leader of it" in message
        assert f"--describe --topic {orders.names.front}" in message
        leader.start()
        orders.produce(b"after", partition=partition)
        orders.flush()
        assert len(orders.ready(4)) == 4
        wait_until(lambda: not worker.alarm_reasons(), what="the alarm is cleared", evidence=worker.evidence)
