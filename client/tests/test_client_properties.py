"""Properties and callbacks of the user that the clients of this project could not live with as they are."""

import os
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from delayed_topics import ChangeOutcome, DelayedTopic
from delayed_topics.producers import producer_properties
from delayed_topics.records import SETTLE_SECONDS
from delayed_topics_client_testing import Served, serve
from delayed_topics_core.settings import FRONT_MAX_MESSAGE_BYTES
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import ConnectionInvalid

pytestmark = pytest.mark.broker

IDLE_SECONDS = 2


def test_statistics_of_producers_that_nobody_polls_do_not_pile_up(served: Served) -> None:
    """Each takes 3 kB or more."""
    controlled = serve(served.connection, f"{served.names.front}-controlled", control=True)
    statistics = list[str]()
    own = {"statistics.interval.ms": 20, "stats_cb": statistics.append}
    controlled.release(b"bad")
    controlled.release(b"next")
    with (
        DelayedTopic.connect({"bootstrap.servers": served.bootstrap, **own}, controlled.names.front) as orders,
        orders.records("shipping") as records,
    ):
        orders.send(b"x")
        orders.flush()
        orders.cancel("order-7")
        for record in records:
            if record.value == b"next":
                break
            time.sleep(2 * SETTLE_SECONDS)  # so that the outcome is settled when the loop asks for the next record
            records.retry(record, RuntimeError("not now"))
        before = len(statistics)
        time.sleep(IDLE_SECONDS)
        producers = (orders._producer, orders._control._producer, records._settling._transactions._producer)
        queued = [None if producer is None else len(producer) for producer in producers]
    assert before > 0, "the consumer has statistics"
    assert queued == [0, 0, 0]


def test_a_producer_without_the_reports_that_flush_needs_is_refused(served: Served) -> None:
    own = {"bootstrap.servers": served.bootstrap, "delivery.report.only.error": "true"}
    with pytest.raises(ConnectionInvalid, match=r"delivery\.report\.only\.error can't be true.* Remove the property"):
        DelayedTopic.connect(own, served.names.front)


def raise_it(error: KafkaError) -> None:
    raise KafkaException(error)


def test_an_error_callback_that_raises_makes_no_send_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The client library raises it from `poll`, when the record was given to it already."""
    connection = Connection(bootstrap_servers="127.0.0.1:1", further={"error_cb": raise_it})
    producer_properties(connection)["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert caplog.messages == ["error_cb raised"]


def test_a_request_does_not_wait_for_a_report_that_the_user_has_turned_off(served: Served) -> None:
    controlled = serve(served.connection, f"{served.names.front}-controlled", control=True)
    with DelayedTopic.connect(served.bootstrap, controlled.names.front) as orders:
        further = {"delivery.report.only.error": True}
        orders._control._connection = Connection(bootstrap_servers=served.bootstrap, further=further)
        assert orders.cancel("order-7") is ChangeOutcome.REQUESTED


def test_an_exception_of_the_block_is_told_though_records_did_not_arrive(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def send_and_fail() -> None:
        with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
            orders.send(os.urandom(FRONT_MAX_MESSAGE_BYTES))  # with its headers it is too large
            raise LookupError("no customer")

    with pytest.raises(LookupError, match="no customer"):
        send_and_fail()
    assert any("1 record did not arrive" in message for message in caplog.messages)
