"""Publishes the state of the worker as events, metrics and /status."""

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, Final, NamedTuple

from delayed_topics_core.events import TOLD_AGAIN_MS, Event, EventKind, format_places
from delayed_topics_core.names import CLOCK_TOPIC
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_core.words import counted
from delayed_topics_engine import Engine, State, Tally
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventWriter

from delayed_topics_worker.ahead import AheadWatch
from delayed_topics_worker.alarms import (
    Alarm,
    Alarms,
    RecentRise,
    StallTimes,
    joined,
    of_missing_targets,
    of_partitions,
    of_refusals,
    of_unacknowledged,
    of_unassigned,
)
from delayed_topics_worker.assigned import AssignedPartition, of_topics
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.control import Controls
from delayed_topics_worker.engine_events import Fault
from delayed_topics_worker.metrics import Metrics, TopicWork
from delayed_topics_worker.offset_watch import OffsetWatch, Spans
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unreadable import unread_span

ASSIGNED_AGAIN_SECONDS: Final = TOLD_AGAIN_MS / 1000
"""The interval at which a worker repeats what it is assigned, because Kafka keeps events for a week."""
NOT_RELEASING_SECONDS: Final = 10.0
MISROUTED_SHOWN_SECONDS: Final = 600.0
WAITED_SHOWN_SECONDS: Final = 90.0
"""A record that waits for a ready topic looks for it, and is counted again, at least every 60 s."""


class Why(NamedTuple):
    """Why nothing is released. `about`: see `Alarm`."""

    text: str
    about: tuple[str, ...]


class Reporter:
    """Publishes the state of the worker twice a second. Belongs to the worker's thread."""

    def __init__(
        self,
        connection: Connection,
        admin: KafkaAdmin,
        *,
        member: str,
        served: ServedTopics,
        controls: Controls,
        metrics: Metrics,
        session_timeout_ms: int | None,
        template: str,
    ) -> None:
        """`session_timeout_ms`: of this member; None if the brokers set it. `template`: the template of its pod; empty if it has none."""
        self._member = member
        self._session = {} if session_timeout_ms is None else {"session_timeout_ms": session_timeout_ms}
        self._template = {"template": template} if template else {}
        self._assigned_repeated_at = boot_seconds()
        self._served = served
        self._controls = controls
        self._metrics = metrics
        self._events = EventWriter(connection, client_id=f"{member}-events")
        self._alarms = Alarms(self._alarm_changed, now=boot_seconds())
        self._shown: set[str] = set()
        self._last_change: dict[str, Any] = {}
        self._served_events: dict[str, dict[str, Event]] = {}
        """By front topic and change, the last events that partitions are served (`assigned`) and have caught up."""
        self._lost = 0
        self._standstill = StallTimes()
        self._offsets = OffsetWatch(admin, connection.bootstrap_servers)
        self._ahead = AheadWatch()
        self._misrouted = RecentRise(MISROUTED_SHOWN_SECONDS)
        self._waited_for_target = RecentRise(WAITED_SHOWN_SECONDS)
        self._now_ms = 0
        self._now_at = boot_seconds()

    def started(self) -> None:
        self._offsets.start()

    def serving(self, topic: str) -> None:
        """Reports that this worker serves a topic from now on."""
        self._write("worker-started", topic, {**self._template})

    def stopped(self, assignment: Assignment | None) -> None:
        self._offsets.close()
        if assignment is not None:
            self._write_changes(assignment)
        for served in self._served:
            if served.layout is not None:
                self._write("worker-stopped", served.topic, {})
        self._events.close(5.0)

    def report(
        self,
        engine: Engine,
        assignment: Assignment,
        *,
        refused: Mapping[str | None, str],
        snapshot: TopicsSnapshot,
        unassigned: Mapping[TopicPartitionKey, float],
    ) -> dict[str, Any]:
        """Publishes events and metrics, and returns the new /status. `refused`: see `of_refusals`. `unassigned`: see `GroupWatch`."""
        state = engine.state()
        assignment.see(engine.look())
        self._now_ms, self._now_at = state.now_ms or 0, boot_seconds()
        self._controls.answer(engine, assignment, self._now_ms)
        self._write_changes(assignment)
        owned = list(assignment.owned.values())
        spans = {o: unread_span(o) for o in owned}
        by_topic = of_topics(owned)
        self._repeat_assignments(assignment, by_topic)
        shown = [served for served in self._served if served.listed or served.topic in by_topic]
        counted_by = engine.tallies([served.number for served in shown])
        tallies = {served.topic: tally for served, tally in zip(shown, counted_by, strict=True)}
        self._count(state, tallies)
        work = {s.topic: _work(by_topic.get(s.topic, ()), spans) for s in shown}
        self._metrics.engine.work = work
        alarms = of_partitions(owned)
        raised_for = {(alarm.topic, alarm.reason) for alarm in alarms}
        stuck = of_unacknowledged(owned, snapshot)
        alarms += [alarm for alarm in stuck if (alarm.topic, alarm.reason) not in raised_for]
        why = {s.topic: _why(state, [alarm for alarm in stuck if alarm.topic == s.topic]) for s in shown}
        alarms += self._not_releasing(shown, work, tallies, why)
        alarms += self._offsets.alarms(
            spans, generation=assignment.generation, now_ms=self._now_ms, clock_fresh=state.time_known
        )
        self._metrics.pending.found = {key: n for key, n in self._offsets.pending.items() if key[0] in work}
        alarms += self._ahead.alarms(owned, now=self._now_at)
        alarms += self._misrouted_alarms(shown, tallies)
        alarms += self._target_alarms(shown, tallies)
        alarms += self._controls.alarms(snapshot)
        alarms += of_unassigned(unassigned, shown)
        of_all: dict[str | None, str] = {None: state.refused} if state.refused else {}
        self._alarms.update(joined(alarms + of_refusals(work, {**of_all, **refused})), now=self._now_at)
        self._repeat_events(self._events.failed)
        self._forget_all_but(work.keys())
        return {
            "member": self._member,
            "topics": {s.topic: _status(s, by_topic.get(s.topic, ()), work[s.topic]) for s in shown},
            "alarms": [{"topic": a.topic, "reason": a.reason, "message": a.message} for a in self._alarms.raised],
            "rebalance": {"generation": assignment.generation, "last": self._last_change},
            "held_bytes": state.held_bytes,
        }

    def _count(self, state: State, tallies: Mapping[str, Tally]) -> None:
        self._metrics.engine.tallies = tuple(tallies.items())
        self._metrics.engine.commits = state.commits
        self._metrics.engine.failed_commits = state.failed_commits
        self._metrics.clock_fresh.set(state.time_known)
        self._metrics.fence_open.set(state.may_send)
        self._metrics.held_bytes.set(state.held_bytes)
        for topic, count in self._controls.in_force().items():
            if topic in tallies:
                self._metrics.control_requests.labels(topic).set(count)

    def _repeat_events(self, lost: int) -> None:
        """Repeats alarms, and, if events were lost, the last rebalance events. `lost`: the number of events that could not be written."""
        self._metrics.events_failed.inc(lost - self._lost)
        self._lost, lost_before = lost, self._alarms.lost
        for alarm, raised in self._alarms.to_repeat(lost=lost, now=self._now_at):
            self._write_alarm(alarm, raised, repeated=True)
        if self._alarms.lost != lost_before:  # the operator waits for these events, which end a rebalance
            for event in chain.from_iterable(events.values() for events in self._served_events.values()):
                self._events.write(event)

    def _forget_all_but(self, topics: Set[str]) -> None:
        """Forgets the topics that this worker has left. If one comes back, the engine goes on with its former counts."""
        for topic in self._shown - topics:
            self._metrics.forget(topic)
            self._standstill.forget(topic)
            self._served_events.pop(topic, None)
        self._shown = set(topics)

    def _not_releasing(
        self,
        shown: Iterable[Served],
        work: Mapping[str, TopicWork],
        tallies: Mapping[str, Tally],
        why: Mapping[str, Why],
    ) -> list[Alarm]:
        raised: list[Alarm] = []
        for served in shown:
            done = tallies[served.topic].acknowledged  # a copy that is sent again and again is no progress
            lag = 0 if served.paused else work[served.topic].due
            seconds = self._standstill.seconds(served.topic, done=done, lag=lag, now=time.monotonic())
            if seconds > NOT_RELEASING_SECONDS:
                message = (
                    f"nothing has been released for {seconds:.0f} s, although {counted(lag, 'record')} should have been"
                )
                message += f": {why[served.topic].text}"
                about = ("nothing", *why[served.topic].about)
                raised.append(Alarm(served.topic, Reason.NOT_RELEASING, message, about=about))
        return raised

    def _misrouted_alarms(self, shown: Iterable[Served], tallies: Mapping[str, Tally]) -> list[Alarm]:
        now = time.monotonic()
        raised: list[Alarm] = []
        for served in shown:
            if self._misrouted.has_risen(served.topic, tallies[served.topic].misrouted, now=now):
                message = (
                    f"a client produces directly to {served.names.delays}. Each of its records waits for the delay of the partition "
                    f"that it happens to be in. Let the client produce to {served.names.front}"
                )
                raised.append(Alarm(served.topic, Reason.MISROUTED_RECORDS, message))
        return raised

    def _target_alarms(self, shown: Iterable[Served], tallies: Mapping[str, Tally]) -> list[Alarm]:
        now = time.monotonic()
        return [
            Alarm(served.topic, Reason.TARGET_UNAVAILABLE, of_missing_targets(served))
            for served in shown
            if self._waited_for_target.has_risen(served.topic, tallies[served.topic].waited_for_target, now=now)
        ]

    def _write_changes(self, assignment: Assignment) -> None:
        changes, assignment.changes = assignment.changes, []
        for change in changes:
            detail: dict[str, Any] = {
                "partitions": change.partitions,
                "places": change.places,
                "generation": change.generation,
                "took_ms": change.took_ms,
            }
            match change.kind:
                case "assignment":
                    assignment_detail = self._assignment_of(change.topic, change.places, change.generation)
                    self._write(change.kind, change.topic, {**assignment_detail, "kept": change.kept}, change.at)
                case "producers-replaced":
                    self._write(change.kind, change.topic, detail, change.at)
                case "caught-up":
                    caught_up = {"change": change.kind, **detail, "delayed": change.delayed}
                    self._note_served(self._write("rebalance", change.topic, caught_up, change.at))
                case "assigned" | "revoked" | "lost":
                    self._last_change = {"change": change.kind, **detail}
                    if change.kind != "assigned":
                        self._last_change |= {"kept": change.kept, "in_flight": change.in_flight}
                    self._metrics.partition_changes.labels(change.topic, change.kind).inc(change.partitions)
                    self._shown.add(change.topic)
                    event = self._write("rebalance", change.topic, self._last_change, change.at)
                    if change.kind == "assigned":
                        self._note_served(event)

    def _note_served(self, event: Event) -> None:
        self._served_events.setdefault(event.topic, {})[event.detail["change"]] = event

    def _repeat_assignments(self, assignment: Assignment, by_topic: Mapping[str, Sequence[AssignedPartition]]) -> None:
        if self._now_at - self._assigned_repeated_at < ASSIGNED_AGAIN_SECONDS:
            return
        self._assigned_repeated_at = self._now_at
        for topic, owned in by_topic.items():
            detail = self._assignment_of(topic, format_places([o.place for o in owned]), assignment.group_generation)
            self._write("assignment", topic, {**detail, "repeated": True}, self._now_at)

    def _assignment_of(self, topic: str, places: list[str], generation: int) -> dict[str, Any]:
        layout = self._served.of_source(topic).layout
        group = layout.group if layout is not None else ""
        return {"group": group, "generation": generation, "places": places, **self._session, **self._template}

    def _alarm_changed(self, alarm: Alarm, raised: bool) -> None:
        self._metrics.alarms.labels(alarm.topic, alarm.reason.value).set(raised)
        self._write_alarm(alarm, raised)

    def _write_alarm(self, alarm: Alarm, raised: bool, **further: bool) -> None:
        detail = {"reason": alarm.reason.value, "message": alarm.message, "raised": raised, **further}
        self._write("alarm", alarm.topic, detail)

    def _write(self, kind: EventKind, topic: str, detail: dict[str, Any], at: float | None = None) -> Event:
        """`at`: when it happened, in seconds of the worker's clock; None: now."""
        since_ms = int(((boot_seconds() if at is None else at) - self._now_at) * 1000)
        at_ms = self._now_ms + since_ms if self._now_ms else int(time.time() * 1000)
        event = Event(kind=kind, topic=topic, member=self._member, at_ms=at_ms, detail=detail)
        self._events.write(event)
        return event


def _work(owned: Sequence[AssignedPartition], spans: Spans) -> TopicWork:
    seen = [o.seen for o in owned if o.seen]
    return TopicWork(
        partitions=len(owned),
        waiting=sum(s.waiting for s in seen),
        due=sum(s.due for s in seen),
        unread=sum(spans[o].unread for o in owned),
    )


def _status(served: Served, owned: Sequence[AssignedPartition], work: TopicWork) -> dict[str, Any]:
    return {
        "partitions": format_places([o.place for o in owned]),
        "waiting": work.waiting,
        "due_lag": work.due,
        "generation": served.layout.layout.generation if served.layout else None,
        "paused": served.paused,
    }


def _why(state: State, stuck: Sequence[Alarm]) -> Why:
    """Returns why nothing is released of a topic. `stuck`: the alarms of this topic only, because others may own the other topics."""
    reasons: list[str] = []
    if state.clock_problem:
        reasons.append(
            f"the worker can't get the broker's time from topic {CLOCK_TOPIC} ({Fault(*state.clock_problem)})"
        )
    reasons += dict.fromkeys(problem for problem in (state.problem, state.refused) if problem)  # they may be the same
    if stuck:
        return Why(". Also, ".join([*reasons, stuck[0].message]), (*reasons, *stuck[0].gist))
    if not reasons and not state.time_known:
        reasons.append(
            "the worker does not know the broker's time, because Kafka has answered no clock probe within the last second"
        )
    if not reasons and not state.may_send:
        reasons.append("Kafka has accepted no commit within the last second")
    return Why(". Also, ".join(reasons) or "the worker does not know why. See its log", tuple(reasons))
