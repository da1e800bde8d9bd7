import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import delayed_topics
import pytest
import yaml
from confluent_kafka import Message
from delayed_topics import Consumer, DelayedTopicsError, GroupInvalid, Record, Reject, delayed_topic
from delayed_topics.copies import retry
from delayed_topics.handlers import WARN_SECONDS, FailureLog
from delayed_topics.records import Records
from delayed_topics.reports import Reports
from delayed_topics_client_testing import received
from delayed_topics_core.errors import IllegalTopicName
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import ConnectionInvalid


def test_nothing_leaks() -> None:
    public = {
        name for name, value in vars(delayed_topics).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(delayed_topics.__all__)


def test_every_public_name_is_documented() -> None:
    undocumented = [name for name in delayed_topics.__all__ if not inspect.getdoc(getattr(delayed_topics, name))]
    assert undocumented == []


@pytest.mark.parametrize("group", ["", "größe", "g" * 250])
def test_a_group_that_retries_could_not_carry_is_refused_at_once(group: str) -> None:
    connection = Connection(bootstrap_servers="127.0.0.1:1")

    with pytest.raises(GroupInvalid, match="group must be 1 to 249 ASCII characters"):
        Records(connection, TopicNames.of("orders"), group)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.id", "billing"),
        ("enable.auto.commit", True),
        ("enable.auto.offset.store", "true"),
        ("isolation.level", "read_uncommitted"),
        ("partitioner", "consistent_random"),
        ("enable.idempotence", "false"),
        ("max.in.flight.requests.per.connection", "5"),
    ],
)
def test_a_property_that_a_consumer_can_not_honour_is_refused_by_its_name(name: str, value: str | bool) -> None:
    connection = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "0", name: value})

    with pytest.raises(ConnectionInvalid, match=f"the property {re.escape(name)} can't be "):
        Records(connection, TopicNames.of("orders"), "shipping")


def test_a_dead_letter_gets_smaller_until_it_fits() -> None:
    record = received(b"v" * 100, key=b"k" * 100, headers=(("h" * 100, b"x"),))

    _, whole, without_value, bare = retry(
        record, TopicNames.of("orders"), group="g", error=ValueError("no"), done_at_ms=1
    ).copies

    assert (whole.key, whole.value) == (record.key, record.value)
    assert (without_value.key, without_value.value) == (record.key, None)
    assert (bare.key, bare.value, bare.partition) == (None, None, whole.partition)
    assert bare.headers == [header for header in whole.headers if header not in record.headers]


def test_a_rejection_is_an_outcome_and_no_error_of_the_client() -> None:
    assert not issubclass(Reject, DelayedTopicsError)
    assert str(Reject("no such customer")) == Reject(LookupError("no such customer")).reason == "no such customer"


@delayed_topic(topic="Order_Events", delay_seconds=[0, 10, 60], retry_cap=5)
def ship(record: Record) -> str:
    """Ships."""
    return f"shipped {record.value!r}"


def test_a_declaration_prints_the_manifest_that_it_implies() -> None:
    assert yaml.safe_load(ship.manifest()) == {
        "apiVersion": "delayedtopics.io/v1alpha1",
        "kind": "DelayedTopic",
        "metadata": {"name": "order-events"},
        "spec": {"topic": "Order_Events", "delaySeconds": [0, 10, 60], "retryCap": 5},
    }


def test_a_topic_that_can_be_a_name_is_not_said_twice() -> None:
    declared = delayed_topic(topic="orders", delay_seconds=[5], retry_cap=0)(print)
    assert yaml.safe_load(declared.manifest())["spec"] == {"delaySeconds": [5], "retryCap": 0}


def test_a_declared_handler_is_still_a_function() -> None:
    record = received(b"x")
    assert ship(record) == "shipped b'x'"
    assert ship.__doc__ == "Ships."
    assert record.late_ms == 2


def test_what_can_not_be_declared_is_refused() -> None:
    with pytest.raises(IllegalTopicName):
        delayed_topic(topic="orders.ready", delay_seconds=[0], retry_cap=5)(print)
    with pytest.raises(ValueError, match="at least one entry"):
        delayed_topic(topic="orders", delay_seconds=[], retry_cap=5)(print)


async def ship_later(record: Record) -> None:
    raise AssertionError(f"this coroutine is never awaited: {record}")


def ship_in_parts(record: Record) -> Iterator[Record]:
    yield record


async def ship_later_in_parts(record: Record) -> AsyncIterator[Record]:
    yield record


class Shipping:
    async def __call__(self, record: Record) -> None:
        raise AssertionError(f"this coroutine is never awaited: {record}")

    async def ship(self, record: Record) -> None:
        raise AssertionError(f"this coroutine is never awaited: {record}")


@pytest.mark.parametrize(
    "handler",
    [
        ship_later,
        ship_in_parts,
        ship_later_in_parts,
        Shipping(),
        Shipping().ship,
        partial(ship_later),
        partial(Shipping()),
    ],
)
def test_a_handler_whose_call_would_not_run_it_is_refused_at_once(handler: Callable[[Record], object]) -> None:
    with pytest.raises(TypeError, match=r"would not be run.*asyncio\.run"):
        delayed_topic(topic="orders", delay_seconds=[0], retry_cap=5)(handler)
    nowhere = Connection(bootstrap_servers="127.0.0.1:1", further={"log_level": "0"})
    records = Records(nowhere, TopicNames.of("orders"), "shipping")
    with pytest.raises(TypeError, match=r"would not be run.*asyncio\.run"):
        Consumer(records, handler)


def test_what_on_delivery_raises_does_not_come_out_of_the_call_that_serves_it(caplog: pytest.LogCaptureFixture) -> None:
    def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    with Reports().sending(cancelled) as on_delivery:
        pass
    on_delivery(None, Message())
    assert "on_delivery raised" in caplog.text


def test_what_handlers_raise_is_warned_of_with_its_traceback_and_not_for_each_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 1000.0
    caplog.set_level("INFO")
    failures = FailureLog(lambda: now)

    def logged(error: Exception) -> tuple[str, str]:
        caplog.clear()
        try:
            raise error
        except Exception as e:  # noqa: BLE001  a handler can raise any exception
            failures.log(received(b"secret"), "is retried", e)
        (record,) = caplog.records
        return record.levelname, caplog.text

    level, text = logged(TimeoutError("the shop is closed"))
    assert level == "WARNING"
    assert (
        "orders.ready [0] offset 7, attempt 0, is retried, because the handler raised TimeoutError: the shop is closed"
        in text
    )
    assert "Traceback" in text
    assert "raise error" in text
    for _ in range(2):
        level, text = logged(TimeoutError("the shop is closed"))
        assert (level, "Traceback" in text) == ("INFO", False)
    assert logged(KeyError("another"))[0] == "WARNING"
    now += WARN_SECONDS
    level, text = logged(TimeoutError("the shop is closed"))
    assert (level, "closed. 2 more with TimeoutError since the last warning" in text) == ("WARNING", True)
