"""What the workers said in `delayedtopics.events`, by delayed topic: alarms that are raised, and the latest rebalances. Pure.

Bounded, since whoever may write events must not fill the operator's memory.
"""

from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from delayed_topics_core.events import Event
from delayed_topics_core.rebalances import Rebalance, Rebalances

K = TypeVar("K")
V = TypeVar("V")

MAX_NAME, MAX_REASON, MAX_MESSAGE = 253, 100, 1000
"""Characters that are kept of a topic's or a member's name, and of an alarm."""
MAX_ALARMS = 100
"""Of one topic: the latest that are raised."""
MAX_TOPICS_BYTES = 32 * 2**20
"""Of all topics, about. Those that nobody has told of for the longest time are forgotten then."""
ENTRY_BYTES = 400
"""Of an entry without its text."""
KEPT_REBALANCES = 1000
"""Of one topic: more than it has while the operator is away."""


@dataclass(frozen=True, kw_only=True)
class RaisedAlarm:
    """`reason`: of core.reasons.Reason. `message`: what a user reads."""

    member: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkerNews:
    """Of one delayed topic. `rebalances`: oldest first."""

    alarms: tuple[RaisedAlarm, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()


@dataclass
class _Topic:
    alarms: dict[tuple[str, str], RaisedAlarm] = field(default_factory=dict)
    rebalances: Rebalances = field(default_factory=lambda: Rebalances(keep=KEPT_REBALANCES))
    news: WorkerNews | None = None
    """None: not asked for since something was told."""
    bytes: int = 0

    def weighed(self) -> int:
        """About how many bytes it takes."""
        told = sum(len(alarm.member) + len(alarm.reason) + len(alarm.message) for alarm in self.alarms.values())
        return ENTRY_BYTES * (1 + len(self.alarms)) + told + self.rebalances.bytes


@dataclass
class EventLog:
    """Alarms by member and reason, and rebalances. Filled by one thread, read by another."""

    most_bytes: int = MAX_TOPICS_BYTES
    _topics: dict[str, _Topic] = field(default_factory=dict)
    """Whoever was told of last is last."""
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def news(self, topic: str) -> WorkerNews:
        with self._lock:
            told = self._topics.get(topic)
            if told is None:
                return WorkerNews()
            if told.news is None:
                told.news = WorkerNews(alarms=tuple(told.alarms.values()), rebalances=told.rebalances.latest)
            return told.news

    def add(self, event: Event) -> None:
        if max(len(event.topic), len(event.member)) <= MAX_NAME:  # others are no topics, and no pods
            with self._lock:
                self._add(event)

    def _add(self, event: Event) -> None:
        topic = self._topics.pop(event.topic) if event.topic in self._topics else _Topic()
        self._topics[event.topic] = topic
        if event.kind == "alarm":
            self._alarm(topic, event)
        elif event.kind in ("worker-started", "worker-stopped"):
            # a worker that starts says anew what is wrong; one that has stopped says nothing
            topic.alarms = {key: alarm for key, alarm in topic.alarms.items() if alarm.member != event.member}
        topic.rebalances.add(event)
        topic.news = None
        self._bytes -= topic.bytes
        topic.bytes = topic.weighed()
        self._bytes += topic.bytes
        while self._bytes > self.most_bytes:
            forgotten = next(iter(self._topics))
            self._bytes -= self._topics.pop(forgotten).bytes

    def _alarm(self, topic: _Topic, event: Event) -> None:
        reason = _text(event.detail.get("reason", ""), MAX_REASON)
        message = _text(event.detail.get("message", ""), MAX_MESSAGE)
        if event.detail.get("raised", True):
            topic.alarms[event.member, reason] = RaisedAlarm(member=event.member, reason=reason, message=message)
            _keep_latest(topic.alarms, MAX_ALARMS)
        else:
            topic.alarms.pop((event.member, reason), None)


def _text(told: object, most: int) -> str:
    """Without halves of characters, which JSON can name: the API server writes another one for each, so that a status with one never is as
    it was to be."""
    return str(told)[:most].encode(errors="replace").decode()


def _keep_latest(entries: dict[K, V], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
