import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from delayed_topics import DelayedTopic, Record, Reject
from delayed_topics.cli import main
from delayed_topics_client_testing import DUE_AT_MS, Served
from delayed_topics_client_testing.handling import fail, handle_all, nothing
from delayed_topics_core.headers import Header, Root
from delayed_topics_core.settings import FRONT_MAX_MESSAGE_BYTES
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import TopicMissing
from delayed_topics_worker_testing.foreign_client import produce_with_raw_header_key

pytestmark = pytest.mark.broker


def test_a_record_comes_with_all_that_is_known_of_it(served: Served) -> None:
    headers: tuple[Header, ...] = (("trace", b"1"), ("trace", None), ("empty", b""))
    served.release(b"v", partition=2, key=b"k", attempt=1, headers=headers, number=9)
    served.release(None, partition=2, key=None)
    record, bare = handle_all(served, 2, nothing)
    assert (record.key, record.value, record.headers, record.attempt) == (b"k", b"v", headers, 1)
    assert record.id == "f:2:9:topic-id"
    assert record.root == Root("f", 2, 9, "topic-id")
    assert (record.due_at_ms, record.released_at_ms) == (DUE_AT_MS, DUE_AT_MS + 1)
    assert record.late_ms == record.appended_at_ms - DUE_AT_MS
    assert (record.topic, record.partition, record.offset) == (served.names.ready, 2, 0)
    assert (bare.key, bare.value, bare.headers) == (None, None, ())


def test_what_is_done_is_not_handed_out_again(served: Served) -> None:
    for n in range(10):
        served.release(b"%d" % n, partition=n % 3)
    handle_all(served, 10, nothing)
    assert sum(served.committed("shipping").values()) == 10
    served.release(b"later")
    assert [r.value for r in handle_all(served, 1, nothing)] == [b"later"]
    assert served.read(served.names.front) == []
    assert len(handle_all(served, 11, nothing, group="billing")) == 11


def test_properties_of_the_user_are_honoured(served: Served) -> None:
    """The properties make a new group begin at the end of the topic."""
    served.release(b"before")
    statistics, received = list[str](), threading.Event()
    own = {"auto.offset.reset": "latest", "stats_cb": statistics.append, "statistics.interval.ms": 100}

    def release() -> None:
        while not received.wait(0.3):
            served.release(b"since")

    releasing = threading.Thread(target=release)
    releasing.start()
    try:
        with (
            DelayedTopic.connect({"bootstrap.servers": served.bootstrap, **own}, served.names.front) as orders,
            orders.records("shipping") as records,
        ):
            for record in records:
                assert record.value == b"since"
                records.stop()
    finally:
        received.set()
        releasing.join()
    assert any('"cgrp"' in report for report in statistics)


def test_timeouts_that_are_longer_than_a_transaction_do_not_keep_records_from_being_retried(served: Served) -> None:
    served.release(b"bad")
    own = dict.fromkeys(("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms"), 60000)
    with (
        DelayedTopic.connect({"bootstrap.servers": served.bootstrap, **own}, served.names.front) as orders,
        orders.records("shipping") as records,
    ):
        for record in records:
            records.retry(record, RuntimeError("not now"))
            records.stop()
    assert [copy.value for copy in served.read(served.names.front)] == [b"bad"]


async def handle_later(record: Record) -> None:
    raise AssertionError(f"this coroutine is never awaited: {record}")


def hand_on(record: Record) -> object:
    return handle_later(record)


def hand_on_each(record: Record) -> object:
    return (part for part in [record])


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("handler", [hand_on, hand_on_each])
def test_a_record_whose_handler_was_not_run_to_its_end_is_not_done(
    served: Served, handler: Callable[[Record], object]
) -> None:
    served.release(b"v")
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        with pytest.raises(TypeError, match=r"returned .* would not be run.*asyncio\.run"):
            orders.consumer("shipping", handler).run()
        with pytest.raises(TypeError, match="would not be run"):
            orders.consume("shipping", handle_later)
    assert served.committed("shipping") == {}
    assert [r.value for r in handle_all(served, 1, nothing)] == [b"v"]


def test_a_client_that_knows_no_broker_any_more_is_replaced_and_nothing_is_skipped(served: Served) -> None:
    for n in range(10):
        served.release(b"%d" % n, partition=n % 3)
    handled: set[bytes | None] = set()
    with (
        DelayedTopic.connect(served.bootstrap, served.names.front) as orders,
        orders.records("shipping") as records,
    ):
        first = records._consumer
        for record in records:
            handled.add(record.value)
            if len(handled) == 5:
                records._stranded.set()
            if len(handled) == 10:
                records.stop()
        assert records._consumer is not first
    assert sum(served.committed("shipping").values()) == 10


def test_an_exception_means_one_attempt_more(served: Served) -> None:
    served.release(b"v", partition=1, attempt=2, headers=(("trace", b"1"), ("trace", b"2")))
    before_ms = int(time.time() * 1000)
    handle_all(served, 1, fail)
    (copy,) = served.read(served.names.front)
    assert (copy.key, copy.value, copy.partition) == (b"k", b"v", 1)
    assert copy.headers[:2] == [("trace", b"1"), ("trace", b"2")]
    own = dict(copy.headers[2:])
    done_at_ms = own.pop("dt-done-at")
    assert own == {
        "dt-attempt": b"3",
        "dt-group": b"shipping",
        "dt-id": b"f:1:0:topic-id",
        "dt-error": b"RuntimeError: not now",
        "dt-created-at": b"%d" % (DUE_AT_MS - 5000),
    }
    assert before_ms <= int(done_at_ms or b"") <= time.time() * 1000
    assert served.committed("shipping") == {1: 1}


def test_what_is_retried_comes_back_into_the_ready_topic_that_it_was_read_from(served: Served) -> None:
    invoices = f"{served.names.front}-invoices"
    served.make(invoices, 1)
    served.allow(invoices)
    served.produce(served.names.ready, b"not for them", headers=[])
    served.produce(invoices, b"asked", headers=[("dt-target", f"{invoices}:0".encode()), ("dt-attempt", b"0")])
    served.produce(invoices, b"of somebody", headers=[])
    for other in ("shipments:0", served.names.ready, "no topic"):
        served.produce(invoices, b"forwarded", headers=[("dt-target", other.encode()), ("dt-attempt", b"0")])
    handled = handle_all(served, 5, fail, ready_topic=invoices)
    assert [r.value for r in handled] == [b"asked", b"of somebody", *[b"forwarded"] * 3]
    assert {r.topic for r in handled} == {invoices}
    retried = Counter((c.value, c.said["dt-target"]) for c in served.read(served.names.front))
    assert retried == {
        (b"asked", f"{invoices}:0".encode()): 1,
        (b"of somebody", invoices.encode()): 1,
        (b"forwarded", invoices.encode()): 3,
    }
    assert handle_all(served, 1, nothing)[0].value == b"not for them"


def test_what_was_forwarded_into_the_ready_topic_with_its_headers_comes_back_there(served: Served) -> None:
    served.produce(served.names.ready, b"v", headers=[("dt-target", b"invoices"), ("dt-attempt", b"0")])
    handle_all(served, 1, fail)
    (copy,) = served.read(served.names.front)
    assert "dt-target" not in copy.said


def test_a_topic_that_no_record_of_the_delayed_topic_could_ask_for_is_not_read(served: Served) -> None:
    """Every retry from such a topic would become a dead letter."""
    served.allow("invoices", formerly=("receipts",))
    wrong = r"ready_topic must be allowed by spec\.ready\.allowedTopics of .*, but it is 'shipments'\. The allowed topics are invoices$"
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        with pytest.raises(ValueError, match=wrong):
            orders.records("shipping", ready_topic="shipments")
        for allowed in ("invoices", "receipts", served.names.ready):
            orders.records("shipping", ready_topic=allowed).close()
    shown = CliRunner().invoke(
        main,
        ["--bootstrap", served.bootstrap, "consume", served.names.front, "--group", "g", "--ready-topic", "shipments"],
    )
    assert (shown.exit_code, "Error: ready_topic must be allowed" in shown.output) == (2, True), shown.output


def test_above_the_cap_it_is_still_the_worker_who_decides(served: Served) -> None:
    served.release(b"v", attempt=served.layout.retry_cap)
    handle_all(served, 1, fail)
    assert [c.said["dt-attempt"] for c in served.read(served.names.front)] == [b"4"]
    assert served.read(served.names.dead_letter) == []


def test_reject_means_dead_letter_with_its_ready_record_as_origin(served: Served) -> None:
    served.release(b"x", partition=2)
    served.release(b"v", partition=2, attempt=1, headers=(("trace", b"1"),), number=9)

    def reject(record: Record) -> None:
        if record.value == b"v":
            raise Reject("no such customer: Zoë")

    handle_all(served, 2, reject)
    (copy,) = served.read(served.names.dead_letter)
    assert (copy.key, copy.value, copy.partition) == (b"k", b"v", 0)  # the root's partition 2, modulo 2 partitions
    assert copy.said == {
        "trace": b"1",
        "dt-id": b"f:2:9:topic-id",
        "dt-attempt": b"1",
        "dt-group": b"shipping",
        "dt-created-at": b"%d" % (DUE_AT_MS - 5000),
        "dt-root": b"f:2:9:topic-id",
        "dt-origin": b"r:2:1",
        "dt-reason": b"Rejected",
        "dt-error": b"no such customer: Zo\\xeb",
    }
    assert served.read(served.names.front) == []
    assert served.committed("shipping") == {2: 2}


def test_the_retries_of_other_groups_are_skipped(served: Served) -> None:
    served.release(b"first")
    served.release(b"theirs", attempt=1, group=b"billing")
    served.release(b"ours", attempt=1, group=b"shipping")
    assert [(r.value, r.group) for r in handle_all(served, 2, nothing)] == [(b"first", None), (b"ours", "shipping")]
    assert served.committed("shipping") == {0: 3}
    assert [r.value for r in handle_all(served, 2, nothing, group="billing")] == [b"first", b"theirs"]


def test_a_record_that_anybody_wrote_can_be_retried_too(served: Served) -> None:
    served.produce(served.names.ready, b"v", key=b"k", headers=[("dt-attempt", b"many"), ("dt-root", b"?")])
    (record,) = handle_all(served, 1, fail)
    assert (record.attempt, record.id, record.root, record.late_ms) == (0, None, None, 0)
    (copy,) = served.read(served.names.front)
    assert copy.said["dt-attempt"] == b"1"
    assert "dt-id" not in copy.said


def test_a_header_name_that_is_not_utf8_is_a_dead_letter_and_neighbours_are_handled(served: Served) -> None:
    produce_with_raw_header_key(
        served.connection, served.names.ready, partition=0, key=b"k", value=b"bad", headers=[(b"caf\xe9", b"v")]
    )
    served.release(b"good")
    assert [r.value for r in handle_all(served, 1, nothing)] == [b"good"]
    (copy,) = served.read(served.names.dead_letter)
    assert (copy.value, copy.said["dt-reason"], copy.said["dt-origin"]) == (b"bad", b"HeaderUnreadable", b"r:0:0")
    assert copy.said["dt-group"] == b"shipping"
    assert served.committed("shipping") == {0: 2}


def test_the_largest_record_of_a_producer_that_nobody_tuned_is_retried_like_any_other(served: Served) -> None:
    """Java's producer accepts 1 MiB before compression. A retry has more headers than its record."""
    large = os.urandom(1_048_500)

    def fail_at_length(_: Record) -> None:
        raise RuntimeError("not now" * 1000)

    served.release(large)
    handle_all(served, 1, fail_at_length)
    assert [(c.value, c.said["dt-attempt"]) for c in served.read(served.names.front)] == [(large, b"1")]
    assert served.read(served.names.dead_letter) == []
    assert served.committed("shipping") == {0: 1}


def test_a_retry_too_large_for_the_front_topic_is_a_dead_letter_and_neighbours_are_retried(served: Served) -> None:
    """A retry has more headers than its record. A record that just fits is therefore too large as a retry."""
    large = os.urandom(FRONT_MAX_MESSAGE_BYTES - 88)
    for value in (b"before", large, b"after"):
        served.release(value)
    handle_all(served, 3, fail)
    assert [c.value for c in served.read(served.names.front)] == [b"before", b"after"]
    (dead,) = served.read(served.names.dead_letter)
    assert (dead.value, dead.said["dt-reason"], dead.said["dt-origin"]) == (large, b"TooLarge", b"r:0:1")
    assert dead.said["dt-group"] == b"shipping"
    assert dead.said["dt-error"] == b"RuntimeError: not now"
    assert served.committed("shipping") == {0: 3}


def test_what_is_too_large_even_for_the_dead_letter_topic_leaves_its_headers_there(served: Served) -> None:
    KafkaAdmin(served.connection).alter_topic_configs({served.names.dead_letter: {"max.message.bytes": "10000"}})
    served.release(os.urandom(FRONT_MAX_MESSAGE_BYTES - 88), key=b"retried")
    served.release(os.urandom(20_000), key=b"rejected")

    def judge(record: Record) -> None:
        raise Reject("no") if record.key == b"rejected" else RuntimeError("not now")

    handle_all(served, 2, judge)
    assert served.read(served.names.front) == []
    dead = {c.key: c for c in served.read(served.names.dead_letter)}
    assert {key: c.value for key, c in dead.items()} == {b"retried": None, b"rejected": None}
    assert {c.said["dt-reason"] for c in dead.values()} == {b"TooLarge"}
    assert served.committed("shipping") == {0: 2}


def test_two_consumers_share_the_partitions_and_handle_each_record_once(served: Served) -> None:
    values: list[bytes | None] = []
    with DelayedTopic.connect(served.bootstrap, served.names.front) as orders:
        consumers = [orders.consumer("shipping", lambda record: values.append(record.value)) for _ in range(2)]
        threads = [threading.Thread(target=consumer.run) for consumer in consumers]
        for n in range(60):
            served.release(b"%d" % n, partition=n % 3)
            if n == 10:
                threads[0].start()
            if n == 30:
                threads[1].start()
        deadline = time.monotonic() + 180
        while len(values) < 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join()
    assert sorted(values, key=str) == sorted((b"%d" % n for n in range(60)), key=str)
    assert sum(served.committed("shipping").values()) == 60


def test_a_ready_topic_that_is_gone_is_said(served: Served) -> None:
    KafkaAdmin(served.connection).delete_topics([served.names.ready])
    with (
        DelayedTopic.connect(served.bootstrap, served.names.front) as orders,
        pytest.raises(TopicMissing, match=f"reading {served.names.ready}"),
    ):
        orders.consumer("shipping", nothing).run()


def test_sigterm_lets_the_handler_finish_and_commits(served: Served) -> None:
    for n in range(3):
        served.release(b"%d" % n)
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "from delayed_topics import DelayedTopic\n"
            "def slow(record):\n"
            "    print('begun', record.value.decode(), flush=True)\n"
            "    sys.stdin.readline()\n"
            "    print('done', record.value.decode(), flush=True)\n"
            "with DelayedTopic.connect(sys.argv[1], sys.argv[2]) as orders:\n"
            "    orders.consume('shipping', slow)\n"
            "print('left', flush=True)\n",
            served.bootstrap,
            served.names.front,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "begun 0\n"
    child.send_signal(signal.SIGTERM)
    child.stdin.write("go on\n")
    child.stdin.close()
    assert child.stdout.read() == "done 0\nleft\n"
    assert child.wait(120) == 0
    assert served.committed("shipping") == {0: 1}
