"""Derives the rebalances of a delayed topic from the events that its workers wrote into `delayedtopics.events`.

A rebalance is a generation of the consumer group (with the newer protocol, an epoch) in which at least one partition of the delayed topic
moved from one worker to another, or got its first worker. Each worker reports which partitions it was assigned in which generation. So the
moves are known whatever the clocks say, and in whatever order the workers of a generation write.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeVar

from delayed_topics_core.events import MAX_PLACES, Event, parse_places
from delayed_topics_core.offsets import TopicPartitionKey

RebalanceReason = Literal["WorkerJoined", "WorkerLeft", "WorkerLost", "TopicChanged", "SpecChanged", "Unknown"]

OPEN: Final = 3
"""The number of latest generations that workers may still report on, because some write late."""
RESTARTED_MS: Final = 60_000
"""If a generation is lower than one that was reported more than this earlier, the group was created again."""
MAX_LIVES: Final = 1_000
"""The number of workers, the latest ones, whose start, end or template is remembered."""
MAX_TEMPLATE: Final = 63
"""The maximum length of the value of a Kubernetes label."""
MAX_GENERATION: Final = 2**31 - 1
"""Kafka counts generations with 32 bits."""
MAX_COUNT: Final = 2**53 - 1
"""The highest number of records that counts as valid. Anybody may have written an event, and a status with a larger number is refused as a
whole, or read as another number."""
PLACE_BYTES: Final = 200
"""About the size of a partition in a dictionary."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """A rebalance of one delayed topic.

    `started_at_ms` is when the first of the moved partitions was no longer served. If a worker was lost, nobody knows when that was. Then
    the time is its session timeout before others got its partitions, if the protocol lets a worker know that timeout.
    `ended_at_ms` is when all moved partitions were served again. None: not yet.

    `in_flight_records` is the sum of `in_flight` (see Event) of all workers that gave up partitions for this rebalance. None: some have not
    reported it; a worker that was killed never does.
    `delayed_records` were due before their partition was served again, whether it moved or not. None: some have not come out yet.
    `affected_workers` gave up or received a moved partition. `unaffected_workers` are the others that have partitions.
    """

    generation: int
    reason: RebalanceReason
    started_at_ms: int
    ended_at_ms: int | None
    moved_partitions: int
    affected_workers: int
    unaffected_workers: int
    in_flight_records: int | None = None
    delayed_records: int | None = None


class _GivenUp(NamedTuple):
    """A worker's report that it gave up a partition. `at_ms` is None if the partition was lost. `in_flight` counts the copies in flight of
    all partitions that the worker gave up together: one of them has the sum, the others have 0. None: the worker did not report it."""

    at_ms: int | None
    in_flight: int | None


@dataclass
class _Generation:
    """A generation of the group.

    owners          the worker of each partition that was assigned in this generation
    given_up        by partition: the owner's report that it gave the partition up
    assigned_at_ms  by worker: when its partitions were assigned to it
    served_at_ms    by worker: when it began to serve them
    delayed         by worker: how many records were due before that, reported when all of them have come out
    restarted       workers that were assigned again what they had in this generation; their first reports stay valid
    joined          other workers that were assigned something for the first time since they started, with the reason: WorkerJoined, or
                    SpecChanged if they came back with another template
    left            workers that have shut down since, with the reason: WorkerLeft or SpecChanged
    """

    number: int
    owners: dict[TopicPartitionKey, str] = field(default_factory=dict)
    given_up: dict[TopicPartitionKey, _GivenUp] = field(default_factory=dict)
    assigned_at_ms: dict[str, int] = field(default_factory=dict)
    served_at_ms: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    joined: dict[str, RebalanceReason] = field(default_factory=dict)
    left: dict[str, RebalanceReason] = field(default_factory=dict)
    session_ms: int = 0

    @property
    def at_ms(self) -> int:
        return min(self.assigned_at_ms.values())

    def serve(self, event: Event) -> None:
        """Records that a worker serves its partitions, or that it has caught up."""
        member, delayed = event.member, _count(event.detail.get("delayed"))
        if event.detail.get("change") == "assigned":
            if member not in self.restarted or member not in self.served_at_ms:
                self.served_at_ms[member] = event.at_ms
        elif delayed is not None and (member not in self.restarted or member not in self.delayed):
            self.delayed[member] = delayed


class Rebalances:
    """The rebalances of one delayed topic. It remembers the latest `keep` of them."""

    def __init__(self, *, keep: int) -> None:
        self._keep = keep
        self._group = ""
        self._owners: dict[TopicPartitionKey, str] = {}
        self._open: list[_Generation] = []
        self._ended: list[Rebalance] = []
        self._given_up: dict[TopicPartitionKey, _GivenUp] = {}
        self._left: dict[str, RebalanceReason] = {}
        self._started: dict[str, RebalanceReason] = {}
        self._templates: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Takes an event into account. Events of other kinds change nothing."""
        detail = event.detail
        match event.kind:
            case "worker-started":
                self._start(event)
            case "worker-stopped":
                _remember(self._left_since(event.member, self._open), event.member, "WorkerLeft", MAX_LIVES)
            case "assignment" if detail.get("repeated"):
                _remember(self._templates, event.member, _template(event), MAX_LIVES)
                for place in parse_places(detail.get("places")):
                    if self._owner(place, self._open) is None:
                        _remember(self._owners, place, event.member, MAX_PLACES)
            case "assignment":
                self._assigned(event)
            case "rebalance" if detail.get("change") in ("assigned", "caught-up"):
                found = next((g for g in self._open if g.number == detail.get("generation")), None)
                if found is not None and event.member in found.assigned_at_ms:
                    found.serve(event)
            case "rebalance" if detail.get("change") in ("revoked", "lost"):
                at_ms = event.at_ms if detail["change"] == "revoked" else None
                in_flight = _count(detail.get("in_flight"))
                for place in parse_places(detail.get("places")):
                    if self._give_up(place, event.member, _GivenUp(at_ms, in_flight)):
                        in_flight = None if in_flight is None else 0

    @property
    def latest(self) -> tuple[Rebalance, ...]:
        """The rebalances in the order of their generations, oldest first."""
        of_open = (self._rebalance(number) for number in range(len(self._open)))
        return (*self._ended, *(found for found in of_open if found is not None))[-self._keep :]

    @property
    def bytes(self) -> int:
        """About how much memory this object takes."""
        open_places = sum(len(g.owners) + len(g.given_up) for g in self._open)
        places = len(self._owners) + len(self._given_up) + open_places
        lives = len(self._started) + len(self._left) + len(self._templates)
        return PLACE_BYTES * (places + len(self._ended) + lives)

    def _start(self, event: Event) -> None:
        why = self._started.get(event.member, "WorkerJoined")
        if self._templates.get(event.member) not in (None, _template(event)):
            why = "SpecChanged"
            if event.member in (left := self._left_since(event.member, self._open)):
                left[event.member] = why
        _remember(self._started, event.member, why, MAX_LIVES)
        _remember(self._templates, event.member, _template(event), MAX_LIVES)

    def _assigned(self, event: Event) -> None:
        group, number = event.detail.get("group"), event.detail.get("generation")
        places = parse_places(event.detail.get("places"))
        if type(number) is not int or not 0 <= number <= MAX_GENERATION or not places:
            return
        newest = self._open[-1] if self._open else None
        restarted = newest is not None and number < newest.number and event.at_ms > newest.at_ms + RESTARTED_MS
        if group != self._group or restarted:
            self._group = str(group)
            while self._open:
                self._end_oldest()
        found = next((g for g in self._open if g.number == number), None)
        if found is None:
            if len(self._open) == OPEN and number < self._open[0].number:
                return  # it is no longer known who had these partitions before
            found = _Generation(number)
            self._open = sorted([*self._open, found], key=lambda g: g.number)
        found.assigned_at_ms.setdefault(event.member, event.at_ms)
        found.left.pop(event.member, None)
        _remember(self._templates, event.member, _template(event), MAX_LIVES)
        if all(found.owners.get(place) == event.member for place in places):
            found.restarted.add(event.member)
        else:
            found.restarted.discard(event.member)
        if event.member in self._started:
            started = self._started.pop(event.member)
            if event.member not in found.restarted:
                found.joined[event.member] = started
        session_ms = event.detail.get("session_timeout_ms")
        found.session_ms = session_ms if type(session_ms) is int and 0 <= session_ms <= found.at_ms else 0
        for place in places[: MAX_PLACES - len(found.owners)]:
            found.owners[place] = event.member
            found.given_up.pop(place, None)
        while len(self._open) > OPEN:
            self._end_oldest()

    def _end_oldest(self) -> None:
        ended = self._rebalance(0)
        oldest = self._open.pop(0)
        if ended is not None:
            self._ended = [*self._ended, ended][-self._keep :]
        for place, owner in oldest.owners.items():
            _remember(self._owners, place, owner, MAX_PLACES)
            self._given_up.pop(place, None)
        for place, given_up in oldest.given_up.items():
            _remember(self._given_up, place, given_up, MAX_PLACES)
        for member in oldest.assigned_at_ms:
            self._left.pop(member, None)
        for member, why in oldest.left.items():
            _remember(self._left, member, why, MAX_LIVES)

    def _owner(self, place: TopicPartitionKey, generations: list[_Generation]) -> str | None:
        """Returns the last owner of the partition in these generations, or before them."""
        return next((g.owners[place] for g in reversed(generations) if place in g.owners), self._owners.get(place))

    def _give_up(self, place: TopicPartitionKey, member: str, report: _GivenUp) -> bool:
        """Returns whether the member had the partition."""
        latest = next((g for g in reversed(self._open) if g.owners.get(place) == member), None)
        if latest is None and self._owners.get(place) != member:
            return False
        _remember(self._given_up if latest is None else latest.given_up, place, report, MAX_PLACES)
        return True

    def _gave_up(self, place: TopicPartitionKey, generations: list[_Generation]) -> _GivenUp | None:
        """Returns the report of the partition's last owner, in these generations or before them, that it gave the partition up."""
        latest = next((g for g in reversed(generations) if place in g.owners), None)
        return (self._given_up if latest is None else latest.given_up).get(place)

    def _rebalance(self, index: int) -> Rebalance | None:
        this, earlier = self._open[index], self._open[:index]
        earlier_workers = {*self._owners.values(), *(member for g in earlier for member in g.assigned_at_ms)}
        # If neither a partition's former owner nor the start of its worker is known, this worker had it before: Kafka removed the events.
        known = {*this.joined, *earlier_workers}
        moved = {
            place: (former, owner)
            for place, owner in this.owners.items()
            if (former := self._owner(place, earlier)) != owner and (former is not None or owner in known)
        }
        if not moved:
            return None
        receivers = {owner for _, owner in moved.values()}
        affected = receivers | {former for former, _ in moved.values() if former is not None}
        all_workers = earlier_workers | this.assigned_at_ms.keys()
        given_up = [report for place in this.owners if (report := self._gave_up(place, earlier)) is not None]
        of_moved = [self._gave_up(place, earlier) for place, (former, _) in moved.items() if former is not None]
        revoked_at_ms = [report.at_ms for report in of_moved if report is not None and report.at_ms is not None]
        in_flight = [report.in_flight for report in given_up if report.in_flight is not None]
        all_reported = None not in of_moved and len(in_flight) == len(given_up)
        lost = len(revoked_at_ms) < len(of_moved)
        served = [this.served_at_ms[member] for member in receivers if member in this.served_at_ms]
        over = len(served) == len(receivers) or index < len(self._open) - 1
        return Rebalance(
            generation=this.number,
            reason="WorkerLost" if lost else self._reason(moved, this, earlier),
            started_at_ms=min([this.at_ms - (this.session_ms if lost else 0), *revoked_at_ms]),
            ended_at_ms=max([this.at_ms, *served]) if over else None,
            moved_partitions=len(moved),
            affected_workers=len(affected),
            unaffected_workers=len(all_workers - affected),
            in_flight_records=_count(sum(in_flight)) if all_reported else None,
            delayed_records=_count(sum(this.delayed.values()))
            if this.delayed.keys() >= this.assigned_at_ms.keys()
            else None,
        )

    def _reason(
        self,
        moved: dict[TopicPartitionKey, tuple[str | None, str]],
        this: _Generation,
        earlier: list[_Generation],
    ) -> RebalanceReason:
        of_formers = (
            self._left_since(former, earlier).get(former) for former, _ in moved.values() if former is not None
        )
        found = {*of_formers, *(this.joined.get(owner) for _, owner in moved.values())}
        causes: tuple[RebalanceReason, ...] = ("WorkerLeft", "WorkerJoined", "SpecChanged")
        if (cause := next((cause for cause in causes if cause in found), None)) is not None:
            return cause
        if "SpecChanged" in this.joined.values():
            return "SpecChanged"
        return "TopicChanged" if any(former is None for former, _ in moved.values()) else "Unknown"

    def _left_since(self, member: str, generations: list[_Generation]) -> dict[str, RebalanceReason]:
        """Returns the workers that have shut down since the last generation in which `member` was assigned something: one of `generations`,
        or one before them."""
        latest = _latest(member, generations)
        return self._left if latest is None else latest.left


def _count(reported: object) -> int | None:
    """Returns a reported number of records, or None if it can't be one."""
    return reported if type(reported) is int and 0 <= reported <= MAX_COUNT else None


def _template(event: Event) -> str:
    """Returns the template of the worker's pod, or "" if the event has none, as outside Kubernetes."""
    template = event.detail.get("template")
    return template if isinstance(template, str) and len(template) <= MAX_TEMPLATE else ""


def _latest(member: str, generations: list[_Generation]) -> _Generation | None:
    """Returns the latest of these generations in which the member was assigned something."""
    return next((g for g in reversed(generations) if member in g.assigned_at_ms), None)


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Adds an entry, and keeps only the latest `most` entries."""
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
