"""Which rebalances a delayed topic has had, from what its workers wrote into `delayedtopics.events`. Pure.

A rebalance is a generation of the consumer group (with the newer protocol an epoch) in which at least one partition of the delayed topic
went from one worker to another, or got its first one. Each worker tells what it was assigned, and in which generation; so what moved is
known whatever the clocks say, and in whatever order workers of one generation write.
"""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeVar

from delayed_topics_core.events import MAX_PLACES, Event, parse_places
from delayed_topics_core.offsets import TopicPartitionKey

RebalanceReason = Literal["WorkerJoined", "WorkerLeft", "WorkerLost", "TopicChanged", "SpecChanged", "Unknown"]

OPEN: Final = 3
"""Generations that may still be told of, by workers that write late."""
RESTARTED_MS: Final = 60_000
"""A generation that is lower than one that was told of so long before belongs to a group that was made again."""
MAX_LIVES: Final = 1_000
"""Workers whose start, end or template is remembered: the latest."""
MAX_TEMPLATE: Final = 63
"""Characters of a label's value."""
MAX_GENERATION: Final = 2**31 - 1
"""Kafka counts with 32 bits."""
MAX_COUNT: Final = 2**53 - 1
"""Of records. Anybody may have written an event, and a status with a larger number is refused as a whole, or read as another one."""
PLACE_BYTES: Final = 200
"""Of a partition in a dictionary, about."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """`started_at_ms`: when the first of the moved partitions stopped being served. Of a worker that was lost nobody knows when, so it is
    taken to be its session timeout before others got its partitions, if the protocol lets a worker say what that is.
    `ended_at_ms`: when all of them were served again; None: not yet.

    `in_flight_records`: see `in_flight` of an event, of all who gave something up for it; None: not all have told, as a worker that was
    killed never does.
    `delayed_records`: those that were due before their partition was served again, moved or not; None: not all of them have come out yet.
    `affected_workers`: those that gave or got one of them; `unaffected_workers`: others that have partitions.
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
    """What a worker told when a partition was taken from it. `at_ms`: None: it had been lost. `in_flight`: of all that it gave up then, at
    one of them, and 0 at the others; None: it did not tell."""

    at_ms: int | None
    in_flight: int | None


@dataclass
class _Generation:
    """`owners`: of the partitions that were assigned in it. `given_up`: what these told when they gave them up.
    `told_at_ms`, `served_at_ms`: by worker, when it was assigned them, and when it served them. `delayed`: by worker, the records that were
    due before that, when they have come out. `restarted`: workers that were assigned anew what they had in it: what they did first
    stands. `joined`: other workers that were assigned something for the first time since they started, and what that is called: it is
    their return with another template, or not. `left`: the same of those that have stopped since, in peace."""

    number: int
    owners: dict[TopicPartitionKey, str] = field(default_factory=dict)
    given_up: dict[TopicPartitionKey, _GivenUp] = field(default_factory=dict)
    told_at_ms: dict[str, int] = field(default_factory=dict)
    served_at_ms: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    joined: dict[str, RebalanceReason] = field(default_factory=dict)
    left: dict[str, RebalanceReason] = field(default_factory=dict)
    session_ms: int = 0

    @property
    def at_ms(self) -> int:
        return min(self.told_at_ms.values())

    def serve(self, event: Event) -> None:
        """A worker serves what it was assigned; after that it has caught up with it."""
        member, delayed = event.member, _count(event.detail.get("delayed"))
        if event.detail.get("change") == "assigned":
            if member not in self.restarted or member not in self.served_at_ms:
                self.served_at_ms[member] = event.at_ms
        elif delayed is not None and (member not in self.restarted or member not in self.delayed):
            self.delayed[member] = delayed


class Rebalances:
    """Of one delayed topic. `keep`: the latest that are remembered."""

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
        """An event of another kind changes nothing."""
        detail = event.detail
        match event.kind:
            case "worker-started":
                self._start(event)
            case "worker-stopped":
                _note(self._left_since(event.member, self._open), event.member, "WorkerLeft", MAX_LIVES)
            case "assignment" if detail.get("repeated"):
                _note(self._templates, event.member, _template(event), MAX_LIVES)
                for place in parse_places(detail.get("places")):
                    if self._owner(place, self._open) is None:
                        _note(self._owners, place, event.member, MAX_PLACES)
            case "assignment":
                self._assigned(event)
            case "rebalance" if detail.get("change") in ("assigned", "caught-up"):
                found = next((g for g in self._open if g.number == detail.get("generation")), None)
                if found is not None and event.member in found.told_at_ms:
                    found.serve(event)
            case "rebalance" if detail.get("change") in ("revoked", "lost"):
                at_ms = event.at_ms if detail["change"] == "revoked" else None
                told = _count(detail.get("in_flight"))
                for place in parse_places(detail.get("places")):
                    if self._give_up(place, event.member, _GivenUp(at_ms, told)):
                        told = None if told is None else 0

    @property
    def latest(self) -> tuple[Rebalance, ...]:
        """In the order of their generations, oldest first."""
        of_open = (self._rebalance(number) for number in range(len(self._open)))
        return (*self._ended, *(found for found in of_open if found is not None))[-self._keep :]

    @property
    def bytes(self) -> int:
        """About how much memory it takes."""
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
        _note(self._started, event.member, why, MAX_LIVES)
        _note(self._templates, event.member, _template(event), MAX_LIVES)

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
                return  # nobody knows any more who had them
            found = _Generation(number)
            self._open = sorted([*self._open, found], key=lambda g: g.number)
        found.told_at_ms.setdefault(event.member, event.at_ms)
        found.left.pop(event.member, None)
        _note(self._templates, event.member, _template(event), MAX_LIVES)
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
            _note(self._owners, place, owner, MAX_PLACES)
            self._given_up.pop(place, None)
        for place, given_up in oldest.given_up.items():
            _note(self._given_up, place, given_up, MAX_PLACES)
        for member in oldest.told_at_ms:
            self._left.pop(member, None)
        for member, why in oldest.left.items():
            _note(self._left, member, why, MAX_LIVES)

    def _owner(self, place: TopicPartitionKey, generations: list[_Generation]) -> str | None:
        """The last that it had in these, or before them."""
        return next((g.owners[place] for g in reversed(generations) if place in g.owners), self._owners.get(place))

    def _give_up(self, place: TopicPartitionKey, member: str, told: _GivenUp) -> bool:
        """Returns whether it had it."""
        latest = next((g for g in reversed(self._open) if g.owners.get(place) == member), None)
        if latest is None and self._owners.get(place) != member:
            return False
        _note(self._given_up if latest is None else latest.given_up, place, told, MAX_PLACES)
        return True

    def _gave_up(self, place: TopicPartitionKey, generations: list[_Generation]) -> _GivenUp | None:
        """What its last owner in these, or before them, told."""
        latest = next((g for g in reversed(generations) if place in g.owners), None)
        return (self._given_up if latest is None else latest.given_up).get(place)

    def _rebalance(self, index: int) -> Rebalance | None:
        this, earlier = self._open[index], self._open[:index]
        had = {*self._owners.values(), *(member for g in earlier for member in g.told_at_ms)}
        # Of a partition without a known owner, one whose start was not told either had it before: Kafka has removed those events.
        fresh = {*this.joined, *had}
        moved = {
            place: (former, owner)
            for place, owner in this.owners.items()
            if (former := self._owner(place, earlier)) != owner and (former is not None or owner in fresh)
        }
        if not moved:
            return None
        receivers = {owner for _, owner in moved.values()}
        affected = receivers | {former for former, _ in moved.values() if former is not None}
        everybody = had | this.told_at_ms.keys()
        given_up = [told for place in this.owners if (told := self._gave_up(place, earlier)) is not None]
        of_moved = [self._gave_up(place, earlier) for place, (former, _) in moved.items() if former is not None]
        began = [told.at_ms for told in of_moved if told is not None and told.at_ms is not None]
        in_flight = [told.in_flight for told in given_up if told.in_flight is not None]
        all_told = None not in of_moved and len(in_flight) == len(given_up)
        lost = len(began) < len(of_moved)
        served = [this.served_at_ms[member] for member in receivers if member in this.served_at_ms]
        over = len(served) == len(receivers) or index < len(self._open) - 1
        return Rebalance(
            generation=this.number,
            reason="WorkerLost" if lost else self._reason(moved, this, earlier),
            started_at_ms=min([this.at_ms - (this.session_ms if lost else 0), *began]),
            ended_at_ms=max([this.at_ms, *served]) if over else None,
            moved_partitions=len(moved),
            affected_workers=len(affected),
            unaffected_workers=len(everybody - affected),
            in_flight_records=_count(sum(in_flight)) if all_told else None,
            delayed_records=_count(sum(this.delayed.values()))
            if this.delayed.keys() >= this.told_at_ms.keys()
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
        """Those that stopped after the last of these, or what was before them, in which it was assigned something."""
        latest = _latest(member, generations)
        return self._left if latest is None else latest.left


def _count(told: object) -> int | None:
    """None: it is none that can be."""
    return told if type(told) is int and 0 <= told <= MAX_COUNT else None


def _template(event: Event) -> str:
    """Of the worker's pod; empty: it does not tell one, as outside Kubernetes."""
    template = event.detail.get("template")
    return template if isinstance(template, str) and len(template) <= MAX_TEMPLATE else ""


def _latest(member: str, generations: list[_Generation]) -> _Generation | None:
    """In which it was assigned something."""
    return next((g for g in reversed(generations) if member in g.told_at_ms), None)


def _note(known: dict[K, V], key: K, value: V, most: int) -> None:
    """The latest are kept."""
    known.pop(key, None)
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
