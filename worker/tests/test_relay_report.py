"""What a worker reports about delayed topics that come and go, and which of its events it repeats."""

from dataclasses import replace
from typing import Any

import pytest
from delayed_topics_core.events import Event
from delayed_topics_core.layout import LayoutSpec, initial
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.reasons import DeadLetterReason, Reason
from delayed_topics_core.registry import LayoutRecord, encode
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core_testing.served import serving
from delayed_topics_engine import Engine
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.connection import Connection
from delayed_topics_worker import report
from delayed_topics_worker.alarms import LOST_REPEAT_SECONDS, REPEAT_SECONDS, Alarm, Alarms, StallTimes
from delayed_topics_worker.assigned import Change
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.clients import BACKGROUND, clock_properties, librdkafka, producer_properties
from delayed_topics_worker.committed import CommittedReader
from delayed_topics_worker.config import WorkerConfig
from delayed_topics_worker.control import Controls
from delayed_topics_worker.engine_events import Assigned, Revoked
from delayed_topics_worker.known_offsets import KnownOffsets
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.report import Reporter
from delayed_topics_worker.served import ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot

NO_KAFKA = Connection(bootstrap_servers="127.0.0.1:1", further=BACKGROUND)
LAYOUT = initial(LayoutSpec(delay_seconds=(0, 10), partitions=2, lanes_per_delay=1))
MINE = serving("orders", LAYOUT, group="shared")
ANOTHER = serving("bookings", LAYOUT, group="shared")


class SharedWorker:
    """A worker of the group `shared`, without its loop and without Kafka."""

    def __init__(self) -> None:
        self._state = RegistryState()
        self._served = ServedTopics(WorkerConfig(group="shared"))
        self.metrics = Metrics()
        self._admin = KafkaAdmin(NO_KAFKA, timeout_seconds=1)
        self._engine = Engine(
            library=librdkafka(),
            producer=producer_properties(NO_KAFKA, member="shared-0", transactional_id=None),
            clock=clock_properties(NO_KAFKA, member="shared-0"),
            clock_topic=CLOCK_TOPIC,
            window_bytes=1 << 20,
            commit_interval_ms=100,
            renew_seconds=3600,
            exactly_once=False,
        )
        self.assignment = Assignment(
            self._engine,
            self._served,
            seconds=boot_seconds,
            reader=CommittedReader(lambda: pytest.fail("committed offsets are read")),
            known=KnownOffsets(self._admin),
        )
        self._controls = Controls(NO_KAFKA, self._served, member="shared-0")
        self._reporter = Reporter(
            NO_KAFKA,
            self._admin,
            member="shared-0",
            served=self._served,
            controls=self._controls,
            metrics=self.metrics,
            session_timeout_ms=None,
            template="",
        )
        self._numbered = 0

    def follows(self, record: LayoutRecord | None, *, of: LayoutRecord = MINE) -> None:
        """Applies a record of the registry, or the removal of the record `of`, and follows the registry."""
        value = encode(record) if record is not None else None
        self._state.apply(self._state.next_offset, of.key, value)
        self._served.follow(self._state)
        for served in self._served:
            if served.number >= self._numbered:
                names = served.names
                self._engine.add_topic(names.front, names.delays, names.ready, names.dead_letter)
                self._numbered += 1

    def report(self, refused: dict[str | None, str] | None = None) -> dict[str, Any]:
        refused = {None: "forbidden"} if refused is None else refused
        return self._reporter.report(
            self._engine, self.assignment, refused=refused, snapshot=TopicsSnapshot({}, {}), unassigned={}
        )

    def is_shown(self) -> bool:
        """Returns whether the worker shows the topic. Fails if metrics, status and alarms disagree."""
        status = self.report()
        shown = "orders" in status["topics"]
        assert ('"orders"' in self.metrics.exposition().decode()) == shown
        assert [alarm["topic"] for alarm in status["alarms"]] == ["orders"] * shown
        return shown


@pytest.fixture
def worker() -> SharedWorker:
    return SharedWorker()


@pytest.mark.process
@pytest.mark.parametrize("left", [None, replace(MINE, group="others"), replace(MINE, state="retired")])
def test_a_topic_that_has_left_the_workers_is_named_by_no_metric_and_no_alarm(
    worker: SharedWorker, left: LayoutRecord | None
) -> None:
    assert not worker.is_shown()
    worker.follows(MINE)
    assert worker.is_shown()
    worker.assignment.on_assigned(Assigned([("orders", 0)], 1))
    assert worker.is_shown()

    worker.follows(left)
    assert worker.is_shown(), "the worker still has a partition of the topic"
    worker.assignment.take(Revoked([("orders", 0)], False, [0], [0]))
    assert not worker.is_shown()
    assert not worker.is_shown()

    worker.follows(MINE)
    assert worker.is_shown()


@pytest.mark.process
def test_a_topic_that_is_paused_or_planned_anew_stays(worker: SharedWorker) -> None:
    worker.follows(MINE)
    for record in (replace(MINE, paused=True), replace(MINE, state="planned", before=MINE), MINE):
        worker.follows(record)
        assert worker.is_shown()


@pytest.mark.process
def test_what_kafka_refuses_is_told_of_the_topic_that_it_is_about_or_of_all(worker: SharedWorker) -> None:
    worker.follows(MINE)
    worker.follows(ANOTHER, of=ANOTHER)

    def messages(refused: dict[str | None, str]) -> dict[str, str]:
        return {alarm["topic"]: alarm["message"] for alarm in worker.report(refused)["alarms"]}

    assert messages({"orders": "not orders"}) == {"orders": "not orders"}
    assert messages({"orders": "not orders", None: "no group"}) == {"orders": "not orders", "bookings": "no group"}
    assert messages({}) == {}


@pytest.mark.process
def test_a_topic_that_stands_still_is_told_nothing_of_what_keeps_another(
    worker: SharedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.follows(MINE)
    worker.follows(ANOTHER, of=ANOTHER)
    stuck = Alarm("bookings", Reason.TARGET_UNAVAILABLE, "no copy to bookings.ready is acknowledged")
    monkeypatch.setattr(report, "of_unacknowledged", lambda *_: [stuck])
    monkeypatch.setattr(StallTimes, "seconds", lambda *_, **__: 60.0)

    messages = {
        alarm["topic"]: alarm["message"] for alarm in worker.report({})["alarms"] if alarm["reason"] == CLEARED.reason
    }

    assert messages.keys() == {"orders", "bookings"}
    assert "bookings" not in messages["orders"]
    assert stuck.message in messages["bookings"]


def test_a_topic_that_comes_back_has_not_stood_still_meanwhile() -> None:
    standstill = StallTimes()
    standstill.seconds("orders", done=0, lag=5, now=0.0)
    standstill.forget("orders")

    assert standstill.seconds("orders", done=0, lag=5, now=60.0) == 0


@pytest.mark.process
def test_only_clients_reject_records_and_no_metric_of_a_worker_says_how_many(worker: SharedWorker) -> None:
    worker.follows(MINE)
    worker.is_shown()

    exposition = worker.metrics.exposition().decode()

    assert [reason for reason in DeadLetterReason if f'reason="{reason.value}"' not in exposition] == [
        DeadLetterReason.REJECTED
    ]


RAISED = Alarm("orders", Reason.RECORDS_REMOVED, "records were removed")
CLEARED = Alarm("orders", Reason.NOT_RELEASING, "nothing has been released")


class FakeEventWriter:
    """Keeps events instead of writing them to the events topic."""

    failed = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.assigned: list[str] = []
        self.rebalances: list[Event] = []

    def write(self, event: Event) -> None:
        if event.kind == "rebalance":
            self.rebalances.append(event)
        if event.kind == "assignment":
            self.assigned.append(event.topic)


@pytest.mark.process
def test_what_a_worker_has_of_a_topic_is_told_again_every_day_though_another_is_assigned_every_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer, hours = FakeEventWriter(), 0
    monkeypatch.setattr(report, "EventWriter", lambda *_, **__: writer)
    monkeypatch.setattr(report, "boot_seconds", lambda: hours * 3600.0)
    worker = SharedWorker()
    worker.follows(MINE)
    worker.follows(ANOTHER, of=ANOTHER)
    worker.assignment.on_assigned(Assigned([("orders", 0)], 1))
    worker.report()

    for hours in range(1, 72):
        worker.assignment.on_assigned(Assigned([("bookings", 0)], 1 + hours))
        worker.report()
        worker.assignment.take(Revoked([("bookings", 0)], False, [0], [0]))
        worker.report()

    assert writer.assigned.count("orders") == 1 + 2


@pytest.mark.process
def test_that_partitions_are_served_is_told_again_after_events_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operator considers a rebalance unfinished until it has read this event."""
    writer, seconds = FakeEventWriter(), 0.0
    monkeypatch.setattr(report, "EventWriter", lambda *_, **__: writer)
    monkeypatch.setattr(report, "boot_seconds", lambda: seconds)
    worker = SharedWorker()
    worker.follows(MINE)
    places = ["orders[0]"]
    worker.assignment.changes += [
        Change("assigned", "orders", 1, places, generation=4, at=0.0, took_ms=200),
        Change("caught-up", "orders", 1, places, generation=4, at=0.0, took_ms=200, delayed=7),
        Change("revoked", "orders", 1, places, generation=4, at=0.0, took_ms=0),
    ]
    worker.report()
    served, caught_up, _ = writer.rebalances
    assert "delayedtopics_events_failed_total 0.0" in worker.metrics.exposition().decode()

    writer.failed, seconds = 3, LOST_REPEAT_SECONDS
    worker.report()

    assert writer.rebalances[3:] == [served, caught_up], "the same events as at first"
    assert "delayedtopics_events_failed_total 3.0" in worker.metrics.exposition().decode()
    seconds = 3 * LOST_REPEAT_SECONDS
    worker.report()
    assert len(writer.rebalances) == 5


def reported_alarms() -> Alarms:
    """Returns alarms of which one is raised and one was cleared."""
    alarms = Alarms(lambda alarm, raised: None, now=0.0)
    alarms.update([RAISED, CLEARED], now=0.0)
    alarms.update([RAISED], now=0.0)
    return alarms


def test_an_alarm_that_stands_is_told_again_every_day() -> None:
    alarms = reported_alarms()
    assert alarms.to_repeat(lost=0, now=REPEAT_SECONDS - 1) == []
    for day in (1, 2):
        assert alarms.to_repeat(lost=0, now=day * REPEAT_SECONDS) == [(RAISED, True)]
        assert alarms.to_repeat(lost=0, now=day * REPEAT_SECONDS + 1) == []


def test_alarms_are_told_again_after_events_could_not_be_written() -> None:
    """The worker does not know which events are lost, so the operator may still show an alarm that was cleared."""
    alarms, later = reported_alarms(), LOST_REPEAT_SECONDS
    assert alarms.to_repeat(lost=1, now=later) == [(CLEARED, False), (RAISED, True)]
    assert alarms.to_repeat(lost=1, now=2 * later) == []
    assert alarms.to_repeat(lost=2, now=2 * later) == [(CLEARED, False), (RAISED, True)]
    assert alarms.to_repeat(lost=3, now=3 * later - 1) == [], (
        "if the events topic is missing, these events fail at once too"
    )
    assert alarms.to_repeat(lost=3, now=3 * later) == [(CLEARED, False), (RAISED, True)]
