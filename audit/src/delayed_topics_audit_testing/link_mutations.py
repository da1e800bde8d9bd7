"""Mutations of a link of a chain of audits, each of one record at a random place. They only show in connection with records that were
settled before, edited lists, added partitions, or events of the workers. Some of them must not be reported.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.promise import CLOCKS_MS, Declared, Promise
from delayed_topics_audit.repeats import Takeover
from delayed_topics_core import headers as own
from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, FRONT, PARTITION_BITS, READY
from delayed_topics_core_testing.attempts import ATTEMPTS
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.made import BEGAN_MS, CAP, DEAD_EVERY, PER_MS, READY_PER_MS, Made, header
from delayed_topics_audit_testing.victims import (
    FREE_OFFSET,
    Found,
    Record,
    among,
    by_flaw,
    changed,
    choose,
    released_for,
    replaced,
)

FLAWS_OF: Final[Mapping[str, str | None]] = {
    "released again": "doubled",
    "hopped again": "doubled",
    "dead-lettered again": "doubled",
    "repeated for a reason": "doubled",
    "repeated without a reason": "doubled",
    "repeated by hand": "doubled",
    "former delay": "early",
    "later delay": "early",
    "delay before the edit": None,
    "later cap": "over_cap",
    "partition before growth": None,
    "partition of no time": "wrong_partition",
    "foreign headers": None,
    "forwarded": None,
    "aborted": None,
    "root gone": None,
}
"""The flaw that the record has after each mutation. None: it has none. A root that is gone is counted, without its name."""
DOUBLES: Final = tuple(name for name, flaw in FLAWS_OF.items() if flaw == "doubled")
REPEATED: Final = ("repeated for a reason", "repeated without a reason", "repeated by hand")
OF_OTHER_LISTS: Final = ("former delay", "later delay", "delay before the edit")
MONTH_MS: Final = 30 * 86_400_000
AGAIN_MS: Final = 600_000
REPEATED_MS: Final = 30_000
TAKEOVER_MS: Final = 20_000
"""The time from the first copy to the takeover."""
FORMER_MS: Final = (0, 5_000, 40_000)
BEFORE_MS: Final = (0, 7_000, 45_000)
LATER_MS: Final = (0, 6_000, 30_000)
"""These delays are shorter than those of the window, so a release by them is early."""
FOREIGN: Final = (
    ("Dt-Attempt", b"3"), ("DT-ROOT", b"f:0:0:x"), ("dt-attempts", b"3"), ("dt-", b"x"), ("trace", b"again"), ("nothing", None),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link of a chain. The previous audit had settled all front records of the rounds below `settled`, and all hops of those below
    `came_out`. The delay list was edited in the middle of the window, and also long before and long after it."""

    made: Made
    settled: int
    came_out: int

    @classmethod
    def of(cls, made: Made, chance: random.Random) -> "Link":
        rounds = made.released_below // made.partitions // len(made.delays_ms)
        settled = chance.randrange(max(DEAD_EVERY, rounds // 2), rounds * 9 // 10)
        return cls(made=made, settled=settled, came_out=chance.randrange(settled // 2, settled * 9 // 10))

    @property
    def bounds(self) -> Bounds:
        made, kinds = self.made, len(self.made.delays_ms)
        came_ms = [rounds * kinds * made.partitions // PER_MS for rounds in (self.settled, self.came_out)]
        read = (max(came_ms[0], came_ms[1] + made.delays_ms[-1]) + made.late_ms + 1) * READY_PER_MS
        return replace(
            made.bounds,
            front_from=[self.settled * kinds] * made.partitions,
            delays_from=[0, *[self.came_out * made.partitions] * (kinds - 1)],
            new_from={
                DELAYS: [0, *[self.settled * made.partitions] * (kinds - 1)],
                READY: [read] * made.partitions,
                DEAD_LETTER: [self.settled // DEAD_EVERY] * made.partitions,
            },
            ready_partitions=(made.partitions // 2, made.partitions),
            retry_cap=CAP + 1,
        )

    @property
    def promise(self) -> Promise:
        made = self.made
        long_ago_ms, edited_ms = BEGAN_MS - CLOCKS_MS - 1, BEGAN_MS + made.records // PER_MS // 2
        lists = [
            Declared(list_ms=FORMER_MS, retry_cap=CAP + 1, from_ms=0, until_ms=long_ago_ms),
            Declared(list_ms=BEFORE_MS, retry_cap=CAP, from_ms=long_ago_ms, until_ms=edited_ms),
            Declared(list_ms=made.delays_ms, retry_cap=CAP, from_ms=edited_ms, until_ms=BEGAN_MS + MONTH_MS),
            Declared(list_ms=LATER_MS, retry_cap=CAP + 1, from_ms=BEGAN_MS + MONTH_MS, until_ms=None),
        ]
        return replace(made.promise, lists=lists)

    def fits(self, mutation: str, record: Record) -> bool:
        settled = record.round < (self.came_out if record.kind else self.settled)
        match mutation:
            case "released again":
                return settled
            case "hopped again":
                return record.kind > 0 and record.round < self.settled
            case "root gone":
                return record.kind > 0 and self.came_out <= record.round < self.settled
            case _ if record.round < self.settled:
                return False
            case "later cap":
                return record.is_retry and record.kind == len(self.made.delays_ms) - 1
            case "partition before growth" | "partition of no time":
                return record.partition == self.made.partitions - 1
            case "foreign headers" | "aborted":
                return record.kind == 0
            case "forwarded":
                return not record.is_retry
            case name if name in OF_OTHER_LISTS:
                return record.kind > 0 and not record.is_retry
            case _:
                return True


@dataclass(frozen=True, kw_only=True)
class MutatedLink:
    """The topics after the mutations, the roots of the mutated records by the names in FLAWS_OF, and the takeovers that the workers
    reported. `beyond` says by line (see place.line_of) whether the double there is beyond the promise. Each double has its own line."""

    front: DataFrame
    delays: DataFrame
    ready: DataFrame
    dead: DataFrame
    roots: Mapping[str, str]
    takeovers: Sequence[Takeover]
    beyond: Mapping[int, bool]

    @property
    def expected(self) -> Found:
        return by_flaw(FLAWS_OF, self.roots)


def mutate(
    link: Link, front: DataFrame, delays: DataFrame, ready: DataFrame, dead: DataFrame, chance: random.Random
) -> MutatedLink:
    """Applies all mutations. The topics are those of `link.made`, persisted."""
    made, lines = link.made, _lines(link.made, chance)
    own_headers, attempt = chance.choice(_OWN_ATTEMPTS)

    def fits(mutation: str, record: Record) -> bool:
        in_line = mutation not in lines or lines[mutation] == _line(mutation, record)
        waits = mutation != "forwarded" or record.kind == min(attempt, len(made.delays_ms) - 1)
        return in_line and waits and link.fits(mutation, record)

    victims = choose(made, tuple(name for name in FLAWS_OF if name != "dead-lettered again"), fits, chance)
    buried = chance.choice(
        [record for record in _settled_dead(link) if _line("", record) == lines["dead-lettered again"]]
    )
    ids, partitions = sf.col("id"), made.partitions

    def later(rows: DataFrame, after_ms: int, *names: str) -> DataFrame:
        """Returns the releases of these victims once more, as a worker would write them later. Those repeated by hand stay as they were."""
        wrote = {
            name: {"headers": replaced(own.RELEASED, f"{victims[name].attempt}:{victims[name].due_ms + after_ms}")}
            for name in names
            if name != "repeated by hand"
        }
        return changed(_moved(rows.where(among(victims, names)), after_ms), victims, wrote)

    delays_ms = dict(zip(OF_OTHER_LISTS, (FORMER_MS, LATER_MS, BEFORE_MS), strict=True))
    due_ms = {name: victims[name].came_ms + delays_ms[name][victims[name].kind] for name in OF_OTHER_LISTS}
    foreign = sf.concat(_headers(FOREIGN), "headers")
    forwarded = sf.concat(sf.filter("headers", lambda h: ~h["key"].startswith(own.PREFIX)), _headers(own_headers))
    over = replaced(own.ATTEMPT, str(CAP + 1))
    moved = {
        "partition before growth": (partitions - 1) % chance.randrange(partitions // 2, partitions),
        "partition of no time": partitions - 2,
    }
    hopped = _moved(delays.where(ids == victims["hopped again"].i), AGAIN_MS)
    return MutatedLink(
        front=changed(
            front.where(~among(victims, ("aborted", "root gone"))),
            victims,
            {
                "foreign headers": {"headers": foreign},
                "forwarded": {"headers": forwarded},
                "later cap": {"headers": over},
            },
        ),
        delays=delays.unionByName(hopped),
        ready=changed(
            ready.where(ids != victims["aborted"].i),
            victims,
            {
                **{
                    name: {"timestamp": sf.timestamp_millis(sf.lit(ms + made.late_ms)), "headers": released_for(ms)}
                    for name, ms in due_ms.items()
                },
                **{
                    name: {"partition": sf.lit(to), "offset": sf.col("offset") + FREE_OFFSET}
                    for name, to in moved.items()
                },
                "foreign headers": {"headers": foreign},
                "forwarded": {"headers": replaced(own.ATTEMPT, str(attempt))},
                "later cap": {"headers": over},
            },
        )
        .unionByName(later(ready, AGAIN_MS, "released again"))
        .unionByName(later(ready, REPEATED_MS, *REPEATED)),
        dead=dead.unionByName(_moved(dead.where(ids == buried.i), AGAIN_MS)),
        roots={name: record.root for name, record in (*victims.items(), ("dead-lettered again", buried))},
        # between the copies, and only of their partition
        takeovers=[
            Takeover(lines=frozenset({lines[name]}), from_ms=from_ms, to_ms=from_ms)
            for name in ("repeated for a reason", "repeated by hand")
            for from_ms in [victims[name].due_ms + TAKEOVER_MS]
        ],
        beyond={line: name != "repeated for a reason" for name, line in lines.items()},
    )


def _is_own(headers: Sequence[own.Header]) -> bool:
    return all(name in own.OWN_HEADERS for name, _ in headers)


_OWN_ATTEMPTS: Final = [(headers, attempt) for headers, attempt in ATTEMPTS if _is_own(headers) and attempt <= CAP]


def _lines(made: Made, chance: random.Random) -> dict[str, int]:
    """Returns a line for each double. There are as many lines as doubles."""
    front = [(FRONT << PARTITION_BITS) + partition for partition in range(made.partitions)]
    lanes = [(DELAYS << PARTITION_BITS) + kind for kind in range(1, len(made.delays_ms))]
    chance.shuffle(front)
    others = [name for name in DOUBLES if name not in _OF_FRONT]
    chance.shuffle(others)
    return dict(zip((*_OF_FRONT, *others), (*front, *lanes), strict=True))


_OF_FRONT: Final = ("hopped again", "dead-lettered again")


def _line(mutation: str, record: Record) -> int:
    """Returns the line from which the copies of the record were made."""
    if record.kind and mutation != "hopped again":
        return (DELAYS << PARTITION_BITS) + record.kind
    return (FRONT << PARTITION_BITS) + record.partition


def _settled_dead(link: Link) -> list[Record]:
    made, kinds = link.made, len(link.made.delays_ms)
    offsets = [nth * kinds for nth in range(DEAD_EVERY - 1, link.settled, DEAD_EVERY)]
    return [Record(i=offset * made.partitions + p, made=made) for offset in offsets for p in range(made.partitions)]


def _moved(rows: DataFrame, after_ms: int) -> DataFrame:
    """Moves rows to a later time, and to a free offset above all rows that were there before that time."""
    at_ms = sf.unix_millis("timestamp") + after_ms
    return rows.withColumns(
        {"timestamp": sf.timestamp_millis(at_ms), "offset": sf.col("offset") + (after_ms * READY_PER_MS + FREE_OFFSET)}
    )


def _headers(headers: Sequence[own.Header]) -> Column:
    return sf.array(*(header(name, sf.lit(None if value is None else value.decode())) for name, value in headers)).cast(
        "array<struct<key:string,value:binary>>"
    )
