"""What the workers reported in `delayedtopics.events`, by delayed topic: raised alarms and the latest rebalances. Pure.

The size is bounded, so that no one who may write events can fill the operator's memory.
"""

from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from delayed_topics_core.events import Event
from delayed_topics_core.rebalances import Rebalance, Rebalances

K = TypeVar("K")
V = TypeVar("V")

MAX_NAME, MAX_REASON, MAX_MESSAGE = 253, 100, 1000
"""In characters. Events of topics or members with longer names are ignored; reasons and messages of alarms are cut."""
MAX_ALARMS = 100
"""Raised alarms that are kept for one topic, the latest ones."""
MAX_TOPICS_BYTES = 32 * 2**20
"""The approximate limit for all topics. Above it, the topics without events for the longest time are forgotten."""
ENTRY_BYTES = 400
"""The approximate size of an entry without its text."""
KEPT_REBALANCES = 1000
"""Rebalances that are kept for one topic, more than happen while the operator is away."""


@dataclass(frozen=True, kw_only=True)
class RaisedAlarm:
    """`reason`: of core.reasons.Reason. `message`: what a user reads."""

    member: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class WorkerNews:
    """What the workers reported about one delayed topic. `rebalances`: oldest first."""

    alarms: tuple[RaisedAlarm, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()


@dataclass
class _Topic:
    alarms: dict[tuple[str, str], RaisedAlarm] = field(default_factory=dict)
    rebalances: Rebalances = field(default_factory=lambda: Rebalances(keep=KEPT_REBALANCES))
    news: WorkerNews | None = None
    """The cached result of `EventLog.news`. None: an event was added since it was built."""
    bytes: int = 0

    def estimated_bytes(self) -> int:
        """Returns approximately how many bytes the topic takes."""
        text = sum(len(alarm.member) + len(alarm.reason) + len(alarm.message) for alarm in self.alarms.values())
        return ENTRY_BYTES * (1 + len(self.alarms)) + text + self.rebalances.bytes


@dataclass
class EventLog:
    """Alarms by member and reason, and rebalances. Filled by one thread, read by another."""

    most_bytes: int = MAX_TOPICS_BYTES
    _topics: dict[str, _Topic] = field(default_factory=dict)
    """In the order of their latest events."""
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def news(self, topic: str) -> WorkerNews:
        with self._lock:
            known = self._topics.get(topic)
            if known is None:
                return WorkerNews()
            if known.news is None:
                known.news = WorkerNews(alarms=tuple(known.alarms.values()), rebalances=known.rebalances.latest)
            return known.news

    def add(self, event: Event) -> None:
        if max(len(event.topic), len(event.member)) <= MAX_NAME:  # no topic or pod has a longer name
            with self._lock:
                self._add(event)

    def _add(self, event: Event) -> None:
        topic = self._topics.pop(event.topic) if event.topic in self._topics else _Topic()
        self._topics[event.topic] = topic
        if event.kind == "alarm":
            self._alarm(topic, event)
        elif event.kind in ("worker-started", "worker-stopped"):
            # a worker that starts raises its alarms again; one that has stopped has none
            topic.alarms = {key: alarm for key, alarm in topic.alarms.items() if alarm.member != event.member}
        topic.rebalances.add(event)
        topic.news = None
        self._bytes -= topic.bytes
        topic.bytes = topic.estimated_bytes()
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


def _text(value: object, most: int) -> str:
    """Returns the text without lone surrogates, which JSON can encode. The API server replaces them, so a status with one would never
    equal the wanted status."""
    return str(value)[:most].encode(errors="replace").decode()


def _keep_latest(entries: dict[K, V], most: int) -> None:
    while len(entries) > most:
        del entries[next(iter(entries))]
