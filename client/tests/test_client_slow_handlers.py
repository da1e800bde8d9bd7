"""Code that works on a record for longer than the time between polls that Kafka allows (`max.poll.interval.ms`)."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import pytest
from delayed_topics import Consumer, DelayedTopic, Record
from delayed_topics_client_testing import Served
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.model import GroupInfo

pytestmark = pytest.mark.broker

SESSION = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
MAX_POLL_INTERVAL_MS = 6000
"""How long a consumer may go without a poll, unless a test sets another value."""


def connect(served: Served, max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS) -> DelayedTopic:
    properties = {"bootstrap.servers": served.bootstrap, **SESSION, "max.poll.interval.ms": max_poll_interval_ms}
    return DelayedTopic.connect(properties, served.names.front)


def members(admin: KafkaAdmin, group: str) -> int | None:
    """Returns the number of members; None during a rebalance."""
    info = admin.describe_groups([group])[group]
    assert isinstance(info, GroupInfo), info
    return len(info.members) if info.state in ("Stable", "Empty", "Dead") else None


def take_too_long(served: Served) -> None:
    """Blocks until a plain consumer that does not poll has left its group. It may go without a poll for longer than ours."""
    admin, name = KafkaAdmin(served.connection), f"plain-{uuid.uuid4().hex}"
    patient = {"group.id": name, **SESSION, "max.poll.interval.ms": MAX_POLL_INTERVAL_MS * 3 // 2}
    plain = confluent_kafka.Consumer({**served.connection.client_config(), **patient})
    plain.subscribe([served.names.ready])

    def joined() -> bool:
        plain.poll(0.1)
        return bool(plain.assignment())

    wait_until(joined, what="the plain consumer is a member")
    wait_until(lambda: members(admin, name) == 0, what="the plain consumer has left its group")
    plain.close()


Work = Callable[[Record], object]
Seen = Counter[bytes | None]


def by_handler(served: Served, group: str, work: Work, count: int) -> Seen:
    """Returns the values that a consumer handled. It is stopped while it handles its record number `count`."""
    seen = Seen()

    def handle(record: Record) -> None:
        seen[record.value] += 1
        if seen.total() == count:
            consumer.stop()
        work(record)

    with connect(served) as orders:
        consumer = orders.consumer(group, handle)
        consumer.run()
    return seen


def by_iteration(served: Served, group: str, work: Work, count: int) -> Seen:
    seen = Seen()
    with connect(served) as orders, orders.records(group) as records:
        for record in records:
            seen[record.value] += 1
            if seen.total() == count:
                records.stop()
            try:
                work(record)
            except RuntimeError as e:
                records.retry(record, e)
    return seen


def test_a_record_that_takes_too_long_keeps_its_place_and_is_settled_once(served: Served) -> None:
    """Three groups run at the same time, each with one consumer."""
    for value, partition in ((b"slow", 0), (b"next", 0), (b"other", 1), (b"third", 2)):
        served.release(value, partition=partition)

    def work_late(record: Record) -> None:
        if record.value == b"slow":
            take_too_long(served)

    def fail_late(record: Record) -> None:
        if record.value == b"slow":
            take_too_long(served)
            raise RuntimeError("not now")

    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(by_handler, served, "returns", work_late, 4),
            pool.submit(by_handler, served, "raises", fail_late, 4),
            pool.submit(by_iteration, served, "retries", fail_late, 4),
        ]
        assert [run.result() for run in runs] == [dict.fromkeys([b"slow", b"next", b"other", b"third"], 1)] * 3
    for group in ("returns", "raises", "retries"):
        assert served.committed(group) == {0: 2, 1: 1, 2: 1}
    copies = sorted((c.value, c.said["dt-group"], c.said["dt-attempt"]) for c in served.read(served.names.front))
    assert copies == [(b"slow", b"raises", b"1"), (b"slow", b"retries", b"1")]


@pytest.mark.slow
def test_a_consumer_that_is_stopped_while_a_record_takes_too_long_settles_it_and_leaves(served: Served) -> None:
    served.release(b"slow")
    served.release(b"next")
    assert by_handler(served, "shipping", lambda _: take_too_long(served), 1) == {b"slow": 1}
    assert members(KafkaAdmin(served.connection), "shipping") == 0
    assert served.committed("shipping") == {0: 1}


@pytest.mark.slow
def test_what_was_done_before_is_settled_while_a_record_takes_long_and_that_one_comes_again_if_it_is_left(
    served: Served,
) -> None:
    for value in (b"first", b"second", b"slow"):
        served.release(value)
    with connect(served) as orders, orders.records("shipping") as records:
        for record in records:
            if record.value == b"slow":
                wait_until(lambda: len(served.read(served.names.front)) == 2, what="the records before have retries")
                break
            records.retry(record, RuntimeError("not now"))
    assert members(KafkaAdmin(served.connection), "shipping") == 0
    assert served.committed("shipping") == {0: 2}
    assert by_iteration(served, "shipping", lambda _: None, 1) == {b"slow": 1}


def test_a_record_that_another_member_has_handled_since_its_loop_was_left_is_not_handed_out_again(
    served: Served,
) -> None:
    served.release(b"left")
    with connect(served) as orders, orders.records("shipping") as records:
        for _ in records:
            break
        wait_until(lambda: members(KafkaAdmin(served.connection), "shipping") == 0, what="the consumer has left")
        assert by_iteration(served, "shipping", lambda _: None, 1) == {b"left": 1}
        served.release(b"later")
        seen = Seen()
        for record in records:
            seen[record.value] += 1
            if record.value == b"later":
                records.stop()
    assert seen == {b"later": 1}
    assert served.committed("shipping") == {0: 2}


def test_a_consumer_that_another_thread_closes_leaves_at_once_and_its_record_comes_again(served: Served) -> None:
    served.release(b"slow")
    admin, seen = KafkaAdmin(served.connection), list[bytes | None]()
    with connect(served) as orders, orders.records("shipping") as records:
        for record in records:
            closing = threading.Thread(target=records.close)
            closing.start()
            wait_until(lambda: members(admin, "shipping") == 0, what="the consumer has left")
            records.retry(record, RuntimeError("not now"))
            seen.append(record.value)
            closing.join()
    assert seen == [b"slow"]
    assert served.read(served.names.front) == []
    assert by_iteration(served, "shipping", lambda _: None, 1) == {b"slow": 1}


@pytest.mark.slow
def test_an_earlier_loop_that_ends_late_does_not_end_the_membership_of_the_next(served: Served) -> None:
    served.release(b"slow")
    seen = Seen()
    with connect(served) as orders, orders.records("shipping") as records:
        earlier = iter(records)  # a variable keeps the iterator alive, as the traceback of an exception would
        seen[next(earlier).value] += 1
        for record in records:
            seen[record.value] += 1
            del earlier
            records.stop()
            take_too_long(served)
    assert seen == {b"slow": 2}
    assert served.committed("shipping") == {0: 1}


@pytest.mark.slow
def test_what_becomes_of_a_record_is_for_the_member_to_say_that_has_its_partition_now(served: Served) -> None:
    """The first consumer holds a record until another one has joined. Kafka then assigns the partitions again, and the owner of the
    partition receives the record again."""
    for value, partition in ((b"slow", 0), (b"next", 0), (b"other", 1), (b"third", 2)):
        served.release(value, partition=partition)
    admin, seen, stable_with = KafkaAdmin(served.connection), Seen(), list[int]()
    consumers, threads = list[Consumer](), list[threading.Thread]()

    def join() -> None:
        consumers.append(orders.consumer("shipping", handle))
        threads.append(threading.Thread(target=consumers[-1].run))
        threads[-1].start()

    def handle(record: Record) -> None:
        seen[record.value] += 1
        if record.value == b"slow":
            if seen[b"slow"] == 1:
                join()
                wait_until(lambda: members(admin, "shipping") == 2, what="a second member joined", timeout_seconds=60)
                stable_with.append(2)
            raise RuntimeError("not now")

    with connect(served) as orders:
        join()
        wait_until(lambda: sum(served.committed("shipping", ended=False).values()) == 4, what="all is committed")
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join()
    assert stable_with == [2]
    assert seen == {b"slow": 2, b"next": 1, b"other": 1, b"third": 1}
    assert [(c.value, c.said["dt-attempt"]) for c in served.read(served.names.front)] == [(b"slow", b"1")]
    assert served.committed("shipping") == {0: 2, 1: 1, 2: 1}


@pytest.mark.slow
def test_a_member_that_joins_waits_a_while_for_a_record_that_is_worked_on(served: Served) -> None:
    for value in (b"first", b"second", b"slow", b"next"):
        served.release(value)
    admin, seen, joining = KafkaAdmin(served.connection), Seen(), list[Consumer]()

    def handle(record: Record) -> None:
        seen[record.value] += 1
        if record.value in (b"first", b"second"):
            raise RuntimeError("not now")
        if record.value == b"slow" and seen[b"slow"] == 1:
            wait_until(lambda: len(served.read(served.names.front)) == 2, what="the consumer polls beside the handler")
            joining.append(orders.consumer("shipping", handle))
            wait_until(lambda: members(admin, "shipping") is None, what="a rebalance has begun")
            time.sleep(2)  # two heartbeats, in which the first member learns that it has to revoke its partitions

    with connect(served, max_poll_interval_ms=20_000) as orders:
        consumer = orders.consumer("shipping", handle)
        threads = [threading.Thread(target=consumer.run)]
        threads[0].start()
        wait_until(lambda: bool(joining), what="the handler is at work")
        threads.append(threading.Thread(target=joining[0].run))
        threads[1].start()
        wait_until(lambda: sum(served.committed("shipping", ended=False).values()) == 4, what="all is committed")
        for one in (consumer, *joining):
            one.stop()
        for thread in threads:
            thread.join()
    assert seen == dict.fromkeys([b"first", b"second", b"slow", b"next"], 1)
    assert served.committed("shipping") == {0: 4}
