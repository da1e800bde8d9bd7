"""Reads control topics, passes their requests to cancel or reschedule records to the engine, and writes the answers."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.settings import least_retention_seconds
from delayed_topics_engine import Engine
from delayed_topics_kafka.clock import boot_seconds
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.control import ControlRead, ControlReader
from delayed_topics_kafka.outbox import Outbox

from delayed_topics_worker.alarms import Alarm, of_many_control_requests, of_unreadable_control
from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.background import Repeated
from delayed_topics_worker.engine_events import Changed
from delayed_topics_worker.requests import Requests
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unserved import what_is_wrong

MAX_REQUESTS: Final = 100_000
"""Requests in force for all delayed topics of a worker, which take some 50 MB. Each delayed topic has an equal share. Requests beyond it
are refused, and raise an alarm."""
POLL_SECONDS: Final = 0.2
NOT_FOUND_SECONDS: Final = 60
"""A request without an outcome is answered with NOT_FOUND so long after the longest wait of a record."""
UNREAD_SECONDS: Final = 10.0


class ControlTopic(NamedTuple):
    """`life`: counts how often another topic has taken the name of the control topic."""

    name: str
    life: int


class ControlWatch:
    """Reads control topics on a thread of its own, and keeps what it has read until `take`."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self.problems: dict[str, str] = {}
        """By topic, why it can't be read."""
        self._connection = connection
        self._client_id = client_id
        self._reader: ControlReader | None = None
        self._thread = Repeated("control", self._turn, interval_seconds=0.01)
        self._wanted: frozenset[ControlTopic] = frozenset()
        self._followed: frozenset[ControlTopic] = frozenset()
        self._known: frozenset[ControlTopic] = frozenset()
        self._reads: deque[tuple[frozenset[ControlTopic], list[ControlRead]]] = deque()

    def look(self, topics: Collection[ControlTopic]) -> None:
        """Reads these topics from now on, each from its beginning. The client and the thread start with the first topic."""
        before, self._wanted = self._wanted, frozenset(topics)
        if self._wanted and not before and not self._thread.started:
            self._thread.start()

    def take(self) -> tuple[frozenset[ControlTopic], list[ControlRead]]:
        """Returns the wanted topics that were read to the end once, and the records of all wanted topics since the last call, those of each
        topic in order."""
        known = self._known  # read before the records, which therefore include all of a known topic up to its end
        reads: list[ControlRead] = []
        while self._reads:
            followed, found = self._reads.popleft()
            ours = {topic.name for topic in followed & self._wanted}
            reads += [read for read in found if read.topic in ours]
        return known & self._wanted, reads

    def close(self) -> None:
        self._thread.close()

    def _turn(self) -> None:
        if self._reader is None:
            self._reader = ControlReader(self._connection, client_id=self._client_id)
        wanted = self._wanted
        if wanted != self._followed:
            # A topic that was created again is dropped first, so that it is read from its beginning.
            self._reader.follow([topic.name for topic in wanted & self._followed])
            self._reader.follow([topic.name for topic in wanted])
            self._followed = wanted
        if reads := self._reader.poll(POLL_SECONDS):
            self._reads.append((wanted, reads))
        self.problems = {topic: str(problem) for topic, problem in self._reader.problems.items()}
        read = self._reader.read
        self._known = frozenset(topic for topic in wanted if topic.name in read)


@dataclass
class _Followed:
    """The control topic of a delayed topic. `wanted_at`: since when it has to be read, in seconds of the worker's clock. `requests`: what
    it says."""

    topic: ControlTopic
    wanted_at: float
    requests: Requests = field(default_factory=Requests)


class Controls:
    """The control topics of all delayed topics of a worker. Belongs to the worker's thread.

    A control topic is read until another topic has its name. The requests of the former topic do not apply any more then.
    """

    def __init__(self, connection: Connection, served: ServedTopics, *, member: str) -> None:
        self._connection = connection
        self._served = served
        self._client_id = f"{member}-control"
        self._watch = ControlWatch(connection, client_id=self._client_id)
        self._followed: dict[str, _Followed] = {}
        self._ids: dict[str, str] = {}
        """By front topic, the id of the control topic that the registry had last."""
        self._outbox: Outbox | None = None

    def follow(self, engine: Engine) -> None:
        """Passes to the engine what was read since the last call."""
        for served in self._served:
            self._begin(engine, served)
        if not self._followed:
            return
        self._watch.look([followed.topic for followed in self._followed.values()])
        known, reads = self._watch.take()
        by_topic: dict[str, list[ControlRead]] = {}
        for read in reads:
            by_topic.setdefault(read.topic, []).append(read)
        for served in self._served:
            if (followed := self._followed.get(served.topic)) is None:
                continue
            if of_topic := by_topic.get(served.names.control):
                self._take(engine, served, followed.requests, of_topic)
            served.is_control_known = followed.topic in known

    def _begin(self, engine: Engine, served: Served) -> None:
        """Begins to read the control topic of a delayed topic if that is not read yet, and begins again if another topic has its name."""
        registered_id = served.registered_id(served.names.control)
        before = self._ids.get(served.topic)
        if registered_id is not None:
            self._ids[served.topic] = registered_id
        followed = self._followed.get(served.topic)
        is_another = followed is not None and None not in (registered_id, before) and registered_id != before
        if is_another:
            engine.withdraw(served.number, None)
        if is_another or (served.has_control_topic and followed is None):
            life = 0 if followed is None else followed.topic.life + 1
            self._followed[served.topic] = _Followed(ControlTopic(served.names.control, life), boot_seconds())

    def _take(self, engine: Engine, served: Served, requests: Requests, reads: list[ControlRead]) -> None:
        room = self._room(served)
        retention_ms = 1000 * _retention_seconds(served.layout) if served.layout is not None else None
        in_force: dict[bytes, bool] = {}
        for read in reads:
            if retention_ms is not None:  # by append times, so that all workers agree, however late they read
                in_force.update(dict.fromkeys(requests.expire(read.at_ms - retention_ms), False))
            in_force[read.id] = requests.take(read, most=room, refused=_refused(served, read))
        engine.withdraw(served.number, [of_id for of_id, holds in in_force.items() if not holds])
        wanted = [(of_id, requests.in_force[of_id].control.deliver_at_ms) for of_id, holds in in_force.items() if holds]
        for (of_id, _), was_released in zip(wanted, engine.want(served.number, wanted), strict=True):
            request = requests.in_force[of_id]
            if was_released and request.answer is None and served.has_control_topic:
                self._write(served, of_id, request.control.answered(ControlKind.TOO_LATE))

    def on_changed(self, event: Changed) -> None:
        served = self._served.numbered(event.number)
        request = self._followed[served.topic].requests.in_force.get(event.id)
        kind = ControlKind(event.outcome)
        if request is None or request.control.deliver_at_ms != event.deliver_at_ms or request.answer is kind:
            return
        self._write(served, event.id, request.control.answered(kind))

    def answer(self, engine: Engine, assignment: Assignment, now_ms: int) -> None:
        """Writes the answers that are due, and forgets the requests that are over. `now_ms`: the broker's time; 0 while it is not known."""
        for served in self._served:
            followed = self._followed.get(served.topic)
            if followed is None or served.layout is None or not now_ms:
                continue
            requests = followed.requests
            if over := requests.expire(now_ms - 1000 * _retention_seconds(served.layout)):
                engine.withdraw(served.number, over)
            if (served.names.front, 0) in assignment.owned and served.has_control_topic:
                before_ms = now_ms - 1000 * (_longest_wait_seconds(served.layout) + NOT_FOUND_SECONDS)
                for of_id, answer in requests.take_answers(not_found_before_ms=before_ms):
                    self._write(served, of_id, answer)

    @property
    def _share(self) -> int:
        """The number of requests that each delayed topic may have, so that none takes the room of others."""
        return MAX_REQUESTS // max(1, sum(served.has_control_topic for served in self._served))

    def _room(self, served: Served) -> int:
        """Returns how many requests of a delayed topic may be in force. Until its control topic has been read to the end, that is all the
        room that there is, because its requests were accepted before, perhaps when shares were larger."""
        if served.is_control_known:
            return self._share
        return MAX_REQUESTS - sum(count for topic, count in self.in_force().items() if topic != served.topic)

    def in_force(self) -> dict[str, int]:
        """Returns the number of requests in force, by front topic."""
        return {topic: len(followed.requests.in_force) for topic, followed in self._followed.items()}

    def alarms(self, snapshot: TopicsSnapshot) -> list[Alarm]:
        raised: list[Alarm] = []
        for served in self._served:
            followed = self._followed.get(served.topic)
            if not served.has_control_topic or followed is None:
                continue
            if problem := self._problem(served, followed, snapshot):
                raised.append(of_unreadable_control(served, problem))
            if (count := len(followed.requests.in_force)) >= self._share:
                raised.append(of_many_control_requests(served, count))
        return raised

    def _problem(self, served: Served, followed: _Followed, snapshot: TopicsSnapshot) -> str | None:
        """Returns why the control topic can't be read. The client library does not report that a topic is missing."""
        name = served.names.control
        if (wrong := what_is_wrong(served, name, snapshot)) is not None:
            return wrong[1]
        if (problem := self._watch.problems.get(name)) is not None:
            return problem
        if served.is_control_known or boot_seconds() - followed.wanted_at < UNREAD_SECONDS:
            return None
        return f"the workers have not read {name} to its end yet. Check that they may read and describe it"

    def close(self) -> None:
        self._watch.close()
        if self._outbox is not None:
            self._outbox.close()

    def _write(self, served: Served, of_id: bytes, answer: Control | None) -> None:
        if self._outbox is None:
            self._outbox = Outbox(self._connection, client_id=self._client_id)
        self._outbox.write(served.names.control, key=of_id, value=None if answer is None else answer.encode())


def _longest_wait_seconds(layout: LayoutRecord) -> int:
    return max(layout.layout.waits_seconds(layout.max_delay_seconds))


def _retention_seconds(layout: LayoutRecord) -> int:
    """Returns the retention of the control topic."""
    return least_retention_seconds(layout.layout.waits_seconds(layout.max_delay_seconds)) + layout.outage_budget_seconds


def _refused(served: Served, read: ControlRead) -> ControlKind | None:
    """Returns why a record can't come out at the requested time; None if it can."""
    layout, control = served.layout, read.control
    if layout is None or control is None or control.deliver_at_ms is None:
        return None
    if not layout.layout.ladder_seconds:
        return ControlKind.NO_LADDER
    is_too_far = control.deliver_at_ms > read.at_ms + 1000 * layout.max_delay_seconds
    return ControlKind.TOO_FAR if is_too_far else None
