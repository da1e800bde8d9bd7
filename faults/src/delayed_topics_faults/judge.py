"""Judges whether the promises were kept in one trial. Pure: its input is what was read from the topics, and what was promised.

L  every record came out, in the topic where it belongs                       never lost
E  no record came out before its due time, by the brokers' timestamps         never early
O  records of one front partition and delay came out in the order of arrival  in order
D  no record came out twice, except those that a crash may repeat             bounded duplicates
T  each record came out within seconds of its due time or the fault's end     on time
S  key, value, foreign headers and id are the same, the partition is right    nothing changed
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from delayed_topics_faults.copies import EXPECT, Copy

LATE_READ_MS: Final = 1000
"""A record that is first read later than this after its append takes the path that makes it the least late (README, promise 5)."""
MAX_DOUBLED: Final = 5000
COMMITTED_MS: Final = 1000
"""A worker commits ten times a second, and sends nothing while the last commit that Kafka accepted is older than this."""
ARRIVED_MS: Final = 1000
"""How long after the death of a worker the copies that it had sent may still be appended."""
EXAMPLES: Final = 5
ALTERNATIVE_REASONS: Final = {"either": "TooLarge", "race": "Cancelled"}
"""By the kind of expectation: the reason with which a record may become a dead letter instead of being released."""
TRUNCATED_REASONS: Final = frozenset({"TooLarge", "HeaderUnreadable"})
"""Dead letters with these reasons are not complete copies."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A worker died at `at_ms`, or learned then that it had been removed from its group.

    `since_ms`: since when Kafka may have accepted no commit of the worker; None if Kafka accepted commits to the end.
    `partitions`: the partitions that the worker had, written as origins begin (`f:0`); None: any.
    """

    at_ms: int
    since_ms: int | None = None
    partitions: frozenset[str] | None = None

    @property
    def began_ms(self) -> int:
        return self.at_ms if self.since_ms is None else self.since_ms


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What was promised for one trial.

    `front_id`, `delays_id`: topic ids, which are part of each root. `lane_delays`: delays in seconds, by partition of the delays topic.
    `crashes`: without a crash, no record may come out twice. `healed_at_ms`: the end of the last fault; no record is late before it.
    `late_ms`: how late a record may be after it; None: lateness is not judged. `order`: whether order is promised.
    `removed`: the roots of records that the fault itself removed. `most_doubled`: how many copies of a partition a crash may repeat.
    """

    front_id: str
    delays_id: str
    lane_delays: Sequence[int]
    ready_partitions: int
    skew_ms: int = 0
    crashes: Sequence[Crash] = ()
    healed_at_ms: int | None = None
    late_ms: int | None = None
    order: bool = True
    removed: frozenset[str] = frozenset()
    most_doubled: int = MAX_DOUBLED


class Seen(NamedTuple):
    """The records of one trial, by topic."""

    front: Sequence[Copy]
    delays: Sequence[Copy]
    ready: Sequence[Copy]
    dead: Sequence[Copy]

    def followed_by(self, later: "Seen") -> "Seen":
        return Seen(*([*before, *after] for before, after in zip(self, later, strict=True)))


@dataclass
class Verdict:
    """Counts, and the first examples of each broken promise, by its letter.

    `most_late_ms`: the largest lateness, counted from the due time, or from the end of the fault if that was later.
    `late_by_ms`: the number of records by their lateness after their due times, whenever the fault ended.
    `most_back_ms`: the longest time before a crash at which a copy was made that the crash repeated.
    """

    records: int = 0
    dead_lettered: int = 0
    lost: int = 0
    early: int = 0
    doubled: int = 0
    doubled_beyond: int = 0
    out_of_order: int = 0
    order_exempt: int = 0
    changed: int = 0
    late: int = 0
    most_late_ms: int = 0
    most_back_ms: int = 0
    unalarmed: int = 0
    late_by_ms: Counter[int] = field(default_factory=Counter)
    broken: dict[str, list[str]] = field(default_factory=dict)

    def fail(self, letter: str, example: str) -> None:
        examples = self.broken.setdefault(letter, [])
        if len(examples) < EXAMPLES:
            examples.append(example)


class _Source(NamedTuple):
    root: str
    copy: Copy
    topic_letter: str
    expect: str

    @property
    def delay_ms(self) -> int | None:
        """The expected delay after the append time. None: a dead letter is expected."""
        kind, _, text = self.expect.partition(":")
        match kind:
            case "ready":
                return int(text)
            case "at":
                return max(0, int(text) - self.copy.at_ms)
            case _:
                return None

    @property
    def listed_delay_ms(self) -> int | None:
        """The delay from the delay list. None: no order is promised, because the delay is not in the list, or a dead letter is expected."""
        return self.delay_ms if self.expect.startswith("ready:") else None

    def decided(self, released: Sequence[Copy]) -> "_Source":
        """Returns the source with the end that it had as the expected one, if the expectation allows two."""
        kind, _, text = self.expect.partition(":")
        if kind in ALTERNATIVE_REASONS:
            return self._replace(expect=f"ready:{text}" if released else f"dead:{ALTERNATIVE_REASONS[kind]}")
        if kind != "moved":
            return self
        delay_ms, _, at_ms = text.partition(":")
        # after a crash, the record may have come out at both times
        first_due = min((copy.own.get("dt-due-at", "") for copy in released), default="")
        return self._replace(expect=f"at:{at_ms}" if first_due == at_ms else f"ready:{delay_ms}")


def judge(seen: Seen, terms: Terms) -> Verdict:
    """Returns the verdict on one trial that has finished: a record that is not out by now is lost."""
    verdict = Verdict()
    ready, dead = _by_root(seen.ready), _by_root(seen.dead)
    sources = {source.root: source.decided(ready.get(source.root, ())) for source in _sources(seen, terms)}
    verdict.records = len(sources)
    verdict.dead_lettered = len(dead)
    for source in sources.values():
        _account(verdict, source, ready.get(source.root, []), dead.get(source.root, []), terms)
    _judge_doubles(verdict, sources, ready, dead, seen, terms)
    if terms.order:
        _judge_order(verdict, sources, ready, seen, terms)
    return verdict


def longest_silence_ms(seen: Seen) -> int:
    """Returns the longest time in which Kafka appended no copy of a source partition's records, although the worker had sent one.

    Workers write the time of sending only into ready records. A hop therefore ends a silence, and the silence before it doesn't count.
    """
    made: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for copy in [*seen.ready, *(hop for hop in seen.delays if "dt-origin" in hop.own)]:
        partition, _, _ = copy.own["dt-origin"].rpartition(":")
        sent_at_ms = int(copy.own["dt-released"].rpartition(":")[2]) if "dt-released" in copy.own else copy.at_ms
        made[partition].append((copy.at_ms, sent_at_ms))
    silences = (
        after_ms - max(before_ms, sent_at_ms)
        for copies in map(sorted, made.values())
        for (before_ms, _), (after_ms, sent_at_ms) in pairwise([(0, 0), *copies])
    )
    return max(silences, default=0)


def _sources(seen: Seen, terms: Terms) -> Iterable[_Source]:
    for copy in seen.front:
        yield _Source(f"f:{copy.partition}:{copy.offset}:{terms.front_id}", copy, "f", copy.own.get(EXPECT, ""))
    for copy in seen.delays:
        if "dt-origin" not in copy.own:
            yield _Source(f"d:{copy.partition}:{copy.offset}:{terms.delays_id}", copy, "d", copy.own.get(EXPECT, ""))


def _by_root(copies: Iterable[Copy]) -> dict[str, list[Copy]]:
    found: dict[str, list[Copy]] = defaultdict(list)
    for copy in copies:
        found[copy.own.get("dt-root", "")].append(copy)
    return found


def _account(verdict: Verdict, source: _Source, ready: list[Copy], dead: list[Copy], terms: Terms) -> None:
    """Judges the promises L, E, T and S for one record."""
    if source.root in terms.removed:
        return
    delay_ms = source.delay_ms
    right, wrong = (dead, ready) if delay_ms is None else (ready, dead)
    if not right:
        verdict.lost += 1
        where = (
            f"came to {'the ready' if delay_ms is None else 'the dead-letter'} topic" if wrong else "came out nowhere"
        )
        verdict.fail("L", f"{source.root} ({source.expect}) {where}")
        return
    for copy in right:
        reason = copy.own.get("dt-reason", "")
        if delay_ms is None and source.expect != f"dead:{reason}":
            verdict.lost += 1
            verdict.fail("L", f"{source.root} ({source.expect}) became a dead letter for {reason}")
        if delay_ms is not None:
            due_at_ms = source.copy.at_ms + delay_ms
            if copy.at_ms < due_at_ms - terms.skew_ms:
                verdict.early += 1
                verdict.fail("E", f"{source.root} came {due_at_ms - copy.at_ms} ms early, at {copy.at_ms}")
            if source.topic_letter == "f" and copy.partition != source.copy.partition % terms.ready_partitions:
                verdict.changed += 1
                verdict.fail("S", f"{source.root} came to ready partition {copy.partition}")
        if reason not in TRUNCATED_REASONS and (why := _difference(source, copy)):
            verdict.changed += 1
            verdict.fail("S", f"{source.root}: {why}")
    if delay_ms is not None:
        _judge_lateness(verdict, source, delay_ms, min(copy.at_ms for copy in right), terms)


def _judge_lateness(verdict: Verdict, source: _Source, delay_ms: int, first_at_ms: int, terms: Terms) -> None:
    verdict.late_by_ms[max(0, first_at_ms - source.copy.at_ms - delay_ms)] += 1
    if terms.healed_at_ms is None:
        return
    late_ms = first_at_ms - max(source.copy.at_ms + delay_ms, terms.healed_at_ms)
    verdict.most_late_ms = max(verdict.most_late_ms, late_ms)
    if terms.late_ms is not None and late_ms > terms.late_ms:
        verdict.late += 1
        verdict.fail("T", f"{source.root} came {late_ms} ms late")


def _difference(source: _Source, copy: Copy) -> str | None:
    for name in ("key", "value", "foreign"):
        before, after = getattr(source.copy, name), getattr(copy, name)
        if before != after:
            return f"{name} was {before} and is {after}"
    wanted = source.copy.own.get("dt-id")
    if wanted and source.delay_ms is not None and copy.own.get("dt-id") != wanted:
        return f"dt-id was {wanted} and is {copy.own.get('dt-id')}"
    return None


def _judge_doubles(
    verdict: Verdict,
    sources: Mapping[str, _Source],
    ready: Mapping[str, list[Copy]],
    dead: Mapping[str, list[Copy]],
    seen: Seen,
    terms: Terms,
) -> None:
    """Judges promise D. A crash repeats the copies, hops included, of those records of a partition that are read again."""
    explained: Counter[str] = Counter()
    made_at_ms: dict[str, list[int]] = defaultdict(list)
    for (root, origin), copies in _by_origin(seen).items():
        if root in sources and (again := len(copies) - 1):
            explained[root] += again
            made_at_ms[origin.rpartition(":")[0]] += [min(copy.at_ms for copy in copies)] * again
    for root in ready.keys() | dead.keys():
        count = len(ready.get(root, ())) + len(dead.get(root, ()))
        if root not in sources:
            verdict.doubled += count
            verdict.doubled_beyond += count
            verdict.fail("D", f"{count} copies of {root or 'no root'}, which is none of this trial's records")
            continue
        verdict.doubled += count - 1
        if (unexplained := count - 1 - explained[root]) > 0:
            verdict.doubled_beyond += unexplained
            verdict.fail("D", f"{root} came {count} times, and the copies that these were made from are not seen")
    for partition, times_ms in made_at_ms.items():
        verdict.most_back_ms = max(verdict.most_back_ms, *(_back_ms(at_ms, terms) for at_ms in times_ms))
        if beyond := beyond_crashes(partition, times_ms, terms):
            verdict.doubled_beyond += len(beyond)
            verdict.fail(
                "D", f"{len(beyond)} copies from {partition}, first made from {beyond[0]} on, may not come twice"
            )


def _by_origin(seen: Seen) -> Mapping[tuple[str, str], list[Copy]]:
    """Returns the copies that were made from each record, by its root and its place."""
    found: dict[tuple[str, str], list[Copy]] = defaultdict(list)
    for copy in (*seen.ready, *seen.dead, *seen.delays):
        if "dt-origin" in copy.own:
            found[copy.own.get("dt-root", ""), copy.own["dt-origin"]].append(copy)
    return found


def beyond_crashes(partition: str, made_at_ms: Iterable[int], terms: Terms) -> list[int]:
    """Of the times at which the repeated copies of a partition were first made, returns those that no crash explains."""
    left = sorted(made_at_ms)
    for crash in sorted(terms.crashes, key=lambda crash: crash.at_ms):
        if crash.partitions is None or partition in crash.partitions:
            begin = bisect_left(left, crash.began_ms - COMMITTED_MS)
            end = bisect_right(left, crash.at_ms + ARRIVED_MS)
            del left[begin : min(end, begin + terms.most_doubled)]
    return left


def _back_ms(first_at_ms: int, terms: Terms) -> int:
    """Returns how long before the crash, or before Kafka stopped accepting commits, a repeated copy was first made."""
    next_ones = [crash.began_ms for crash in terms.crashes if crash.at_ms + ARRIVED_MS >= first_at_ms]
    return max(0, min(next_ones, default=0) - first_at_ms)


def _judge_order(
    verdict: Verdict, sources: Mapping[str, _Source], ready: Mapping[str, list[Copy]], seen: Seen, terms: Terms
) -> None:
    """Judges promise O by first copies. Records that took another path than that of their delay are exempt if they were read late."""
    hops = _by_root(copy for copy in seen.delays if "dt-origin" in copy.own)
    last: dict[tuple[str, int, int, int], tuple[str, Copy]] = {}
    for root, source in sources.items():
        copies = ready.get(root)
        if not copies or source.listed_delay_ms is None:
            continue
        first = min(copies, key=lambda copy: (copy.at_ms, copy.offset))
        other_path_at_ms = _other_path_at_ms(source, first, hops.get(root, []), terms)
        if other_path_at_ms is not None:
            verdict.order_exempt += 1
            if other_path_at_ms - source.copy.at_ms < LATE_READ_MS:
                verdict.out_of_order += 1
                verdict.fail("O", f"{root} ({source.expect}) was read in time and took another way than its delay's")
            continue
        line = (source.topic_letter, source.copy.partition, source.listed_delay_ms, first.partition)
        root_before, before = last.get(line, (root, first))
        if before.offset > first.offset:
            verdict.out_of_order += 1
            verdict.fail("O", f"{root} came at {first.place}, before {root_before} at {before.place}")
        else:
            last[line] = root, first


def _other_path_at_ms(source: _Source, first: Copy, hops: Sequence[Copy], terms: Terms) -> int | None:
    """Returns when a record left the usual path, or None. That path has no hop without a delay, else one to a partition of the delay."""
    if source.topic_letter == "d":
        return None
    lanes = {lane for lane, seconds in enumerate(terms.lane_delays) if seconds * 1000 == source.delay_ms}
    others = [hop.at_ms for hop in hops if hop.partition not in lanes]
    number, origin = first.own.get("dt-hops"), first.own.get("dt-origin", "").split(":")
    hopped_there = number == "1" and origin[0] == "d" and int(origin[1]) in lanes
    usual = hopped_there if source.delay_ms else number == "0"
    return None if usual else min([first.at_ms, *others])
