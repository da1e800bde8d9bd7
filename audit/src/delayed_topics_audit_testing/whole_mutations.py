"""Twenty-six things done to a flawless window, each to one record at a random place, and what an auditor has to say to each: nothing
to the ones that are cancelled and rescheduled as somebody asked."""

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
from delayed_topics_audit_testing.victims import FREE_OFFSET, Found, Record, choose, released_for, replaced

MUTATIONS: Final = (
    "removed", "doubled", "early", "late", "swapped", "misplaced", "header", "value", "forged", "from nowhere", "another header",
    "id", "group", "created at", "dead", "over the cap", "cancelled", "cancelled unasked", "rescheduled", "rescheduled unasked",
    "attempt", "stranger",
)  # fmt: skip
"""Of records that were released. Of the others a dead letter is changed, two get another reason, and what is pending becomes overdue."""
RESCHEDULED: Final = ("rescheduled", "rescheduled unasked")
IN_THE_DEAD_LETTER_TOPIC: Final = ("dead", "cancelled", "cancelled unasked")
REASONS: Final = (
    DeadLetterReason.HEADER_TWICE, DeadLetterReason.HEADER_UNREADABLE, DeadLetterReason.HEADERS_TOO_LARGE,
    DeadLetterReason.NO_LADDER, DeadLetterReason.MAX_DELAY_EXCEEDED, DeadLetterReason.TARGET_NOT_ALLOWED, DeadLetterReason.REJECTED,
)  # fmt: skip
OVERDUE_MS: Final = 1_000_000_000
"""Longer than a window is, and than any delay."""
UNBALANCED: Final = "does not add up"
CONTENT: Final = ("trace", "source")


@dataclass(frozen=True, kw_only=True)
class Mutated:
    """The topics, and what is to be found. `moved`: what came out at another time, asked for or not."""

    front: DataFrame
    ready: DataFrame
    dead: DataFrame
    asked: Requests
    expected: Found
    moved: frozenset[str]


def mutate(made: Made, front: DataFrame, ready: DataFrame, dead: DataFrame, seed: int) -> Mutated:
    """`front`, `ready` and `dead` are those of `made`, persisted."""
    chance = random.Random(seed)
    victims = choose(made, MUTATIONS, _fits, chance)
    capped = victims["over the cap"]
    target = _other(made, victims, chance)
    swapped, after = victims["swapped"], victims["swapped"].following
    letter, excused, unfounded = chance.sample(_dead(made), 3)
    waiting = _waiting(made, chance)
    early_ms, late_ms = chance.randrange(1, 500), chance.randrange(1001, 100_000)
    moved_to_ms = {name: victims[name].due_ms - chance.randrange(1, 500) for name in RESCHEDULED}
    ids = sf.col("id")
    at_ms = sf.unix_millis("timestamp")

    def shifted(ms: Column | int) -> Column:
        return sf.timestamp_millis(at_ms + ms)

    distance = sf.when(ids == swapped.i, 1).when(ids == after.i, -1)
    swap = after.ready_offset - swapped.ready_offset
    over = replaced(own.ATTEMPT, str(CAP + 1))
    altered = ready.where(
        ~ids.isin(victims["removed"].i, *(victims[name].i for name in IN_THE_DEAD_LETTER_TOPIC))
    ).withColumns(
        {
            "timestamp": sf.when(ids == victims["early"].i, shifted(-made.late_ms - early_ms))
            .when(ids == victims["late"].i, shifted(late_ms))
            .when(ids == victims["rescheduled"].i, sf.timestamp_millis(sf.lit(moved_to_ms["rescheduled"])))
            .when(
                ids == victims["rescheduled unasked"].i, sf.timestamp_millis(sf.lit(moved_to_ms["rescheduled unasked"]))
            )
            .otherwise(sf.col("timestamp")),
            "offset": sf.when(distance.isNotNull(), sf.col("offset") + distance * swap)
            .when(ids == victims["misplaced"].i, sf.col("offset") + FREE_OFFSET)
            .otherwise(sf.col("offset")),
            "partition": sf.when(ids == victims["misplaced"].i, (sf.col("partition") + 1) % made.partitions).otherwise(
                sf.col("partition")
            ),
            "value": sf.when(ids == victims["value"].i, sf.lit(b"altered")).otherwise(sf.col("value")),
            "headers": sf.when(ids == victims["header"].i, replaced(chance.choice(CONTENT), "altered"))
            .when(ids == victims["forged"].i, replaced(own.ORIGIN, target.origin))
            .when(
                ids == victims["another header"].i, sf.concat("headers", sf.array(header("forwarded", sf.lit("by me"))))
            )
            .when(ids == capped.i, over)
            .when(ids == victims["attempt"].i, replaced(own.ATTEMPT, "1"))
            .when(ids == victims["id"].i, replaced(own.ID, "altered"))
            .when(ids == victims["group"].i, replaced(own.GROUP, "altered"))
            .when(ids == victims["created at"].i, replaced(own.CREATED_AT, "1"))
            .when(ids == victims["rescheduled"].i, released_for(moved_to_ms["rescheduled"]))
            .when(ids == victims["rescheduled unasked"].i, released_for(moved_to_ms["rescheduled unasked"]))
            .otherwise(sf.col("headers")),
        }
    )
    nowhere = f"f:{made.partitions}:0"
    stranger = victims["stranger"]
    strange = ready.where(ids == victims["stranger"].i).withColumns(
        {"offset": sf.col("offset") + FREE_OFFSET, "headers": sf.filter("headers", lambda _: sf.lit(False))}
    )
    forged = ready.where(ids == victims["from nowhere"].i).withColumns(
        {
            "offset": sf.col("offset") + FREE_OFFSET,
            "headers": sf.transform(
                replaced(own.ORIGIN, nowhere),
                lambda h: sf.when(h["key"] == own.ROOT, header(own.ROOT, sf.lit(f"{nowhere}:{TOPIC_ID}"))).otherwise(h),
            ),
        }
    )
    letters = {name: made.all.where(ids == victims[name].i) for name in IN_THE_DEAD_LETTER_TOPIC}
    cancelled = letters["cancelled"].unionAll(letters["cancelled unasked"])
    buried = made.as_dead_letters(letters["dead"]).unionByName(
        made.as_dead_letters(cancelled, DeadLetterReason.CANCELLED)
    )
    killed = buried.withColumn("offset", FREE_OFFSET + ids)
    again = ready.where(ids == victims["doubled"].i).withColumn("offset", sf.col("offset") + FREE_OFFSET)
    return Mutated(
        front=front.withColumns(
            {
                "headers": sf.when(ids == capped.i, over).otherwise(sf.col("headers")),
                "timestamp": sf.when(ids == waiting.i, shifted(-2 * OVERDUE_MS)).otherwise(sf.col("timestamp")),
            }
        ),
        ready=altered.unionByName(again).unionByName(forged).unionByName(strange),
        dead=dead.withColumns(
            {
                "value": sf.when(ids == letter.i, sf.lit(b"altered")).otherwise(sf.col("value")),
                "headers": sf.when(ids == excused.i, replaced(own.REASON, DeadLetterReason.TOO_LARGE))
                .when(ids == unfounded.i, replaced(own.REASON, chance.choice(REASONS)))
                .otherwise(sf.col("headers")),
            }
        ).unionByName(killed),
        asked=_asked(made.spark, victims, moved_to_ms),
        expected={
            "lost": frozenset({victims["removed"].origin, victims["forged"].origin}),
            "doubled": frozenset({victims["doubled"].root}),
            "early": frozenset({victims[name].root for name in ("early", "rescheduled unasked")}),
            "late": frozenset({victims["late"].root}),
            "out_of_order": frozenset({after.root}),
            "wrong_partition": frozenset({victims["misplaced"].root}),
            "changed": frozenset(
                {victims[name].root for name in ("header", "value", "another header", "id", "group", "created at")}
                | {letter.root}
            ),
            "forged": frozenset({target.origin, nowhere}),
            "over_cap": frozenset({capped.root}),
            "wrong_attempt": frozenset({victims["attempt"].root}),
            "foreign": frozenset({f"r:{stranger.partition}:{stranger.ready_offset + FREE_OFFSET}"}),
            "wrongly_dead_lettered": frozenset(
                {victims[name].root for name in ("dead", "cancelled unasked")} | {excused.root, unfounded.root}
            ),
            "overdue": frozenset({waiting.root}),
            UNBALANCED: frozenset({f"f:{made.partitions}"}),  # that nowhere is
        },
        moved=frozenset(victims[name].root for name in RESCHEDULED),
    )


def _asked(spark: SparkSession, victims: Mapping[str, Record], moved_to_ms: Mapping[str, int]) -> Requests:
    """The control topic, in which the worker has told of all, as it does, and somebody had asked for two."""
    wanted = {
        **dict.fromkeys(("cancelled", "cancelled unasked"), Control(ControlKind.CANCEL)),
        **{name: Control(ControlKind.DELIVER_AT, ms) for name, ms in moved_to_ms.items()},
    }
    ids = {name: f"{victims[name].root}:{TOPIC_ID}".encode() for name in wanted}
    done = {ControlKind.CANCEL: ControlKind.CANCELLED, ControlKind.DELIVER_AT: ControlKind.RESCHEDULED}
    asked = [(ids[name], wanted[name].encode(), 0) for name in ("cancelled", "rescheduled")]
    told = [(ids[name], control.answered(done[control.kind]).encode(), OVERDUE_MS) for name, control in wanted.items()]
    return asked_for(spark, [*asked, *told])


def _fits(mutation: str, record: Record) -> bool:
    match mutation:
        case name if name in IN_THE_DEAD_LETTER_TOPIC:
            return record.kind == 0  # it has not hopped
        case name if name in RESCHEDULED:  # with a delay of its own, and an id that is its root
            return record.kind > 0 and not record.is_retry
        case "attempt":
            return record.kind == 0
        case "group" | "created at":
            return record.is_retry
        case "over the cap":  # of the longest delay, so that its time stays its own
            return record.is_retry and record.kind == len(record.made.delays_ms) - 1
        case _:
            return True


def _dead(made: Made) -> list[Record]:
    kinds = len(made.delays_ms)
    rounds = made.released_below // made.partitions // kinds // DEAD_EVERY
    offsets = [(nth * DEAD_EVERY - 1) * kinds for nth in range(1, rounds + 1)]
    return [Record(i=offset * made.partitions + p, made=made) for offset in offsets for p in range(made.partitions)]


def _waiting(made: Made, chance: random.Random) -> Record:
    """Of the front topic, above the commit."""
    offset = chance.randrange(made.bounds.front_committed[0], made.per_partition)
    return Record(i=offset * made.partitions + chance.randrange(made.partitions), made=made)


def _other(made: Made, victims: Mapping[str, Record], chance: random.Random) -> Record:
    """A record that nothing was done to, for another to be forged onto."""
    near = {record.i for victim in victims.values() for record in (victim, victim.following)}
    while True:
        record = Record(i=chance.randrange(made.released_below), made=made)
        if record.i not in near and not record.is_dead:
            return record
