"""Producers that fail permanently while a consumer or an application uses them."""

import gc
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from delayed_topics import DelayedTopic, Record, Reject, SendFailed
from delayed_topics.records import SETTLE_SECONDS
from delayed_topics_client_testing import Served, serve
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka_testing.rights import AUTHORIZER, deny_only

pytestmark = pytest.mark.broker

SILENT_SECONDS = 25
"""Long enough for a consumer to wait for its producer, to fail to abort the transaction, and to give the producer up."""


@pytest.fixture(autouse=True)
def _no_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    """pytest keeps log records. The frames of a traceback in them would keep the consumer alive."""
    caplog.set_level(logging.CRITICAL, logger="delayed_topics.handlers")


def threads() -> int:
    gc.collect()  # a client and its callbacks refer to each other
    return len(list(Path("/proc/self/task").iterdir()))


def consume_and_fail(served: Served, count: int, meanwhile: Callable[[Record], object]) -> None:
    """Consumes records whose handler always fails, and asserts that each has exactly one retry or dead letter."""

    def fail(record: Record) -> None:
        meanwhile(record)
        if record.value == b"%d" % (count - 1):
            consumer.stop()
        raise Reject("never") if record.value in never else RuntimeError("not now")

    never = [b"%d" % n for n in range(2, count, 3)]
    for n in range(count):
        served.release(b"%d" % n, number=n)
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        consumer = orders.consumer("shipping", fail, member="pod-0")
        consumer.run()
    assert [c.value for c in served.read(served.names.front)] == [b"%d" % n for n in range(count) if n % 3 != 2]
    assert [c.value for c in served.read(served.names.dead_letter)] == never
    assert served.committed("shipping") == {0: count}


def test_a_consumer_whose_producer_was_shut_out_makes_each_copy_once_and_leaves_nothing_behind(served: Served) -> None:
    """Another producer with the same transactional id shuts it out. Kafka then refuses its copies with a fatal error, several at a time."""
    before = threads()

    def shut_out(record: Record) -> None:
        if record.value == b"5":
            name = f"delayedtopics.{served.names.front}.shipping.pod-0"
            Producer({**served.connection.client_config(), "transactional.id": name}).init_transactions(120)

    consume_and_fail(served, 20, shut_out)
    wait_until(lambda: threads() <= before, what="the threads of all clients have ended", evidence=threads)


@pytest.mark.slow
def test_a_producer_that_is_given_up_with_copies_on_their_way_leaves_nothing_behind() -> None:
    with Broker() as broker:
        served, before = serve(Connection(bootstrap_servers=broker.bootstrap), "orders"), threads()
        back = threading.Timer(SILENT_SECONDS, broker.resume)

        def stand_still(record: Record) -> None:
            if record.value == b"1":
                broker.pause()
                back.start()
                time.sleep(2 * SETTLE_SECONDS)  # the consumer settles the finished records after this one

        consume_and_fail(served, 20, stand_still)
        back.join()
        wait_until(lambda: threads() <= before, what="the threads of all clients have ended", evidence=threads)


@pytest.mark.slow
def test_what_is_sent_without_the_right_to_write_anything_is_said_to_have_failed() -> None:
    """Without these rights, Kafka refuses the producer itself, and not only its records."""
    with Broker(settings={**AUTHORIZER, **PATIENT}) as broker:
        served = serve(Connection(bootstrap_servers=broker.bootstrap), "orders")
        deny_only(served.connection, ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
        deny_only(served.connection, ResourceType.TOPIC, "*", AclOperation.WRITE)
        orders = DelayedTopic.connect(served.bootstrap, "orders")
        for _ in range(5):
            orders.send(b"x")
        with pytest.raises(SendFailed, match=r"5 records did not arrive in orders\. .*CLUSTER_AUTHORIZATION_FAILED"):
            orders.flush()
        with pytest.raises(SendFailed, match=r"a record for orders was not sent: .*CLUSTER_AUTHORIZATION_FAILED"):
            orders.send(b"x")
        orders.close()
