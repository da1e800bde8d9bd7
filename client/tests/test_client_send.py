import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError, Message
from delayed_topics import DelayedTopic, NotDelayedTopic, SendFailed
from delayed_topics.producers import LARGEST_RECORD_BYTES
from delayed_topics_client_testing import FRONT_PARTITIONS, Served, serve
from delayed_topics_core.errors import IllegalTopicName
from delayed_topics_core.layout import LayoutSpec, evolve
from delayed_topics_core.settings import FRONT_MAX_MESSAGE_BYTES
from delayed_topics_core_testing.partitioner import partition_for_key
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaUnreachable
from delayed_topics_kafka_testing.slow_wire import Api, slow_broker

pytestmark = pytest.mark.broker


def send_until(deadline: Deadline, topic: DelayedTopic) -> None:
    while not deadline.over:
        topic.send(b"x")


def test_records_arrive_with_what_was_said(served: Served) -> None:
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        orders.send(b"plain")
        further: dict[str, Any] = {"delay_level": 2, "id": "order-7", "created_at_ms": 1_700_000_000_000}
        orders.send(None, key=b"k", headers=[("trace", b"1"), ("trace", None)], **further)
    plain, said = sorted(served.read(served.names.front), key=lambda c: c.value is None)
    # the same record as from a client that does not know this project
    assert (plain.value, plain.key, plain.headers) == (b"plain", None, [])
    assert (said.value, said.key, said.headers[:2]) == (None, b"k", [("trace", b"1"), ("trace", None)])
    own = {"dt-delay-level": b"2", "dt-id": b"order-7", "dt-created-at": b"1700000000000"}
    assert dict(said.headers[2:]) == own


def test_a_partitions_first_record_that_kafka_refuses_for_a_moment_is_sent_again() -> None:
    """Kafka refuses records in this way while it elects a leader. The next record is in flight, and Kafka accepts it."""
    keys = {partition_for_key(b"%d" % n, FRONT_PARTITIONS): b"%d" % n for n in range(100)}
    with slow_broker() as wire:
        served = serve(Connection(bootstrap_servers=wire.bootstrap), "orders")
        with DelayedTopic.connect(wire.bootstrap, served.names.front) as orders:
            orders.send(b"0", key=keys[0])
            orders.flush()
            refused = wire.refuse_first(served.names.front)
            wire.hold_back_requests(Api.PRODUCE, 0.1)
            for n in range(1, 20):
                orders.send(b"%d" % n, key=keys[1])
                time.sleep(0.02)
        assert refused.is_set()
        assert sorted(int(c.value or b"") for c in served.read(served.names.front)) == list(range(20))


def test_keys_find_the_partitions_that_java_gives_them(served: Served) -> None:
    keys = [b"key-%d" % n for n in range(100)]
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        for key in keys:
            orders.send(b"x", key=key)
    arrived = {c.key: c.partition for c in served.read(served.names.front)}
    assert arrived == {key: partition_for_key(key, served.layout.front_partitions) for key in keys}


def test_properties_and_connections_are_taken_as_well_as_an_address(served: Served) -> None:
    for way in ({"bootstrap.servers": served.bootstrap, "client.id": "shop"}, served.connection):
        with DelayedTopic.connect(way, served.names.front) as orders:
            orders.send(b"x")
    assert len(served.read(served.names.front)) == 2


def test_flush_says_what_did_not_arrive(served: Served) -> None:
    orders = DelayedTopic.connect(served.bootstrap, served.names.front)
    orders.send(os.urandom(FRONT_MAX_MESSAGE_BYTES))
    with pytest.raises(
        SendFailed, match=f"1 record did not arrive in {served.names.front}.*MSG_SIZE_TOO_LARGE"
    ) as caught:
        orders.flush()
    assert caught.value.failed == 1
    orders.send(b"small")
    orders.close()
    assert [c.value for c in served.read(served.names.front)] == [b"small"]


def test_what_is_sent_after_the_client_is_closed_is_refused(served: Served) -> None:
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        orders.send(b"before")
    with pytest.raises(
        SendFailed, match=f"a record for {served.names.front} was not sent, because the client is closed"
    ):
        orders.send(b"after")
    orders.close()  # closing again does no harm
    assert [c.value for c in served.read(served.names.front)] == [b"before"]


def test_each_thread_is_told_of_what_it_sent_itself_and_the_rest_at_the_end(served: Served) -> None:
    """In a web server, for example, each request sends and flushes in its own thread."""
    orders = DelayedTopic.connect(served.bootstrap, served.names.front)
    too_large = os.urandom(FRONT_MAX_MESSAGE_BYTES)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as careless:
        one.submit(orders.send, too_large).result()
        careless.submit(orders.send, too_large).result()
        other.submit(orders.send, b"small").result()
        other.submit(orders.flush).result()
        with pytest.raises(SendFailed, match="1 record did not arrive"):
            one.submit(orders.flush).result()
        one.submit(orders.flush).result()
    with pytest.raises(SendFailed, match=f"1 record did not arrive in {served.names.front}.*MSG_SIZE_TOO_LARGE"):
        orders.close()
    assert [c.value for c in served.read(served.names.front)] == [b"small"]


def test_whoever_flushes_when_a_pool_has_ended_is_told_once_what_its_threads_failed_to_send(served: Served) -> None:
    orders = DelayedTopic.connect(served.bootstrap, served.names.front)
    too_large = os.urandom(FRONT_MAX_MESSAGE_BYTES)
    with ThreadPoolExecutor(2) as pool:
        for sent in [pool.submit(orders.send, too_large) for _ in range(3)]:
            sent.result()
        orders.flush()  # reports nothing, because the threads of the pool may still flush themselves
    orders.send(too_large)
    with pytest.raises(SendFailed, match="4 records did not arrive") as caught:
        orders.flush()
    assert caught.value.failed == 4
    orders.flush()
    orders.close()


def test_a_flush_waits_for_what_other_threads_have_sent_before() -> None:
    arrived: list[Message] = []
    with slow_broker() as wire:
        served = serve(Connection(bootstrap_servers=wire.bootstrap), "orders")
        with DelayedTopic.connect(wire.bootstrap, served.names.front) as orders, ThreadPoolExecutor(4) as pool:

            def send(n: int) -> None:
                orders.send(b"%d" % n, on_delivery=lambda _, message: arrived.append(message))

            wire.hold_back_requests(Api.PRODUCE, 1)
            for sent in [pool.submit(send, n) for n in range(20)]:
                sent.result()
            orders.flush()
            assert len(arrived) == 20


def test_a_flush_waits_for_a_record_that_later_ones_of_another_partition_overtake() -> None:
    """This happens while one partition has no leader."""
    keys = {partition_for_key(b"%d" % n, FRONT_PARTITIONS): b"%d" % n for n in range(100)}
    arrived: list[bytes | None] = []
    overtaken, enough = threading.Event(), threading.Event()

    def refused_at_first(request: bytes) -> bytes:
        refuse = b"overtaken" in request and not overtaken.is_set()
        return request.replace(b"orders", b"??????") if refuse else request

    def on_delivery(_: KafkaError | None, message: Message) -> None:
        arrived.append(message.value())
        if len(arrived) == 50:
            overtaken.set()

    with slow_broker() as wire:
        served = serve(Connection(bootstrap_servers=wire.bootstrap), "orders")
        with DelayedTopic.connect(wire.bootstrap, served.names.front) as orders, ThreadPoolExecutor(1) as other:

            def send_on() -> None:
                while not enough.wait(0.02):
                    orders.send(b"x", key=keys[0], on_delivery=on_delivery)

            orders.send(b"x")
            orders.flush()
            wire.change_requests(Api.PRODUCE, refused_at_first)
            orders.send(b"overtaken", key=keys[1], on_delivery=on_delivery)
            sending = other.submit(send_on)
            try:
                orders.flush(60)
                assert arrived.index(b"overtaken") >= 50
            finally:
                enough.set()
                overtaken.set()
            sending.result()


def test_a_flush_does_not_wait_for_what_another_thread_goes_on_sending() -> None:
    """With a broker that answers slowly, some records are always in flight."""
    enough = threading.Event()
    with slow_broker() as wire:
        served = serve(Connection(bootstrap_servers=wire.bootstrap), "orders")
        with DelayedTopic.connect(wire.bootstrap, served.names.front) as orders, ThreadPoolExecutor(1) as other:
            wire.hold_back(0.2)

            def send_on() -> None:
                while not enough.wait(0.01):
                    orders.send(b"x")

            sending = other.submit(send_on)
            try:
                with pytest.raises(SendFailed, match="MSG_SIZE_TOO_LARGE"):
                    orders.send(bytes(LARGEST_RECORD_BYTES))  # too large with its overhead, so flush ignores it
                orders.send(b"y")
                orders.flush(10)
            finally:
                enough.set()
            sending.result()
            wire.hold_back(0)


def test_whoever_has_to_know_which_record_failed_is_called_with_each(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    errors: dict[bytes, str | None] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        errors[message.key() or b""] = error.name() if error is not None else None

    def send_again(_: KafkaError | None, message: Message) -> None:
        orders.send(message.value(), key=b"again")

    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        orders.send(os.urandom(FRONT_MAX_MESSAGE_BYTES), key=b"large", on_delivery=on_delivery)
        orders.send(b"small", key=b"small", on_delivery=on_delivery)
        with pytest.raises(SendFailed, match="1 record did not arrive"):
            orders.flush()
        assert errors == {b"large": "MSG_SIZE_TOO_LARGE", b"small": None}
        for _ in range(5):  # the client library would crash if a callback used it and another callback followed
            orders.send(b"x", on_delivery=send_again)
        orders.flush()
    assert caplog.text.count("on_delivery can't send or flush") == 5
    assert {c.key for c in served.read(served.names.front)} == {b"small", None}


def test_headers_and_levels_that_are_not_the_senders_to_give_are_refused(served: Served) -> None:
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        with pytest.raises(ValueError, match="header dt-root is reserved for delayed topics"):
            orders.send(b"x", headers=[("dt-root", b"f:0:0:x")])
        with pytest.raises(ValueError, match="delay_level must be 1 or more"):
            orders.send(b"x", delay_level=0)
        with pytest.raises(ValueError, match="id must be 1 to 256 ASCII characters"):
            orders.send(b"x", id="ü")
        for wrong in (-1, 2**63):
            with pytest.raises(ValueError, match="created_at_ms must be milliseconds since the epoch"):
                orders.send(b"x", created_at_ms=wrong)
    assert served.read(served.names.front) == []


def test_a_target_is_one_that_the_delayed_topic_allows(served: Served) -> None:
    served.allow("invoices", "shipments")
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        orders.send(b"x", target="invoices")
        orders.send(b"x", target="shipments:2")
        for wrong in ("elsewhere", "orders.ready:1"):
            with pytest.raises(
                ValueError, match=r"target must be allowed by .*\. The allowed topics are invoices, shipments$"
            ):
                orders.send(b"x", target=wrong)
        for wrong in ("", "invoices:", "invoices:x", "invoices:-1", "invoices:2147483648"):
            with pytest.raises(ValueError, match="target must be a topic or topic:partition, but it is"):
                orders.send(b"x", target=wrong)
    sent = served.read(served.names.front)
    assert {c.said["dt-target"] for c in sent} == {b"invoices", b"shipments:2"}


def test_without_other_ready_topics_it_is_said_how_to_allow_them(served: Served) -> None:
    with (
        DelayedTopic.connect(served.bootstrap, served.names.front) as orders,
        pytest.raises(
            ValueError,
            match=r"target must be allowed by spec\.ready\.allowedTopics of the DelayedTopic shop/orders, but it is 'invoices'$",
        ),
    ):
        orders.send(b"x", target="invoices")


def test_what_is_no_delayed_topic_is_said_at_once(served: Served) -> None:
    with pytest.raises(
        NotDelayedTopic, match=f"topic nowhere is not in .* {served.bootstrap}. Either create a DelayedTopic"
    ):
        DelayedTopic.connect(served.bootstrap, "nowhere")
    with pytest.raises(IllegalTopicName):
        DelayedTopic.connect(served.bootstrap, served.names.ready)
    with pytest.raises(KafkaUnreachable):
        DelayedTopic.connect({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "orders", timeout_seconds=1)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["planned", "retired"])
def test_a_topic_that_is_not_served_is_waited_for(served: Served, state: Literal["planned", "retired"]) -> None:
    served.write_layout(replace(served.layout, state=state))
    with pytest.raises(
        NotDelayedTopic,
        match=rf"is not served after 8 s, because its layout is {state}\. See `kubectl describe dtopic orders",
    ):
        DelayedTopic.connect(served.bootstrap, served.names.front, timeout_seconds=8)
    soon = threading.Timer(1, served.write_layout, [served.layout])
    soon.start()
    DelayedTopic.connect(served.bootstrap, served.names.front).close()
    soon.join()


def test_the_registry_is_followed(served: Served) -> None:
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        assert orders.layout == served.layout
        edited = replace(
            served.layout, layout=evolve(served.layout.layout, LayoutSpec(delay_seconds=(0, 5), partitions=5))
        )
        served.write_layout(replace(edited, state="planned"))
        served.write_layout(edited)
        deadline = Deadline(120)
        while orders.layout != edited:
            assert not deadline.over
        served.remove_layout()
        with pytest.raises(NotDelayedTopic):
            send_until(deadline, orders)


def test_once_a_topic_was_removed_each_send_says_so_until_it_is_there_again(served: Served) -> None:
    def sends() -> bool:
        try:
            orders.send(b"x")
        except NotDelayedTopic:
            return False
        return True

    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        served.remove_layout()
        wait_until(lambda: not sends(), what="the client has read that the topic was removed")
        for _ in range(30):
            assert not sends()
            time.sleep(0.1)
        served.write_layout(served.layout)
        wait_until(sends, what="the client has read that the topic is there again")
