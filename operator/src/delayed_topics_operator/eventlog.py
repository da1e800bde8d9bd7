"""What the workers said in `delayedtopics.events`, by delayed topic: alarms that are raised, and the latest rebalances. Pure.

Bounded, since whoever may write events must not fill the operator's memory.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from delayed_topics_core.events import Event

K = TypeVar("K")
V = TypeVar("V")

MAX_NAME, MAX_REASON, MAX_MESSAGE = 253, 100, 1000
"""Characters that are kept of a topic's or a member's name, and of an alarm."""
MAX_ALARMS, MAX_LIVES = 100, 1000
"""Of one topic: the latest alarms that are raised, and members that have come or gone and not told of a rebalance since."""
MAX_TOPICS_BYTES = 32 * 2**20
"""Of all topics, about. Those that nobody has told of for the longest time are forgotten then."""
ENTRY_BYTES = 400
"""Of an entry without its text."""
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
    bytes: int = 0

    def weighed(self) -> int:
        """About how many bytes it takes."""
        told = sum(len(alarm.member) + len(alarm.reason) + len(alarm.message) for alarm in self.alarms.values())
        entries = 1 + len(self.alarms) + len(self.rebalances) + len(self.lives)
        return ENTRY_BYTES * entries + told + sum(map(len, self.lives))


@dataclass
class EventLog:
    """Alarms by member and reason, and the last `keep` rebalances. Filled by one thread, read by another."""

    keep: int = 20
    most_bytes: int = MAX_TOPICS_BYTES
    _topics: dict[str, _Topic] = field(default_factory=dict)
    """Whoever was told of last is last."""
    _bytes: int = 0
    _news: dict[str, WorkerNews] = field(default_factory=dict)

    def news(self, topic: str) -> WorkerNews:
        return self._news.get(topic, WorkerNews())

    def add(self, event: Event) -> None:
        if max(len(event.topic), len(event.member)) > MAX_NAME:
            return  # no topic, and no pod
        topic = self._topics.pop(event.topic) if event.topic in self._topics else _Topic()
        self._topics[event.topic] = topic
        match event.kind:
            case "alarm":
                self._alarm(topic, event)
            case "rebalance":
                self._rebalance(topic, event)
            case "worker-started" | "worker-stopped":
                # a worker that starts says anew what is wrong; one that has stopped says nothing
                topic.alarms = {key: alarm for key, alarm in topic.alarms.items() if alarm.member != event.member}
                topic.lives[event.member] = event.kind
                _keep_latest(topic.lives, MAX_LIVES)
            case "producers-replaced":
                pass  # no partition has moved
        self._news[event.topic] = WorkerNews(alarms=tuple(topic.alarms.values()), rebalances=tuple(topic.rebalances))
        self._bytes -= topic.bytes
        topic.bytes = topic.weighed()
        self._bytes += topic.bytes
        while self._bytes > self.most_bytes:
            forgotten = next(iter(self._topics))
            self._bytes -= self._topics.pop(forgotten).bytes
            del self._news[forgotten]

    def _alarm(self, topic: _Topic, event: Event) -> None:
        reason = str(event.detail.get("reason", ""))[:MAX_REASON]
        message = str(event.detail.get("message", ""))[:MAX_MESSAGE]
        if event.detail.get("raised", True):
            topic.alarms[event.member, reason] = RaisedAlarm(member=event.member, reason=reason, message=message)
            _keep_latest(topic.alarms, MAX_ALARMS)
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


def _keep_latest(entries: dict[K, V], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]


def _reason(life: str | None, change: str) -> str:
    if life == "worker-started":
        return "WorkerJoined"
    if life == "worker-stopped":
        return "WorkerLeft"
    return "PartitionsLost" if change == "lost" else "PartitionsMoved"


def _count(partitions: object) -> int:
    """A number, a list, or several of these by topic."""
    several = partitions.values() if isinstance(partitions, dict) else (partitions,)
    return sum(len(one) if isinstance(one, list) else one if isinstance(one, int) else 0 for one in several)
