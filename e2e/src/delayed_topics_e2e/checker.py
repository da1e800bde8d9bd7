"""The checker: joins front, ready and dead-letter topics by root, and counts what became of every record.

It does not trust any time that a worker reports. A record is early if the broker appended its copy to the ready topic
before the broker's append time of its root plus the delay that its headers request.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from statistics import quantiles
from typing import Any

from delayed_topics_core import headers as own
from delayed_topics_core.names import TopicNames

from delayed_topics_e2e.plain import Kafka, Record, TopicReader
from delayed_topics_e2e.waiting import until

__all__ = ["MAX_REPEATED", "Account", "Checker", "delay_by_list", "judge", "unexplained_repeats"]

MAX_REPEATED = 5_000
"""How many records of one partition one crash may repeat."""
BEFORE_MS, AFTER_MS = 3_000, 5_000
"""The time around a kill in which copies may be repeated. Workers commit ten times a second, so earlier copies are committed. A pod that
is deleted without a grace period still runs for some seconds."""

DelayOf = Callable[[Record], int]
"""Returns how many seconds a record of the front topic has to wait."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Counts over all records of the front topic. `lost`: records without an outcome so far. `doubled`: copies beyond the first."""

    produced: int
    released: int
    dead: int
    early: int
    lost: int
    doubled: int
    changed: int
    disordered: int
    disorder: tuple[str, ...] = ()
    lateness_ms: tuple[int, ...] = field(repr=False, default=())

    @property
    def clean(self) -> bool:
        return not (self.early or self.lost or self.doubled or self.changed or self.disordered)

    def lateness(self) -> str:
        """The time from due time to append time in the ready topic, by the broker's clock, as text."""
        if len(self.lateness_ms) < 2:
            return f"lateness {list(self.lateness_ms)} ms"
        cuts = quantiles(self.lateness_ms, n=100, method="inclusive")
        return f"lateness p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, most {max(self.lateness_ms)} ms"


def delay_by_list(delay_seconds: Sequence[int]) -> DelayOf:
    """The rule of the delay list: the level, counted from 1, selects the entry, or else the attempt does; the last entry repeats."""

    def delay(record: Record) -> int:
        level = record.header(own.DELAY_LEVEL)
        entry = int(level) - 1 if level is not None else int(record.header(own.ATTEMPT) or 0)
        return delay_seconds[min(entry, len(delay_seconds) - 1)]

    return delay


def judge(*, front: Sequence[Record], ready: Sequence[Record], dead: Sequence[Record], delay_of: DelayOf) -> Account:
    """Counts what became of each record of `front`. Outcomes whose root is not in `front` are not counted."""
    roots = {(r.partition, r.offset): r for r in front}
    copies = [(roots[root], r) for r in ready if (root := _root(r)) in roots]
    letters = [root for r in dead if (root := _root(r)) in roots and _source(r)[:1] != "r"]
    outcomes = Counter([(root.partition, root.offset) for root, _ in copies] + letters)
    disorder = _disordered(copies, delay_of)
    late = [r.timestamp_ms - root.timestamp_ms - 1000 * delay_of(root) for root, r in copies]
    return Account(
        produced=len(front),
        released=len(copies),
        dead=len(letters),
        early=sum(1 for ms in late if ms < 0),
        lost=sum(1 for root in roots if root not in outcomes),
        doubled=sum(n - 1 for n in outcomes.values()),
        changed=sum(1 for root, r in copies if _content(root) != _content(r)),
        disordered=len(disorder),
        disorder=tuple(disorder[:3]),
        lateness_ms=tuple(late),
    )


def unexplained_repeats(
    *, front: Sequence[Record], ready: Sequence[Record], kills_ms: Sequence[int], most: int = MAX_REPEATED
) -> Counter[str]:
    """Counts copies beyond the first that no kill explains, by the topic and partition of their origin.

    Copies with different origins are those of a record that hopped twice. Their time is the append time of the record, because it
    hopped right after that.
    """
    appended_ms = {(r.partition, r.offset): r.timestamp_ms for r in front}
    copies: dict[tuple[bytes | None, bytes | None], list[Record]] = defaultdict(list)
    for record in ready:
        copies[record.header(own.ROOT), record.header(own.ATTEMPT)].append(record)
    made_ms: dict[str, list[int]] = defaultdict(list)
    for (root, _), made in copies.items():
        hopped = len({copy.header(own.ORIGIN) for copy in made}) > 1
        source = root if hopped else made[0].header(own.ORIGIN)
        letter, partition, offset = (source or b"").decode().split(":")[:3]
        at_ms = appended_ms[int(partition), int(offset)] if hopped else min(copy.timestamp_ms for copy in made)
        made_ms[f"{letter}:{partition}"] += [at_ms] * (len(made) - 1)
    for kill_ms, times_ms in product(sorted(kills_ms), made_ms.values()):
        within = [at_ms for at_ms in sorted(times_ms) if kill_ms - BEFORE_MS <= at_ms <= kill_ms + AFTER_MS]
        for at_ms in within[:most]:
            times_ms.remove(at_ms)
    return +Counter({source: len(times_ms) for source, times_ms in made_ms.items()})


@dataclass
class Checker:
    """Follows the topics of one delayed topic and judges them."""

    kafka: Kafka
    topic: str
    delay_of: DelayOf
    front: list[Record] = field(default_factory=list)
    ready: list[Record] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    _readers: dict[str, TopicReader] = field(default_factory=dict)

    def __enter__(self) -> "Checker":
        return self

    def __exit__(self, *_: Any) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def account(self) -> Account:
        """Reads new records and judges all. The front topic is read first: an outcome that is read before its root would not count."""
        names = TopicNames.of(self.topic)
        for topic, records in ((names.front, self.front), (names.ready, self.ready), (names.dead_letter, self.dead)):
            if topic not in self._readers:
                self._readers[topic] = TopicReader(self.kafka.config, topic)
            records.extend(self._readers[topic].read_new())
        return judge(front=self.front, ready=self.ready, dead=self.dead, delay_of=self.delay_of)

    def settled(self, *, produced: int, timeout_seconds: float = 180) -> Account:
        """Waits until `produced` records are in the front topic and each has an outcome."""
        return until(
            self.account,
            what=f"{produced} records of {self.topic} have come out",
            enough=lambda account: account.produced >= produced and account.lost == 0,
            timeout_seconds=timeout_seconds,
        )


def _root(record: Record) -> tuple[int, int] | None:
    """The partition and offset of the root in the front topic; None if the record has no root, or one in another topic."""
    written = record.header(own.ROOT)
    if written is None:
        return None
    root = own.Root.decode(written)
    return (root.partition, root.offset) if root.topic_letter == "f" else None


def _content(record: Record) -> tuple[Any, ...]:
    return record.key, record.value, tuple(own.foreign(record.headers))


def _disordered(copies: Sequence[tuple[Record, Record]], delay_of: DelayOf) -> list[str]:
    """Describes each violation of order: first copies of one front partition, delay and source must come out in order, in one
    partition of the ready topic.

    The source is the partition that they were released from. Records whose hop was more than a second late have another source.
    """
    lines: dict[tuple[int, int, str], list[tuple[int, int, int, Record, Record]]] = defaultdict(list)
    for root, copy in copies:
        place = (copy.partition, copy.offset)
        lines[root.partition, delay_of(root), _source(copy)].append((*place, root.offset, root, copy))
    wrong = []
    for (partition, delay, _), line in sorted(lines.items(), key=lambda entry: entry[0]):
        first_copies: dict[int, tuple[Record, Record]] = {}
        for _, _, root_offset, root, copy in sorted(line, key=lambda entry: entry[:2]):
            first_copies.setdefault(root_offset, (root, copy))
        for (a, before), (b, after) in pairwise(first_copies.values()):
            if b.offset < a.offset or before.partition != after.partition:
                where = f"front {partition}, {delay} s"
                wrong.append(f"{where}: {_described(a, before, delay)} before {_described(b, after, delay)}")
    return wrong


def _source(copy: Record) -> str:
    """The topic's letter and the partition from which the copy was made, as in `d:3`."""
    return (copy.header(own.ORIGIN) or b"").decode().rpartition(":")[0]


def _described(root: Record, copy: Record, delay_seconds: int) -> str:
    late_ms = copy.timestamp_ms - root.timestamp_ms - 1000 * delay_seconds
    origin = (copy.header(own.ORIGIN) or b"").decode()
    return f"{root.offset} (from {origin} to {copy.partition}:{copy.offset}, {late_ms} ms late)"
