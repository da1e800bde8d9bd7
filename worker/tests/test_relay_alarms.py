"""A worker reports an alarm again when its cause has changed, but not when only time has passed."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from delayed_topics_core.events import Event
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import EVENTS_TOPIC
from delayed_topics_core.reasons import Reason
from delayed_topics_core_testing.served import serving
from delayed_topics_devcluster.broker import PATIENT, Broker
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_engine import Seen
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventFollower
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_kafka_testing.slow_wire import Api, SlowWire
from delayed_topics_worker import alarms
from delayed_topics_worker.alarms import (
    CHANGE_REPEAT_SECONDS,
    Alarm,
    Alarms,
    AtRisk,
    Unreadable,
    joined,
    of_retention,
    of_unacknowledged,
    of_unassigned,
    of_unreadable,
)
from delayed_topics_worker.assigned import AssignedPartition
from delayed_topics_worker.known_offsets import Offsets
from delayed_topics_worker.retention import Risk
from delayed_topics_worker.served import Served
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unreadable import Span
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.running import running_relay

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SERVED = replace(
    Served.of("orders"), layout=serving("orders", initial(LayoutSpec(delay_seconds=(0, 10), partitions=2)))
)


def remove_records(orders: DeclaredTopic, partition: int, before: int) -> None:
    client = AdminClient(orders.harness.connection.client_config())
    for deleted in client.delete_records([TopicPartition(orders.names.front, partition, before)]).values():
        deleted.result(60)


@pytest.mark.broker
def test_records_that_are_removed_from_a_second_partition_are_told_as_those_of_the_first_were(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition of the delayed topic shows the latest report. The worker has not read partition 0, where a transaction is open."""
    monkeypatch.setattr(alarms, "CHANGE_REPEAT_SECONDS", 0.0)
    orders = harness.declare((0,), front_partitions=2)
    for n in range(10):
        orders.produce(b"%d" % n, partition=1)
    orders.flush()
    remove_records(orders, 1, before=6)
    unfinished = Producer({**harness.connection.client_config(), "transactional.id": orders.names.front})
    unfinished.init_transactions(60)
    unfinished.begin_transaction()
    unfinished.produce(orders.names.front, b"v", partition=0)
    assert unfinished.flush(60) == 0
    reported: list[Event] = []

    def is_reported(*words: str) -> bool:
        reported.extend(e for e in follower.poll(1) if e.topic == orders.names.front and e.kind == "alarm")
        return bool(reported) and all(word in reported[-1].detail["message"] for word in words)

    with running_relay(orders), EventFollower(harness.connection) as follower:
        wait_until(lambda: is_reported(f"{orders.names.front} [1]"), what="an alarm names the first partition")
        remove_records(orders, 0, before=1)
        wait_until(lambda: is_reported(f"{orders.names.front} [0]", "1 more partition"), what="an alarm names both")
    assert {event.detail["reason"] for event in reported} == {Reason.RECORDS_REMOVED}


@pytest.mark.broker
@pytest.mark.slow
def test_an_alarm_that_kafka_did_not_take_is_told_once_it_does_by_a_worker_that_has_nothing_else_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "LOST_REPEAT_SECONDS", 0.5)
    reported: list[Event] = []

    def is_reported(kind: str, **detail: object) -> bool:
        reported.extend(follower.poll(1))
        return any(event.kind == kind and detail.items() <= event.detail.items() for event in reported)

    def accept_events_up_to(most_bytes: int) -> None:
        settings = {EVENTS_TOPIC: {"max.message.bytes": str(most_bytes)}}
        assert harness.admin.alter_topic_configs(settings) == {EVENTS_TOPIC: None}

    with (
        Broker(settings=PATIENT) as broker,
        WorkerHarness(Connection(bootstrap_servers=broker.bootstrap), tmp_path) as harness,
        EventFollower(harness.connection) as follower,
    ):
        orders = harness.declare((0, 1), front_partitions=1, partitions=2)
        with running_relay(orders) as (relay, _):
            wait_until(lambda: is_reported("rebalance", change="caught-up"), what="the worker's start is reported")
            accept_events_up_to(1)
            orders.produce(topic=orders.names.delays)
            orders.flush()
            wait_until(
                lambda: "delayedtopics_events_failed_total 0.0" not in relay._metrics.exposition().decode(),
                what="the worker counts a lost event",
                timeout_seconds=60,
            )
            accept_events_up_to(1_000_000)
            wait_until(
                lambda: is_reported("alarm", reason="MisroutedRecords", raised=True), what="the alarm is reported"
            )


@pytest.mark.broker
def test_a_partition_whose_commits_kafka_refuses_is_an_alarm_while_its_neighbours_are_served(
    harness: WorkerHarness, wire: SlowWire
) -> None:
    orders = harness.declare((0,), front_partitions=2)
    front = orders.names.front

    def refused(answer: bytes) -> bytes:
        """Returns the answer to a commit with an error for the first front partition: its metadata are too large. In the answer, the name
        of a topic is followed by the number of its partitions, and each number of a partition by its error."""
        before, name, after = answer.partition(bytes([len(front) + 1]) + front.encode())
        if after[1:5] == struct.pack(">i", 0):
            after = after[:5] + struct.pack(">h", KafkaError.OFFSET_METADATA_TOO_LARGE) + after[7:]
        return before + name + after

    wire.change_answers(Api.OFFSET_COMMIT, refused)
    worker = harness.start(orders)
    for n in range(20):
        orders.produce(b"%d" % n, partition=n % 2)
    orders.flush()

    assert len(orders.ready(20)) == 20
    alarms = partial(worker.get, "/status")
    wait_until(lambda: f"Kafka refuses to commit {front} [0]" in str(alarms()), what="an alarm", timeout_seconds=60)
    orders.produce(b"20", partition=1)
    orders.flush()
    assert len(orders.ready(21)) == 21
    assert f"commit {front} [1]" not in str(alarms())


def removed_from(*partitions: int) -> Alarm:
    return Alarm("orders", Reason.RECORDS_REMOVED, f"records of orders {list(partitions)} were removed")


def test_what_an_alarm_says_else_is_told_once_a_minute_at_most() -> None:
    raised = Alarms(lambda alarm, is_raised: None, now=0.0)

    def repeated(partitions: Sequence[int], now: float) -> list[tuple[Alarm, bool]]:
        raised.update([removed_from(*partitions)], now=now)
        return raised.to_repeat(lost=0, now=now)

    later = CHANGE_REPEAT_SECONDS
    assert repeated([1], 0.0) == []
    assert repeated([0, 1], later - 1) == []
    assert repeated([0, 1], later) == [(removed_from(0, 1), True)]
    assert repeated([0, 1], 3 * later) == []
    assert repeated([0, 1, 2], 3 * later + 1) == [(removed_from(0, 1, 2), True)]
    assert repeated([0, 1], 4 * later) == []
    assert repeated([0, 1, 2], 5 * later) == [], "the alarm is as it was last reported"


def test_an_alarm_that_comes_back_says_what_it_is_about_then() -> None:
    changes: list[tuple[Alarm, bool]] = []
    raised = Alarms(lambda alarm, is_raised: changes.append((alarm, is_raised)), now=0.0)
    for at, partitions in enumerate([[1], [], [0]]):
        raised.update([removed_from(*partitions)] if partitions else [], now=at)

    assert changes == [(removed_from(1), True), (removed_from(1), False), (removed_from(0), True)]
    assert raised.to_repeat(lost=0, now=2 * CHANGE_REPEAT_SECONDS) == []


def owned(partition: int, *, stuck_seconds: float = 0.0) -> AssignedPartition:
    seen = SimpleNamespace(stuck_seconds=stuck_seconds, unacknowledged=(True, False, False, False), read_error=None)
    return AssignedPartition(
        served=SERVED,
        topic="orders",
        partition=partition,
        generation=1,
        group_generation=1,
        assigned_at=0,
        seen=cast(Seen, seen),
    )


def silent(seconds: float, *partitions: int, end: int = 9) -> list[Alarm]:
    return of_unreadable(Unreadable(owned(p), Span(5, 20), seconds, Offsets(0, end), "kafka:9092") for p in partitions)


def unassigned(seconds: float, *partitions: int) -> list[Alarm]:
    return of_unassigned({("orders", p): seconds for p in partitions}, [SERVED])


def at_risk(offset: int, *partitions: int, days: int = 7) -> list[Alarm]:
    risk = Risk(
        first=0,
        below=100,
        removable_at_ms=NOW_MS + offset * 1000,
        delay_ms=0,
        retention_ms=days * DAY_MS,
        retention_reported=True,
    )
    return of_retention([AtRisk(owned(p), offset, risk) for p in partitions], NOW_MS)


def unacknowledged(seconds: float, lagging: Sequence[int] = ()) -> list[Alarm]:
    info = TopicInfo(
        name="orders.ready", id="x", partitions=2, replication_factor=3, leaders_known=True, lagging=tuple(lagging)
    )
    return of_unacknowledged([owned(0, stuck_seconds=seconds)], TopicsSnapshot({"orders.ready": info}, {}))


@pytest.mark.parametrize(
    ("before", "later", "other"),
    [
        (silent(30, 1), silent(31, 1), silent(31, 1, 2)),
        (silent(30, 1), silent(31, 1, end=12), silent(31, 1, end=5)),
        (unassigned(30, 1), unassigned(31, 1), unassigned(31, 2)),
        (at_risk(5, 1), at_risk(6, 1), at_risk(6, 1, 2)),
        (at_risk(5, 1), at_risk(6, 1), at_risk(6, 1, days=14)),
        (unacknowledged(3), unacknowledged(4), unacknowledged(4, lagging=[1])),
        (silent(30, 1) + unassigned(30, 2), silent(31, 1) + unassigned(31, 2), silent(31, 1) + unassigned(31, 3)),
    ],
)
def test_seconds_that_pass_are_not_told_and_other_partitions_and_causes_are(
    before: list[Alarm], later: list[Alarm], other: list[Alarm]
) -> None:
    raised = Alarms(lambda alarm, is_raised: None, now=0.0)
    raised.update(joined(before), now=0.0)
    assert joined(before) != joined(later)

    raised.update(joined(later), now=2 * CHANGE_REPEAT_SECONDS)
    assert raised.to_repeat(lost=0, now=2 * CHANGE_REPEAT_SECONDS) == []
    raised.update(joined(other), now=2 * CHANGE_REPEAT_SECONDS)
    assert raised.to_repeat(lost=0, now=2 * CHANGE_REPEAT_SECONDS) == [(alarm, True) for alarm in joined(other)]
