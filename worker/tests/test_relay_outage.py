"""Kafka goes away and comes back. The worker's process stays, and records are late by seconds."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.slow_wire import SlowWire
from delayed_topics_worker_testing.harness import WorkerHarness
from delayed_topics_worker_testing.load import all_ready, doubled, steady_load
from delayed_topics_worker_testing.process import Launch, WorkerProcess

pytestmark = [pytest.mark.broker, pytest.mark.slow]

STANDSTILL_SECONDS = 14

OUTAGE_SECONDS = 13
GRACE_SECONDS = 30.0
"""The `terminationGracePeriodSeconds` of a worker's pod."""
SILENT_NAME_SERVER = "127.53.53.53"
MAX_SECONDS_AFTER = 20.0
"""From the end of an outage to the release of the last record: 5 on a quiet machine, including the start of the broker."""


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def own_harness(own_broker: Broker, tmp_path: Path) -> Iterator[WorkerHarness]:
    with WorkerHarness(Connection(bootstrap_servers=own_broker.bootstrap), tmp_path) as made:
        yield made


def test_a_worker_outlives_its_broker(own_broker: Broker, own_harness: WorkerHarness) -> None:
    orders = own_harness.declare((0, 1), front_partitions=2)
    worker = own_harness.start(orders)
    for n in range(1000):
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"%d" % (n % 2 + 1))])
    orders.flush()
    own_broker.kill()
    time.sleep(OUTAGE_SECONDS)
    assert worker.get("/livez")[0] == 200
    own_broker.restart()
    healed_at = time.time()

    ready = orders.ready(1000)
    counts = {r.value for r in ready}

    assert len(counts) == 1000
    assert min(r.late_ms for r in ready) >= 0
    assert max(r.at_ms for r in ready) / 1000 - healed_at < MAX_SECONDS_AFTER
    assert worker.terminate() == 0


def test_a_frozen_broker_is_waited_for(own_broker: Broker, own_harness: WorkerHarness) -> None:
    orders = own_harness.declare((0, 1), front_partitions=2)
    worker = own_harness.start(orders)
    for n in range(200):
        orders.produce(b"%d" % n, headers=[("dt-delay-level", b"2")])
    orders.flush()
    own_broker.pause()
    time.sleep(OUTAGE_SECONDS)
    own_broker.resume()
    healed_at = time.time()

    ready = orders.ready(200)

    assert {int(r.value or b"") for r in ready} == set(range(200))
    assert min(r.late_ms for r in ready) >= 0
    assert max(r.at_ms for r in ready) / 1000 - healed_at < MAX_SECONDS_AFTER
    assert worker.get("/livez")[0] == 200


def test_after_an_outage_a_ready_topic_that_somebody_else_made_is_still_not_written_to(
    own_broker: Broker, own_harness: WorkerHarness
) -> None:
    """If Kafka does not answer about a topic, the worker keeps its last answer. The outage is shorter than a session, so partitions are not
    assigned again."""
    orders = own_harness.declare((0,), front_partitions=1)
    worker = own_harness.start(orders)
    own_harness.admin.delete_topics([orders.names.ready])
    again = orders.make("ready", 1)
    wait_until(lambda: Reason.TOPIC_RECREATED in worker.alarm_reasons(), what="the alarm")
    for n in range(5):
        orders.produce(b"%d" % n)
    orders.flush()
    own_broker.pause()
    time.sleep(9)
    own_broker.resume()
    until = time.monotonic() + 8
    while time.monotonic() < until:
        assert orders.released() == 0
        time.sleep(0.2)

    orders.note_id(again)

    assert [r.value for r in orders.ready(5)] == [b"%d" % n for n in range(5)]


def test_an_outage_ends_no_exactly_once_worker_and_makes_it_repeat_nothing(
    own_broker: Broker, own_harness: WorkerHarness
) -> None:
    """The broker is killed, and then frozen for longer than a transaction may last. Each time, the outcome of the copies in flight is
    unknown."""
    orders = own_harness.declare((0, 1, 2))
    worker = own_harness.start(orders, guarantee="ExactlyOnce")
    with steady_load(orders) as sent:
        time.sleep(2)
        own_broker.kill()
        own_broker.restart()
        time.sleep(5)
        own_broker.pause()
        time.sleep(OUTAGE_SECONDS)
        own_broker.resume()
        time.sleep(2)

    assert doubled(all_ready(orders, sent)) == 0
    assert worker.terminate() == 0


def test_a_worker_started_without_kafka_waits_for_it(own_broker: Broker, own_harness: WorkerHarness) -> None:
    orders = own_harness.declare((0,))
    own_broker.stop()
    worker: WorkerProcess = own_harness.start(orders, ready=False)
    time.sleep(5)
    assert worker.get("/livez")[0] == 200
    assert worker.get("/readyz")[0] == 503

    own_broker.restart()

    worker.ready()
    orders.produce(b"v")
    orders.flush()
    assert len(orders.ready(1)) == 1


def test_workers_outlive_a_kafka_that_stands_still_right_after_they_have_joined(
    own_broker: Broker, own_harness: WorkerHarness
) -> None:
    """Workers ask Kafka about their group at that time. The client library aborted one of four workers while it waited for the answer."""
    orders = own_harness.declare((0, 1), partitions=2, front_partitions=1)
    workers = [own_harness.start(orders, member=f"orders-{n}", ready=False) for n in range(6)]

    def joined() -> bool:
        return all("assigned: " in worker.log_path.read_text() for worker in workers)

    wait_until(joined, what="all workers have joined", poll_seconds=0.02)
    own_broker.pause()
    time.sleep(STANDSTILL_SECONDS)  # longer than the client waits for any answer
    own_broker.resume()
    orders.produce()
    orders.flush()
    assert len(orders.ready(1)) == 1
    wait_until(
        lambda: all(worker.get("/readyz")[0] == 200 for worker in workers if worker.running),
        what="all workers are ready",
    )
    assert [worker.member for worker in workers if not worker.running] == []


def test_a_worker_that_is_cut_off_from_kafka_and_from_its_name_server_ends_within_its_grace_period(
    tmp_path: Path,
) -> None:
    """A client that looks up the address of a broker does not end before the lookup is answered or times out."""
    hosts, resolver = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("127.0.0.1 localhost\n")
    resolver.write_text(f"nameserver {SILENT_NAME_SERVER}\noptions timeout:15 attempts:2\n")
    mounts = f'mount --bind {hosts} /etc/hosts && mount --bind {resolver} /etc/resolv.conf && exec "$@"'
    (port,) = free_ports(1)
    advertised = {"advertised.listeners": f"PLAINTEXT://localhost:{port}"}
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent,
        Broker(settings={**PATIENT, **advertised}) as broker,
        SlowWire(port, int(broker.bootstrap.rpartition(":")[2])) as wire,
        WorkerHarness(Connection(bootstrap_servers=f"localhost:{port}"), tmp_path) as harness,
    ):
        silent.bind((SILENT_NAME_SERVER, 53))
        orders = harness.declare((0,), front_partitions=1)
        worker = harness.start(orders, launch=Launch(prefix=("unshare", "--mount", "sh", "-c", mounts, "sh")))
        orders.produce()
        orders.flush()
        orders.ready(1)
        hosts.write_text("127.0.0.1 elsewhere\n")
        wire.end()
        wait_until(lambda: "Disconnected" in worker.log_path.read_text(), what="the worker is cut off")
        silent.settimeout(60)
        silent.recv(512)

        terminated_at = time.monotonic()
        assert worker.terminate() == 0
        assert time.monotonic() - terminated_at < GRACE_SECONDS, worker.log_path.read_text()
