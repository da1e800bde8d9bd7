"""Which records are cancelled: what control topics say, for how long, and what is answered there."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
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
from delayed_topics_worker.happenings import Changed
from delayed_topics_worker.served import Served, ServedTopics
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unserved import what_is_wrong

MOST_REQUESTS: Final = 100_000
"""In force for all delayed topics of a worker: some 50 MB. Each has its part of them. Those beyond are refused, which is an alarm."""
MOST_ANSWERS: Final = 10_000
"""That wait to be written for one delayed topic, while nobody has its first front partition. Further ones are not written."""
MOST_WITHDRAWN: Final = 1_000
"""That are remembered for one delayed topic, for the moment until all workers have read it."""
MOST_AT_ONCE: Final = 1_000
"""Answers that are written at a time, twice a second."""
POLL_SECONDS: Final = 0.2
NOT_FOUND_SECONDS: Final = 60
"""After the longest wait of a record."""
UNREAD_SECONDS: Final = 10.0


class Request(NamedTuple):
    """What a control topic says of an id: the last request, what was answered to it, and since when that is, by the broker's clock."""

    control: Control
    answer: ControlKind | None
    at_ms: int


@dataclass
class Requests:
    """Of one delayed topic, by id.

    `in_force`: no record of these is released. `answers`: what is to be written. `unheard`: those in force that nobody has answered, and
    since when. `withdrawn`: those that were withdrawn lately. Every worker of the topic knows them, and whoever has front partition 0
    answers. The oldest come first.
    """

    in_force: dict[bytes, Request] = field(default_factory=dict)
    answers: dict[bytes, Control | None] = field(default_factory=dict)
    unheard: dict[bytes, int] = field(default_factory=dict)
    withdrawn: dict[bytes, None] = field(default_factory=dict)

    def take(self, read: ControlRead, *, most: int, refused: ControlKind | None = None) -> bool:
        """Whether it is in force from now on. `most`: so many may be. `refused`: why a request isn't, whatever it says."""
        self._hear(read.id)
        before = self.in_force.pop(read.id, None)
        has_room = before is not None or len(self.in_force) < most
        control = read.control
        if not read.is_understood:
            self._answer(read.id, Control(ControlKind.NOT_UNDERSTOOD))
        elif control is None:
            self._withdraw(read.id)
        elif control.is_request:
            self._take_request(read, control, before, has_room=has_room, refused=refused)
        elif read.id in self.withdrawn:
            self._answer(read.id, None)  # a worker that had not read this has answered what was asked for before
        elif before is not None and before.control.deliver_at_ms != control.deliver_at_ms:
            self.in_force[read.id] = before  # the same, and something else was asked for since
            self._answer(read.id, before.control)
        elif control.is_in_force and has_room:
            asked = ControlKind.CANCEL if control.deliver_at_ms is None else ControlKind.DELIVER_AT
            self.in_force[read.id] = Request(control.answered(asked), control.kind, read.at_ms)
        return read.id in self.in_force

    def _take_request(
        self,
        read: ControlRead,
        control: Control,
        before: Request | None,
        *,
        has_room: bool,
        refused: ControlKind | None,
    ) -> None:
        self.withdrawn.pop(read.id, None)
        if refused is None and not has_room:
            refused = ControlKind.NO_ROOM
        if refused is not None:
            self._answer(read.id, control.answered(refused))
            return
        known = before.answer if before is not None and before.control == control else None
        known = None if known is ControlKind.NOT_FOUND else known
        self.in_force[read.id] = Request(control, known, read.at_ms)
        if known is None:
            self.unheard[read.id] = read.at_ms
        else:
            self._answer(read.id, control.answered(known))

    def _withdraw(self, of_id: bytes) -> None:
        self.withdrawn[of_id] = None
        if len(self.withdrawn) > MOST_WITHDRAWN:
            del self.withdrawn[next(iter(self.withdrawn))]

    def _answer(self, of_id: bytes, answer: Control | None) -> None:
        if len(self.answers) < MOST_ANSWERS:
            self.answers[of_id] = answer

    def _hear(self, of_id: bytes) -> None:
        self.answers.pop(of_id, None)
        self.unheard.pop(of_id, None)

    def take_answers(self, *, not_found_before_ms: int) -> list[tuple[bytes, Control | None]]:
        """What is to be written next; `NOT_FOUND` to those of which nothing was heard since; None: it is withdrawn."""
        unheard = takewhile(lambda of_id: self.unheard[of_id] < not_found_before_ms, self.unheard)
        not_found = ((of_id, self.in_force[of_id].control.answered(ControlKind.NOT_FOUND)) for of_id in unheard)
        answers = list(islice(chain(self.answers.items(), not_found), MOST_AT_ONCE))
        for of_id, _ in answers:
            self._hear(of_id)
        return answers

    def expire(self, before_ms: int) -> list[bytes]:
        """The ids of those that are in force no longer."""
        over = list(takewhile(lambda of_id: self.in_force[of_id].at_ms < before_ms, self.in_force))
        for of_id in over:
            del self.in_force[of_id]
            self._hear(of_id)
        return over


class ControlTopic(NamedTuple):
    """`life`: counts how often another topic has taken the name."""

    name: str
    life: int


class ControlWatch:
    """Reads control topics on a thread of its own. What was read waits for `take`."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self.problems: dict[str, str] = {}
        """Why a topic can't be read."""
        self._connection = connection
        self._client_id = client_id
        self._reader: ControlReader | None = None
        self._thread = Repeated("control", self._turn, interval_seconds=0.01)
        self._wanted: frozenset[ControlTopic] = frozenset()
        self._followed: frozenset[ControlTopic] = frozenset()
        self._known: frozenset[ControlTopic] = frozenset()
        self._reads: deque[tuple[frozenset[ControlTopic], list[ControlRead]]] = deque()

    def look(self, topics: Collection[ControlTopic]) -> None:
        """Read these, each from its beginning. Without any there is no client and no thread."""
        before, self._wanted = self._wanted, frozenset(topics)
        if self._wanted and not before and not self._thread.started:
            self._thread.start()

    def take(self) -> tuple[frozenset[ControlTopic], list[ControlRead]]:
        """Topics that were read to the end once, and what has been read since, of all topics that are wanted, in the order of each."""
        known = self._known  # before what is read, which so has all of them
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
            # one that was made again is read from its beginning
            self._reader.follow([topic.name for topic in wanted & self._followed])
            self._reader.follow([topic.name for topic in wanted])
            self._followed = wanted
        if reads := self._reader.poll(POLL_SECONDS):
            self._reads.append((wanted, reads))
        self.problems = {topic: str(problem) for topic, problem in self._reader.problems.items()}
        self._known = frozenset(topic for topic in wanted if topic.name in self._reader.read)


class Controls:
    """Of all delayed topics of a worker. Belongs to the worker's thread. A control topic that was read once is read on, until another one
    has its name: what was asked for in the one before is nothing to records of the next."""

    def __init__(self, connection: Connection, served: ServedTopics, *, member: str) -> None:
        self._connection = connection
        self._served = served
        self._client_id = f"{member}-control"
        self._watch = ControlWatch(connection, client_id=self._client_id)
        self._requests: dict[str, Requests] = {}
        self._topics: dict[str, ControlTopic] = {}
        self._ids: dict[str, str] = {}
        self._wanted_at: dict[str, float] = {}
        self._outbox: Outbox | None = None

    def follow(self, engine: Engine) -> None:
        """Pass on what was read since."""
        for served in self._served:
            self._begin(engine, served)
        if not self._requests:
            return
        self._watch.look([self._topics[topic] for topic in self._requests])
        known, reads = self._watch.take()
        by_topic: dict[str, list[ControlRead]] = {}
        for read in reads:
            by_topic.setdefault(read.topic, []).append(read)
        for served in self._served:
            if of_topic := by_topic.get(served.names.control):
                self._take(engine, served, of_topic)
            served.is_control_known = self._topics.get(served.topic) in known

    def _begin(self, engine: Engine, served: Served) -> None:
        """Have its control topic read, if it has one that isn't; and anew if another one has its name."""
        noted = served.noted_id(served.names.control)
        before = self._ids.get(served.topic)
        if noted is not None:
            self._ids[served.topic] = noted
        is_read = served.topic in self._requests
        is_another = is_read and None not in (noted, before) and noted != before
        if is_another:
            engine.withdraw(served.number, None)
        if is_another or (served.has_control_topic and not is_read):
            self._requests[served.topic] = Requests()
            self._wanted_at[served.topic] = boot_seconds()
            life = self._topics[served.topic].life + 1 if served.topic in self._topics else 0
            self._topics[served.topic] = ControlTopic(served.names.control, life)

    def _take(self, engine: Engine, served: Served, reads: list[ControlRead]) -> None:
        requests, room = self._requests[served.topic], self._room(served)
        retention_ms = 1000 * _retention_seconds(served.layout) if served.layout is not None else None
        in_force: dict[bytes, bool] = {}
        for read in reads:
            if retention_ms is not None:  # by the time of the topic: all workers count alike, however late they read it
                in_force.update(dict.fromkeys(requests.expire(read.at_ms - retention_ms), False))
            in_force[read.id] = requests.take(read, most=room, refused=_refused(served, read))
        engine.withdraw(served.number, [of_id for of_id, holds in in_force.items() if not holds])
        wanted = [(of_id, requests.in_force[of_id].control.deliver_at_ms) for of_id, holds in in_force.items() if holds]
        for (of_id, _), was_released in zip(wanted, engine.want(served.number, wanted), strict=True):
            request = requests.in_force[of_id]
            if was_released and request.answer is None and served.has_control_topic:
                self._write(served, of_id, request.control.answered(ControlKind.TOO_LATE))

    def on_changed(self, happening: Changed) -> None:
        served = self._served.numbered(happening.number)
        request = self._requests[served.topic].in_force.get(happening.id)
        kind = ControlKind(happening.outcome)
        if request is None or request.control.deliver_at_ms != happening.deliver_at_ms or request.answer is kind:
            return
        self._write(served, happening.id, request.control.answered(kind))

    def answer(self, engine: Engine, assignment: Assignment, now_ms: int) -> None:
        """Write what is to be said, and forget what is over. `now_ms`: the broker's time."""
        for served in self._served:
            requests = self._requests.get(served.topic)
            if requests is None or served.layout is None or not now_ms:
                continue
            if over := requests.expire(now_ms - 1000 * _retention_seconds(served.layout)):
                engine.withdraw(served.number, over)
            if (served.names.front, 0) in assignment.owned and served.has_control_topic:
                before_ms = now_ms - 1000 * (_longest_wait_seconds(served.layout) + NOT_FOUND_SECONDS)
                for of_id, answer in requests.take_answers(not_found_before_ms=before_ms):
                    self._write(served, of_id, answer)

    @property
    def _share(self) -> int:
        """Requests of each delayed topic, so that none takes the room of others."""
        return MOST_REQUESTS // max(1, sum(served.has_control_topic for served in self._served))

    def _room(self, served: Served) -> int:
        """For requests of a delayed topic. Those that were there before this worker were accepted, perhaps when the shares were larger, and
        have all the room that there is."""
        if served.is_control_known:
            return self._share
        return MOST_REQUESTS - sum(len(r.in_force) for topic, r in self._requests.items() if topic != served.topic)

    def in_force(self) -> dict[str, int]:
        """How many requests, by front topic."""
        return {topic: len(requests.in_force) for topic, requests in self._requests.items()}

    def alarms(self, snapshot: TopicsSnapshot) -> list[Alarm]:
        raised: list[Alarm] = []
        for served in self._served:
            if not served.has_control_topic or served.topic not in self._requests:
                continue
            if problem := self._problem(served, snapshot):
                raised.append(of_unreadable_control(served, problem))
            if (count := len(self._requests[served.topic].in_force)) >= self._share:
                raised.append(of_many_control_requests(served, count))
        return raised

    def _problem(self, served: Served, snapshot: TopicsSnapshot) -> str | None:
        """Returns why the control topic can't be read. The client library does not report that a topic is missing."""
        name = served.names.control
        if (wrong := what_is_wrong(served, name, snapshot)) is not None:
            return wrong[1]
        if (problem := self._watch.problems.get(name)) is not None:
            return problem
        if served.is_control_known or boot_seconds() - self._wanted_at[served.topic] < UNREAD_SECONDS:
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
    """Of the control topic."""
    return least_retention_seconds(layout.layout.waits_seconds(layout.max_delay_seconds)) + layout.outage_budget_seconds


def _refused(served: Served, read: ControlRead) -> ControlKind | None:
    """Why a record can't come out at the time that is asked for."""
    layout, control = served.layout, read.control
    if layout is None or control is None or control.deliver_at_ms is None:
        return None
    if not layout.layout.ladder_seconds:
        return ControlKind.NO_LADDER
    is_too_far = control.deliver_at_ms > read.at_ms + 1000 * layout.max_delay_seconds
    return ControlKind.TOO_FAR if is_too_far else None
