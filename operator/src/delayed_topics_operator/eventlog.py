"""What the workers said in `delayedtopics.events`, by delayed topic: alarms that are raised, and the latest rebalances. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field

from delayed_topics_core.events import Event

MAX_REASON, MAX_MESSAGE = 100, 1000
"""Characters that are kept of an alarm: whoever may write events must not fill the operator's memory."""
SAME_REBALANCE_MS = 15_000
"""Every member tells of its own part; parts closer than this belong to one rebalance."""


@dataclass(frozen=True, kw_only=True)
class RaisedAlarm:
    """`reason`: of core.reasons.Reason. `message`: what a user reads."""

    member: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """From the first to the last that was heard of it, in milliseconds of broker time."""

    started_at_ms: int
    ended_at_ms: int
    moved_partitions: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerNews:
    """Of one delayed topic. `rebalances`: oldest first."""

    alarms: tuple[RaisedAlarm, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()


@dataclass
class _Topic:
    alarms: dict[tuple[str, str], RaisedAlarm] = field(default_factory=dict)
    rebalances: list[Rebalance] = field(default_factory=list)
    lives: dict[str, str] = field(default_factory=dict)


@dataclass
class EventLog:
    """Bounded: alarms by member and reason, and the last `keep` rebalances. Filled by one thread, read by another."""

    keep: int = 20
    _topics: defaultdict[str, _Topic] = field(default_factory=lambda: defaultdict(_Topic))
    _news: dict[str, WorkerNews] = field(default_factory=dict)

    def news(self, topic: str) -> WorkerNews:
        return self._news.get(topic, WorkerNews())

    def add(self, event: Event) -> None:
        topic = self._topics[event.topic]
        match event.kind:
            case "alarm":
                self._alarm(topic, event)
            case "rebalance":
                self._rebalance(topic, event)
            case "worker-started" | "worker-stopped":
                # a worker that starts says anew what is wrong; one that has stopped says nothing
                topic.alarms = {key: alarm for key, alarm in topic.alarms.items() if alarm.member != event.member}
                topic.lives[event.member] = event.kind
            case "producers-replaced":
                pass  # no partition has moved
        self._news[event.topic] = WorkerNews(alarms=tuple(topic.alarms.values()), rebalances=tuple(topic.rebalances))

    def _alarm(self, topic: _Topic, event: Event) -> None:
        reason = str(event.detail.get("reason", ""))[:MAX_REASON]
        message = str(event.detail.get("message", ""))[:MAX_MESSAGE]
        if event.detail.get("raised", True):
            topic.alarms[event.member, reason] = RaisedAlarm(member=event.member, reason=reason, message=message)
        else:
            topic.alarms.pop((event.member, reason), None)

    def _rebalance(self, topic: _Topic, event: Event) -> None:
        change = str(event.detail.get("change", ""))
        moved = _count(event.detail.get("partitions")) if change == "assigned" else 0
        last = topic.rebalances[-1] if topic.rebalances else None
        if last is not None and event.at_ms - last.ended_at_ms < SAME_REBALANCE_MS:
            topic.rebalances[-1] = Rebalance(
                started_at_ms=min(last.started_at_ms, event.at_ms),
                ended_at_ms=max(last.ended_at_ms, event.at_ms),
                moved_partitions=last.moved_partitions + moved,
                reason=last.reason,
            )
        else:
            reason = _reason(topic.lives.get(event.member), change)
            topic.rebalances.append(
                Rebalance(started_at_ms=event.at_ms, ended_at_ms=event.at_ms, moved_partitions=moved, reason=reason)
            )
            del topic.rebalances[: -self.keep]
        topic.lives.pop(event.member, None)


def _reason(life: str | None, change: str) -> str:
    if life == "worker-started":
        return "WorkerJoined"
    if life == "worker-stopped":
        return "WorkerLeft"
    return "PartitionsLost" if change == "lost" else "PartitionsMoved"


def _count(partitions: object) -> int:
    if isinstance(partitions, int):
        return partitions
    if isinstance(partitions, dict):
        return sum(_count(value) for value in partitions.values())
    return len(partitions) if isinstance(partitions, (list, tuple)) else 0
