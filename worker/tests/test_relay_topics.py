"""Topics are deleted, created again, changed or paused while a worker runs."""

import time
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_core.events import Event
from delayed_topics_core.layout import LayoutSpec, evolve
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.reasons import Reason
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.model import GroupInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

pytestmark = pytest.mark.broker


def produce_numbers(orders: DeclaredTopic, numbers: range, *, partition: int = 0) -> None:
    for n in numbers:
        orders.produce(b"%d" % n, partition=partition)
    orders.flush()


def values(orders: DeclaredTopic, count: int) -> list[int]:
    ready = orders.ready(count)
    return [int(r.value or b"") for r in sorted(ready, key=lambda r: (r.partition, r.offset))]


def alarmed(worker: WorkerProcess, reason: Reason) -> None:
    wait_until(lambda: reason in worker.alarm_reasons(), what=f"the alarm {reason}")


def calm(worker: WorkerProcess) -> None:
    wait_until(lambda: not worker.alarm_reasons(), what="no alarm")


def wait_until_shown(worker: WorkerProcess, orders: DeclaredTopic, field: str, value: object) -> None:
    """Waits until the worker's status shows a value that comes from the registry."""

    def shown() -> object:
        return worker.status().get("topics", {}).get(orders.names.front, {}).get(field)

    wait_until(lambda: shown() == value, what=f"the worker's status has {field} {value}")


def is_empty(orders: DeclaredTopic) -> bool:
    group = orders.harness.admin.describe_groups([orders.record.group])[orders.record.group]
    return isinstance(group, GroupInfo) and group.state == "Empty"


def test_a_front_topic_made_again_is_an_alarm_and_nothing_of_it_is_adopted(harness: WorkerHarness) -> None:
    orders = harness.declare((0,))
    worker = harness.start(orders)
    produce_numbers(orders, range(10))
    assert values(orders, 10) == list(range(10))
    harness.admin.delete_topics([orders.names.front])
    orders.make("front", 2)
    alarmed(worker, Reason.TOPIC_RECREATED)
    produce_numbers(orders, range(100, 120))
    time.sleep(2)

    assert values(orders, 10) == list(range(10))
    assert worker.get("/livez")[0] == 200


@pytest.mark.slow
def test_a_deleted_ready_topic_stops_its_partitions_until_it_is_made_and_noted_again(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    others = harness.declare((0,), front_partitions=1, group=orders.record.group)
    worker = harness.start(orders, others)
    produce_numbers(orders, range(10))
    assert values(orders, 10) == list(range(10))
    harness.admin.delete_topics([orders.names.ready])
    alarmed(worker, Reason.TARGET_UNAVAILABLE)
    produce_numbers(orders, range(10, 30))
    produce_numbers(others, range(10))
    assert values(others, 10) == list(range(10)), "the other delayed topic goes on"
    assert harness.admin.describe_topics([orders.names.ready])[orders.names.ready] is None, (
        "no producer creates the topic"
    )

    again = orders.make("ready", 1)
    orders.note_id(again)

    assert values(orders, 20) == list(range(10, 30))
    calm(worker)


def test_a_ready_topic_that_somebody_else_made_again_is_not_written_to(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders)
    harness.admin.delete_topics([orders.names.ready])
    again = orders.make("ready", 1)
    alarmed(worker, Reason.TOPIC_RECREATED)
    produce_numbers(orders, range(5))
    time.sleep(2)
    assert orders.released() == 0

    orders.note_id(again)

    assert values(orders, 5) == list(range(5))


def test_a_missing_dead_letter_topic_stops_only_the_partition_that_needs_it(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=2)
    worker = harness.start(orders)
    harness.admin.delete_topics([orders.names.dead_letter])
    orders.produce(b"0", headers=[("dt-attempt", b"x")], partition=0)
    produce_numbers(orders, range(1, 10), partition=0)
    produce_numbers(orders, range(10, 20), partition=1)
    alarmed(worker, Reason.TARGET_UNAVAILABLE)
    produce_numbers(orders, range(20, 30), partition=1)
    wait_until(lambda: {r.partition for r in orders.ready(20)} >= {1}, what="partition 1 goes on")
    for _ in range(40):
        assert worker.alarm_reasons() == {Reason.TARGET_UNAVAILABLE}, "the alarm stays until Kafka accepts the copy"
        time.sleep(0.1)

    orders.note_id(orders.make("dead-letter", 2))

    (dead,) = orders.dead(1)
    assert dead.value == b"0"
    assert sorted(values(orders, 29)) == list(range(1, 30))
    calm(worker)


def test_a_dead_letter_topic_that_somebody_else_made_again_is_one_alarm_until_it_is_noted(
    harness: WorkerHarness,
) -> None:
    orders = harness.declare((0,), front_partitions=1)
    worker = harness.start(orders)
    harness.admin.delete_topics([orders.names.dead_letter])
    orders.produce(b"0", headers=[("dt-attempt", b"x")])
    orders.flush()

    def refused() -> bool:
        return any("does not exist" in alarm["message"] for alarm in worker.status().get("alarms", []))

    # not the alarm of a slow Kafka, during which the client holds the copy, and would send it to the other topic
    wait_until(refused, what="the alarm that the topic does not exist")
    again = orders.make("dead-letter", 2)
    alarmed(worker, Reason.TOPIC_RECREATED)
    for _ in range(40):
        assert worker.alarm_reasons() == {Reason.TOPIC_RECREATED}
        time.sleep(0.1)

    orders.note_id(again)

    assert [r.value for r in orders.dead(1)] == [b"0"]
    calm(worker)


@pytest.mark.slow
def test_pausing_stops_releases_and_not_hops(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 10), front_partitions=1)
    worker = harness.start(orders)
    orders.change(paused=True)
    wait_until_shown(worker, orders, "paused", True)
    produce_numbers(orders, range(20))
    orders.produce(b"20", headers=[("dt-delay-level", b"2")], partition=0)
    orders.flush()
    assert len(harness.read(orders.names.delays, 1)) == 1, "the record with a delay hops"
    time.sleep(1.5)
    assert orders.released() == 0

    orders.change(paused=False)

    assert sorted(values(orders, 21)) == list(range(21))


def test_a_new_layout_is_followed_live_and_only_once_it_serves(harness: WorkerHarness) -> None:
    orders = harness.declare((0, 1), partitions=2, retry_cap=1)
    worker = harness.start(orders)
    grown = evolve(orders.record.layout, LayoutSpec(delay_seconds=(0, 1, 2), partitions=3))
    orders.change(layout=grown, state="planned", retry_cap=5, before=orders.record)
    worker.kill()
    worker = harness.start(orders)  # Kafka may refuse a planned layout for long, and workers restart meanwhile
    orders.produce(b"planned", headers=[("dt-delay-level", b"3")], partition=0)
    orders.flush()
    harness.admin.create_partitions({orders.names.delays: 3})
    orders.topics = replace(
        orders.topics, start_offsets={**orders.topics.start_offsets, orders.names.delays: (0, 0, 0)}
    )
    harness.write(orders.topics)
    (planned,) = orders.ready(1)
    orders.change(state="serving", before=None)
    wait_until_shown(worker, orders, "generation", grown.generation)
    orders.produce(b"serving", headers=[("dt-delay-level", b"3")], partition=0)
    orders.produce(b"below the new cap", headers=[("dt-attempt", b"4")], partition=0)
    orders.flush()

    ready = {r.value: r for r in orders.ready(3)}

    appended_at_ms = {r.value: r.at_ms for r in harness.read(orders.names.front, 3)}
    assert planned.due_at_ms - appended_at_ms[b"planned"] == 1000, "in the list of two entries, level 3 means the last"
    assert ready[b"serving"].due_at_ms - appended_at_ms[b"serving"] == 2000
    assert b"below the new cap" in ready
    wait_until(lambda: (orders.names.delays, 2) in orders.committed(), what="the worker commits for the new partition")


@pytest.mark.slow
def test_partitions_that_somebody_adds_to_the_delays_topic_keep_no_worker_from_being_ready(
    harness: WorkerHarness,
) -> None:
    orders = harness.declare((0, 1), partitions=2)
    harness.admin.create_partitions({orders.names.delays: 4})
    worker = harness.start(orders)
    wait_until_shown(worker, orders, "partitions", [f"{orders.names.front}[0-1]", f"{orders.names.delays}[0-3]"])
    orders.produce(b"late", headers=[("dt-delay-level", b"2")])
    orders.flush()
    assert [r.value for r in orders.ready(1)] == [b"late"]
    assert worker.get("/readyz")[0] == 200


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_records_of_a_new_delay_go_to_its_new_partition_without_an_alarm(
    harness: WorkerHarness, guarantee: str
) -> None:
    orders = harness.declare((0, 1), partitions=2, front_partitions=1)
    worker = harness.start(orders, guarantee=guarantee)
    for delay_seconds in [(0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)]:
        produce_numbers(orders, range(len(delay_seconds)))  # now the worker's clients know the topics
        orders.grow(delay_seconds)
        wait_until_shown(worker, orders, "generation", orders.record.layout.generation)
        orders.produce(b"new", headers=[("dt-delay-level", b"%d" % len(delay_seconds))], partition=0)
        orders.flush()

    assert len(orders.ready(15)) == 15
    events: list[Event] = []
    with EventFollower(harness.connection) as follower:
        follower.catch_up(60, events.append)
    assert {e.kind for e in events if e.topic == orders.names.front} == {"worker-started", "assignment", "rebalance"}


@pytest.mark.parametrize("guarantee", ["AtLeastOnce", pytest.param("ExactlyOnce", marks=pytest.mark.slow)])
def test_a_delay_of_zero_that_is_new_makes_the_worker_read_without_waiting_and_nothing_comes_twice(
    harness: WorkerHarness, guarantee: str
) -> None:
    orders = harness.declare((1, 2), partitions=2)
    worker = harness.start(orders, guarantee=guarantee)
    produce_numbers(orders, range(500))
    wait_until(lambda: bool(orders.ready(1)), what="some records are out, others wait")
    orders.grow((0, 1, 2))
    produce_numbers(orders, range(500, 1_000))
    wait_until(
        lambda: "joining again" in worker.log_path.read_text(), what="the worker joins again with another client"
    )
    produce_numbers(orders, range(1_000, 1_500))

    assert len(values(orders, 1_500)) == 1_500
    assert worker.terminate() == 0
    assert sorted(values(orders, 1_500)) == list(range(1_500))


def test_a_worker_waits_for_its_layout(harness: WorkerHarness) -> None:
    names = TopicNames.of("waiting-for-its-layout")
    absent = DeclaredTopic(harness, names, harness.declare((0,)).record)
    worker = harness.start(absent, ready=False)
    wait_until(lambda: worker.get("/livez")[0] == 200, what="the worker is alive")

    assert worker.get("/readyz")[0] == 503
    assert worker.terminate() == 0


def test_topics_of_different_groups_are_refused_in_one_line(harness: WorkerHarness) -> None:
    worker = harness.start(harness.declare((0,)), harness.declare((0,)), ready=False)

    assert worker.wait() == 2
    (line,) = [line for line in worker.log_path.read_text().splitlines() if line.startswith("Error")]
    assert "must have the same consumer group" in line
    assert "Traceback" not in worker.log_path.read_text()


def test_a_partition_whose_commit_is_gone_is_an_alarm_and_never_a_guess(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    harness.admin.delete_groups([orders.record.group])
    produce_numbers(orders, range(10))
    worker = harness.start(orders)
    alarmed(worker, Reason.COMMIT_MISSING)
    assert orders.released() == 0
    worker.terminate()
    wait_until(lambda: is_empty(orders), what="the static member's session is over")
    delays = (orders.names.delays, 0)
    harness.commit(orders.record.group, {(orders.names.front, 0): OffsetAndMetadata(4), delays: OffsetAndMetadata(0)})

    harness.start(orders)

    assert values(orders, 6) == list(range(4, 10))


def test_records_that_retention_removed_are_an_alarm_with_the_offsets(harness: WorkerHarness) -> None:
    orders = harness.declare((0,), front_partitions=1)
    produce_numbers(orders, range(10))
    admin = AdminClient(harness.connection.client_config())
    for future in admin.delete_records([TopicPartition(orders.names.front, 0, 6)]).values():
        future.result()
    worker = harness.start(orders)
    alarmed(worker, Reason.RECORDS_REMOVED)

    (message,) = [a["message"] for a in worker.status()["alarms"]]

    assert "at offset 0" in message
    assert "offsets 6 to 10" in message
    assert orders.released() == 0
