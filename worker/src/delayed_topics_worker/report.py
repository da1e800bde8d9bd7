"""What the worker tells: events, metrics, /status."""

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer
from delayed_topics_core.events import Event, EventKind
from delayed_topics_core.layout import format_ranges
from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.events import EventWriter

from delayed_topics_worker.alarms import (
    Alarm,
    Alarms,
    Standstill,
    joined,
    of_partitions,
    of_refusals,
    of_unacknowledged,
)
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.metrics import Metrics
from delayed_topics_worker.offset_watch import OffsetWatch, Spans
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.topic_watch import Sight
from delayed_topics_worker.unreadable import unread_span

NOT_RELEASING_SECONDS: Final = 10.0
MISROUTED_SHOWN_SECONDS: Final = 600.0


class Reporter:
    """Belongs to the worker's thread; called twice a second."""

    def __init__(
        self,
        connection: Connection,
        admin: KafkaAdmin,
        *,
        member: str,
        served: ServedTopics,
        assignment: Assignment,
        metrics: Metrics,
    ) -> None:
        self._member = member
        self._served = served
        self._assignment = assignment
        self._metrics = metrics
        self._events = EventWriter(connection, client_id=f"{member}-events")
        self._alarms = Alarms(self._alarm_changed)
        self._last_change: dict[str, Any] = {}
        self._standstill = Standstill()
        self._offsets = OffsetWatch(admin, connection.bootstrap_servers)
        self._misrouted: dict[str, tuple[int, float]] = {}
        self._now_ms = 0

    def started(self) -> None:
        self._offsets.start()
        for served in self._served:
            self._write("worker-started", served.topic, {})

    def stopped(self) -> None:
        self._offsets.close()
        self._write_changes()
        for served in self._served:
            self._write("worker-stopped", served.topic, {})
        self._events.close(5.0)

    def report(
        self,
        consumer: Consumer,
        *,
        now_ms: int,
        clock_fresh: bool,
        fenced: bool,
        held_bytes: int,
        waits_for: Sequence[object],
        refused: object,
        stuck_seconds: float,
        sight: Sight,
    ) -> dict[str, Any]:
        """The new /status. `now_ms`: the estimate of the broker's time. `waits_for`: what is wrong with clock and
        commits. `refused`: what Kafka refuses to the whole worker. `stuck_seconds`: for how long copies have not been
        acknowledged."""
        self._now_ms = now_ms
        self._metrics.clock_fresh.set(clock_fresh)
        self._metrics.fence_open.set(not fenced)
        self._metrics.held_bytes.set(held_bytes)
        self._metrics.events_failed.set(self._events.failed)
        self._write_changes()
        spans = {owned: unread_span(consumer, owned) for owned in self._assignment.owned.values()}
        topics = {served.topic: self._topic(served, spans, now_ms) for served in self._served}
        alarms = of_partitions(self._assignment.owned.values())
        if stuck_seconds:
            said = {(alarm.topic, alarm.reason) for alarm in alarms}
            stuck = of_unacknowledged(self._assignment.owned.values(), stuck_seconds, sight)
            alarms += [alarm for alarm in stuck if (alarm.topic, alarm.reason) not in said]
            waits_for = [*waits_for, f"copies are not acknowledged since {stuck_seconds:.0f} s"]
        alarms += self._not_releasing(topics, _why(waits_for, clock_fresh=clock_fresh, fenced=fenced))
        generation = self._assignment.generation
        alarms += self._offsets.alarms(spans, generation=generation, now_ms=now_ms, clock_fresh=clock_fresh)
        alarms += self._misrouted_alarms()
        refusals = {Reason.KAFKA_REFUSED: str(refused) if refused else None}
        self._alarms.update(joined(alarms + of_refusals([s.topic for s in self._served], refusals)))
        return {
            "member": self._member,
            "topics": topics,
            "alarms": [alarm._asdict() for alarm in self._alarms.raised],
            "rebalance": {"generation": self._assignment.generation, "last": self._last_change},
            "held_bytes": held_bytes,
        }

    def _topic(self, served: Served, spans: Spans, now_ms: int) -> dict[str, Any]:
        owned = [o for o in self._assignment.owned.values() if o.served is served]
        waiting = sum(o.waiting for o in owned)
        due_lag = sum(len(o.arrived) + o.shelf.due_count(now_ms) + len(o.outstanding) for o in owned)
        labels = served.topic
        self._metrics.waiting.labels(labels).set(waiting)
        self._metrics.due_lag.labels(labels).set(due_lag)
        self._metrics.partitions.labels(labels).set(len(owned))
        self._metrics.unread.labels(labels).set(sum(spans[o].unread for o in owned))
        by_topic: dict[str, list[int]] = {}
        for o in owned:
            by_topic.setdefault(o.topic, []).append(o.partition)
        return {
            "partitions": [f"{topic}[{format_ranges(sorted(numbers))}]" for topic, numbers in sorted(by_topic.items())],
            "waiting": waiting,
            "due_lag": due_lag,
            "generation": served.layout.layout.generation if served.layout else None,
            "paused": served.paused,
        }

    def _not_releasing(self, topics: dict[str, Any], why: str) -> list[Alarm]:
        raised: list[Alarm] = []
        for served in self._served:
            tally = served.tally
            done = tally.released + tally.hopped + tally.dead_lettered.total()
            lag = 0 if served.paused else topics[served.topic]["due_lag"]
            seconds = self._standstill.seconds(served.topic, done=done, lag=lag, now=time.monotonic())
            if seconds > NOT_RELEASING_SECONDS:
                message = f"{lag} records are due and nothing is released since {seconds:.0f} s: {why}"
                raised.append(Alarm(served.topic, Reason.NOT_RELEASING, message))
        return raised

    def _misrouted_alarms(self) -> list[Alarm]:
        now = time.monotonic()
        raised: list[Alarm] = []
        for served in self._served:
            count, at = self._misrouted.get(served.topic, (0, float("-inf")))
            if served.tally.misrouted > count:
                self._misrouted[served.topic] = (served.tally.misrouted, now)
                at = now
            if now - at < MISROUTED_SHOWN_SECONDS:
                message = (
                    f"a client produces to {served.names.delays} without a layout; its records are served at the delay of "
                    f"the partition that they happened to hit. Let it produce to {served.names.front}"
                )
                raised.append(Alarm(served.topic, Reason.MISROUTED_RECORDS, message))
        return raised

    def _write_changes(self) -> None:
        changes, self._assignment.changes = self._assignment.changes, []
        for change in changes:
            detail = {
                "change": change.kind,
                "partitions": change.partitions,
                "generation": change.generation,
                "took_ms": change.took_ms,
            }
            self._last_change = detail
            self._metrics.rebalances.labels(change.topic, change.kind).inc()
            self._write("rebalance", change.topic, detail)

    def _alarm_changed(self, alarm: Alarm, raised: bool) -> None:
        self._metrics.alarms.labels(alarm.topic, alarm.reason.value).set(raised)
        detail = {"reason": alarm.reason.value, "message": alarm.message, "raised": raised}
        self._write("alarm", alarm.topic, detail)

    def _write(self, kind: EventKind, topic: str, detail: dict[str, Any]) -> None:
        at_ms = self._now_ms or int(time.time() * 1000)
        self._events.write(Event(kind=kind, topic=topic, member=self._member, at_ms=at_ms, detail=detail))


def _why(problems: Sequence[object], *, clock_fresh: bool, fenced: bool) -> str:
    said = [str(problem) for problem in problems if problem]
    if not said and not clock_fresh:
        said.append("the broker's time isn't known, no probe of it was answered within the last second")
    if not said and fenced:
        said.append("no commit was accepted within the last second")
    return "; ".join(said) or "no reason is known, see the worker's log"
