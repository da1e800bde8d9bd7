"""Twenty-eight mutations of a flawless window, each of one record at a random place, and the flaw that an audit must find. Records that
are cancelled or rescheduled as requested have no flaw."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delayed_topics_audit.requests import Requests
from delayed_topics_core import headers as own
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.made import CAP, DEAD_EVERY, TOPIC_ID, Made, header
from delayed_topics_audit_testing.rows import asked_for
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
    "removed": "lost",
    "doubled": "doubled",
    "early": "early",
    "late": "late",
    "swapped": "out_of_order",
    "misplaced": "wrong_partition",
    "header": "changed",
    "value": "changed",
    "forged": "forged",
    "from nowhere": "forged",
    "another header": "changed",
    "id": "changed",
    "group": "changed",
    "created at": "changed",
    "dead": "wrongly_dead_lettered",
    "over the cap": "over_cap",
    "not refused": "wrongly_released",
    "cancelled": None,
    "cancelled unasked": "wrongly_dead_lettered",
    "rescheduled": None,
    "rescheduled unasked": "early",
    "rescheduled into the past": "early",
    "attempt": "wrong_attempt",
    "stranger": "foreign",
    "dead letter": "changed",
    "excused": "wrongly_dead_lettered",
    "unfounded": "wrongly_dead_lettered",
    "overdue": "overdue",
}
"""The flaw that the record has after each mutation. None: it has none."""
DEAD_LETTERS: Final = ("dead letter", "excused", "unfounded")
"""Mutations of dead letters. One gets another value, and two get another reason."""
MUTATIONS: Final = tuple(name for name in FLAWS_OF if name not in (*DEAD_LETTERS, "overdue"))
"""Mutations of records that were released."""
RESCHEDULED: Final = ("rescheduled", "rescheduled unasked")
PAST: Final = "rescheduled into the past"
CANCELLED: Final = ("cancelled", "cancelled unasked")
IN_THE_DEAD_LETTER_TOPIC: Final = ("dead", *CANCELLED)
REASONS: Final = (
    DeadLetterReason.HEADER_TWICE, DeadLetterReason.HEADER_UNREADABLE, DeadLetterReason.NO_LADDER,
    DeadLetterReason.MAX_DELAY_EXCEEDED, DeadLetterReason.TARGET_NOT_ALLOWED, DeadLetterReason.REJECTED,
)  # fmt: skip
OVERDUE_MS: Final = 1_000_000_000
"""A time that is longer than any window and any delay."""
UNBALANCED: Final = "does not add up"
CONTENT: Final = ("trace", "source")


@dataclass(frozen=True, kw_only=True)
class Mutated:
    """The topics after the mutations, and the flaws that the audit must find. `moved` are the records that came out at another time,
    requested or not."""

    front: DataFrame
    ready: DataFrame
    dead: DataFrame
    asked: Requests
    expected: Found
    moved: frozenset[str]


def mutate(made: Made, front: DataFrame, ready: DataFrame, dead: DataFrame, seed: int) -> Mutated:
    """Applies all mutations. `front`, `ready` and `dead` are those of `made`, persisted."""
    chance = random.Random(seed)
    victims = choose(made, MUTATIONS, _fits, chance)
    target = _other(made, victims, chance)
    victims |= {"overtaken": victims["swapped"].following}
    victims |= zip(DEAD_LETTERS, chance.sample(_dead(made), len(DEAD_LETTERS)), strict=True)
    victims |= {"overdue": _waiting(made, chance)}
    early_ms, late_ms = chance.randrange(1, 500), chance.randrange(1001, 100_000)
    moved_to_ms = {name: victims[name].due_ms - chance.randrange(1, 500) for name in RESCHEDULED}
    past_ms = victims[PAST].came_ms - chance.randrange(1, 500)
    swap = victims["overtaken"].ready_offset - victims["swapped"].ready_offset
    offset, free = sf.col("offset"), sf.col("offset") + FREE_OFFSET
    over, altered = replaced(own.ATTEMPT, str(CAP + 1)), sf.lit(b"altered")
    nowhere, stranger = f"f:{made.partitions}:0", victims["stranger"]
    rooted_nowhere = header(own.ROOT, sf.lit(f"{nowhere}:{TOPIC_ID}"))
    released = {
        "early": {"timestamp": _shifted(-made.late_ms - early_ms)},
        "late": {"timestamp": _shifted(late_ms)},
        "swapped": {"offset": offset + swap},
        "overtaken": {"offset": offset - swap},
        "misplaced": {"offset": free, "partition": (sf.col("partition") + 1) % made.partitions},
        "header": {"headers": replaced(chance.choice(CONTENT), "altered")},
        "value": {"value": altered},
        "forged": {"headers": replaced(own.ORIGIN, target.origin)},
        "another header": {"headers": sf.concat("headers", sf.array(header("forwarded", sf.lit("by me"))))},
        "id": {"headers": replaced(own.ID, "altered")},
        "group": {"headers": replaced(own.GROUP, "altered")},
        "created at": {"headers": replaced(own.CREATED_AT, "1")},
        "over the cap": {"headers": over},
        "attempt": {"headers": replaced(own.ATTEMPT, "1")},
        PAST: {
            "timestamp": sf.timestamp_millis(sf.lit(victims[PAST].came_ms + 1)),
            "headers": released_for(past_ms),
        },
        **{
            name: {"timestamp": sf.timestamp_millis(sf.lit(ms)), "headers": released_for(ms)}
            for name, ms in moved_to_ms.items()
        },
    }
    released_beside = {
        "doubled": {"offset": free},
        "stranger": {"offset": free, "headers": sf.filter("headers", lambda _: sf.lit(False))},
        "from nowhere": {
            "offset": free,
            "headers": sf.transform(
                replaced(own.ORIGIN, nowhere), lambda h: sf.when(h["key"] == own.ROOT, rooted_nowhere).otherwise(h)
            ),
        },
    }
    arrived = {
        "over the cap": {"headers": over},
        "not refused": {"headers": sf.concat("headers", sf.array(header(own.DELIVER_AT, sf.lit("tomorrow"))))},
        "overdue": {"timestamp": _shifted(-2 * OVERDUE_MS)},
    }
    buried = {
        "dead letter": {"value": altered},
        "excused": {"headers": replaced(own.REASON, DeadLetterReason.TOO_LARGE)},
        "unfounded": {"headers": replaced(own.REASON, chance.choice(REASONS))},
    }
    kept = ready.where(~among(victims, ("removed", *IN_THE_DEAD_LETTER_TOPIC)))
    beside = ready.where(among(victims, released_beside))
    expected = by_flaw(
        FLAWS_OF,
        {name: record.root for name, record in victims.items()}
        | {
            "removed": victims["removed"].origin,
            "swapped": victims["overtaken"].root,
            "forged": target.origin,
            "from nowhere": nowhere,
            "stranger": f"r:{stranger.partition}:{stranger.ready_offset + FREE_OFFSET}",
        },
    )
    return Mutated(
        front=changed(front, victims, arrived),
        ready=changed(kept, victims, released).unionByName(changed(beside, victims, released_beside)),
        dead=changed(dead, victims, buried).unionByName(_dead_lettered(made, victims)),
        asked=_asked(made.spark, victims, {**moved_to_ms, PAST: past_ms}),
        expected={
            **expected,
            "lost": expected["lost"] | {victims["forged"].origin},
            UNBALANCED: frozenset({f"f:{made.partitions}"}),  # the partition of `nowhere`, which does not exist
        },
        moved=frozenset(victims[name].root for name in RESCHEDULED),
    )


def _shifted(ms: int) -> Column:
    return sf.timestamp_millis(sf.unix_millis("timestamp") + ms)


def _dead_lettered(made: Made, victims: Mapping[str, Record]) -> DataFrame:
    """Returns the rows of the dead-letter topic for the mutations in IN_THE_DEAD_LETTER_TOPIC."""
    dead = made.as_dead_letters(made.all.where(among(victims, ["dead"])))
    cancelled = made.as_dead_letters(made.all.where(among(victims, CANCELLED)), DeadLetterReason.CANCELLED)
    return dead.unionByName(cancelled).withColumn("offset", FREE_OFFSET + sf.col("id"))


def _asked(spark: SparkSession, victims: Mapping[str, Record], moved_to_ms: Mapping[str, int]) -> Requests:
    """Returns the requests of the control topic. The worker has answered all of them, as usual, but some were requested only
    afterwards."""
    wanted = {
        **dict.fromkeys(CANCELLED, Control(ControlKind.CANCEL)),
        **{name: Control(ControlKind.DELIVER_AT, ms) for name, ms in moved_to_ms.items()},
    }
    ids = {name: f"{victims[name].root}:{TOPIC_ID}".encode() for name in wanted}
    done = {ControlKind.CANCEL: ControlKind.CANCELLED, ControlKind.DELIVER_AT: ControlKind.RESCHEDULED}
    before = ("cancelled", "rescheduled", PAST)
    asked = [(ids[name], wanted[name].encode(), 0 if name in before else OVERDUE_MS) for name in wanted]
    answers = [
        (ids[name], control.answered(done[control.kind]).encode(), OVERDUE_MS) for name, control in wanted.items()
    ]
    return asked_for(spark, [*asked, *answers])


def _fits(mutation: str, record: Record) -> bool:
    match mutation:
        case name if name in IN_THE_DEAD_LETTER_TOPIC:
            return record.kind == 0  # it has not hopped
        case name if name in (*RESCHEDULED, PAST):  # it waits for a delay, and its root is its id
            return record.kind > 0 and not record.is_retry
        case "attempt":
            return record.kind == 0
        case "not refused":  # a worker would not read its id either
            return not record.is_retry
        case "group" | "created at":
            return record.is_retry
        case "over the cap":  # only the longest delay, so that its due time does not change
            return record.is_retry and record.kind == len(record.made.delays_ms) - 1
        case _:
            return True


def _dead(made: Made) -> list[Record]:
    kinds = len(made.delays_ms)
    rounds = made.released_below // made.partitions // kinds // DEAD_EVERY
    offsets = [(nth * DEAD_EVERY - 1) * kinds for nth in range(1, rounds + 1)]
    return [Record(i=offset * made.partitions + p, made=made) for offset in offsets for p in range(made.partitions)]


def _waiting(made: Made, chance: random.Random) -> Record:
    """Returns a record of the front topic above the commit."""
    offset = chance.randrange(made.bounds.front_committed[0], made.per_partition)
    return Record(i=offset * made.partitions + chance.randrange(made.partitions), made=made)


def _other(made: Made, victims: Mapping[str, Record], chance: random.Random) -> Record:
    """Returns a record without a mutation, which a forged copy names as its origin."""
    near = {record.i for victim in victims.values() for record in (victim, victim.following)}
    while True:
        record = Record(i=chance.randrange(made.released_below), made=made)
        if record.i not in near and not record.is_dead:
            return record
