"""Twenty-six things done to a flawless window, each to one record at a random place, and what an auditor has to say to each: nothing
to the ones that are cancelled and rescheduled as somebody asked.

python -m delayed_topics_audit_testing.mutations --records 1000000 --seeds 0:100
"""

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from delayed_topics_audit import checks, session
from delayed_topics_audit.place import PARTITION_BITS, TOPIC_LETTERS, name_of
from delayed_topics_audit.places import FATES, FLAWS, flawed, places_of
from delayed_topics_audit.requests import Requests
from delayed_topics_core import headers as own
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.made import CAP, DEAD_EVERY, LATE_MS, TOPIC_ID, Made, header
from delayed_topics_audit_testing.rows import NOBODY, asked_for, facts_of

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
FREE_OFFSET: Final = 512
"""Above an offset of the ready topic, where Made leaves gaps, nothing is."""
UNBALANCED: Final = "does not add up"
CONTENT: Final = ("trace", "source")

Found = Mapping[str, frozenset[str]]
"""Per flaw the names of the records."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record `i` of a Made window, and the names of its places."""

    i: int
    made: Made

    @property
    def partition(self) -> int:
        return self.i % self.made.partitions

    @property
    def offset(self) -> int:
        return self.i // self.made.partitions

    @property
    def kind(self) -> int:
        return self.offset % len(self.made.delays_ms)

    @property
    def is_retry(self) -> bool:
        return self.kind > 0 and self.i % 3 != 0

    @property
    def root(self) -> str:
        return f"f:{self.partition}:{self.offset}"

    @property
    def origin(self) -> str:
        lane_offset = self.offset // len(self.made.delays_ms) * self.made.partitions + self.partition
        return f"d:{self.kind}:{lane_offset}" if self.kind else self.root

    @property
    def following(self) -> "Record":
        """The next one of its partition and delay."""
        return Record(i=self.i + self.made.partitions * len(self.made.delays_ms), made=self.made)


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
    victims = dict(zip(MUTATIONS, _victims(made, chance), strict=True))
    capped = victims["over the cap"]
    target = _other(made, victims, chance)
    swapped, after = victims["swapped"], victims["swapped"].following
    letter, excused, unfounded = chance.sample(_dead(made), 3)
    waiting = _waiting(made, chance)
    early_ms, late_ms = chance.randrange(1, 500), chance.randrange(1001, 100_000)
    moved_to_ms = {name: _due_at_ms(ready, victims[name]) - chance.randrange(1, 500) for name in RESCHEDULED}
    ids = sf.col("id")
    at_ms = sf.unix_millis("timestamp")

    def shifted(ms: Column | int) -> Column:
        return sf.timestamp_millis(at_ms + ms)

    distance = sf.when(ids == swapped.i, 1).when(ids == after.i, -1)
    swap = _swap_of(ready, swapped, after)
    over = _replaced(own.ATTEMPT, str(CAP + 1))
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
            "headers": sf.when(ids == victims["header"].i, _replaced(chance.choice(CONTENT), "altered"))
            .when(ids == victims["forged"].i, _replaced(own.ORIGIN, target.origin))
            .when(
                ids == victims["another header"].i, sf.concat("headers", sf.array(header("forwarded", sf.lit("by me"))))
            )
            .when(ids == capped.i, over)
            .when(ids == victims["attempt"].i, _replaced(own.ATTEMPT, "1"))
            .when(ids == victims["id"].i, _replaced(own.ID, "altered"))
            .when(ids == victims["group"].i, _replaced(own.GROUP, "altered"))
            .when(ids == victims["created at"].i, _replaced(own.CREATED_AT, "1"))
            .when(ids == victims["rescheduled"].i, _released_for(moved_to_ms["rescheduled"]))
            .when(ids == victims["rescheduled unasked"].i, _released_for(moved_to_ms["rescheduled unasked"]))
            .otherwise(sf.col("headers")),
        }
    )
    nowhere = f"f:{made.partitions}:0"
    stranger = _place_in(ready, victims["stranger"])
    strange = ready.where(ids == victims["stranger"].i).withColumns(
        {"offset": sf.col("offset") + FREE_OFFSET, "headers": sf.filter("headers", lambda _: sf.lit(False))}
    )
    forged = ready.where(ids == victims["from nowhere"].i).withColumns(
        {
            "offset": sf.col("offset") + FREE_OFFSET,
            "headers": sf.transform(
                _replaced(own.ORIGIN, nowhere),
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
                "headers": sf.when(ids == excused.i, _replaced(own.REASON, DeadLetterReason.TOO_LARGE))
                .when(ids == unfounded.i, _replaced(own.REASON, chance.choice(REASONS)))
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
            "foreign": frozenset({f"r:{stranger.partition}:{stranger.offset + FREE_OFFSET}"}),
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


def found(
    made: Made, *, front: DataFrame, delays: DataFrame, ready: DataFrame, dead: DataFrame, asked: Requests
) -> Found:
    """What the auditor says."""
    bounds = made.bounds
    every = facts_of([front, delays, ready, dead], bounds, asked=asked)
    places = places_of(
        every, bounds, made.promise, shuffle_partitions=made.spark.sparkContext.defaultParallelism
    ).persist()
    names: dict[str, set[str]] = {}
    flaws = sf.array_compact(sf.array(*(sf.when(flawed(flaw), flaw) for flaw in FLAWS)))
    for row in (
        places.where("flaws <> 0").select(name_of(sf.col("place")).alias("name"), flaws.alias("flaws")).collect()
    ):
        for flaw in row.flaws:
            names.setdefault(flaw, set()).add(row.name)
    for row in checks.disorder(places).select(name_of(sf.col("place")).alias("name")).collect():
        names.setdefault("out_of_order", set()).add(row.name)
    for row in checks.accounts(places).collect():
        terms = row.asDict()
        if terms["produced"] != sum(terms[fate] for fate in FATES):
            line = terms["line"]
            name = f"{TOPIC_LETTERS[line >> PARTITION_BITS]}:{line % (1 << PARTITION_BITS)}"
            names.setdefault(UNBALANCED, set()).add(name)
    places.unpersist()
    return {flaw: frozenset(of_it) for flaw, of_it in names.items()}


def _victims(made: Made, chance: random.Random) -> list[Record]:
    """Released records, each far from the others and such as the mutation of its place in MUTATIONS can be done to."""
    reach = made.partitions * len(made.delays_ms) * 2
    chosen: list[Record] = []
    while len(chosen) < len(MUTATIONS):
        record = Record(i=chance.randrange(made.released_below), made=made)
        apart = all(abs(record.i - other.i) > reach for other in chosen)
        alive = not made.is_dead(record.offset) and not made.is_dead(record.following.offset)
        if apart and alive and _fits(MUTATIONS[len(chosen)], record):
            chosen.append(record)
    return chosen


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
        if record.i not in near and not made.is_dead(record.offset):
            return record


def _due_at_ms(ready: DataFrame, record: Record) -> int:
    return int(_place_in(ready, record).at_ms) - record.made.late_ms


def _place_in(ready: DataFrame, record: Record) -> Row:
    at_ms = sf.unix_millis("timestamp").alias("at_ms")
    [row] = ready.where(sf.col("id") == record.i).select("partition", "offset", at_ms).collect()
    return row


def _swap_of(ready: DataFrame, one: Record, other: Record) -> int:
    """How far apart their offsets are."""
    offsets = {
        row.id: row.offset for row in ready.where(sf.col("id").isin(one.i, other.i)).select("id", "offset").collect()
    }
    return int(offsets[other.i] - offsets[one.i])


def _replaced(name: str, value: str, *, headers: Column | str = "headers") -> Column:
    replacement = header(name, sf.lit(value))
    return sf.transform(headers, lambda h: sf.when(h["key"] == name, replacement).otherwise(h))


def _released_for(due_at_ms: int) -> Column:
    """What the release of a first attempt tells that is due then."""
    return _replaced(own.RELEASED, f"0:{due_at_ms}", headers=_replaced(own.DUE_AT, str(due_at_ms)))


def run(spark: SparkSession, *, records: int, seeds: range, say: Callable[[str], None]) -> dict[str, int]:
    """How many of the seeds found each flaw just where it is, and how many clean windows were called clean."""
    right = dict.fromkeys((*FLAWS, "out_of_order", UNBALANCED, "clean"), 0)
    for seed in seeds:
        began = time.monotonic()
        chance = random.Random(seed)
        made = Made(
            spark=spark, records=records, late_ms=chance.randrange(LATE_MS, 500), pending=chance.randrange(1, 1000)
        )
        topics = {"front": made.front(), "delays": made.delays(), "ready": made.ready(), "dead": made.dead_letters()}
        kept = {name: rows.persist() for name, rows in topics.items()}
        clean = found(made, **kept, asked=NOBODY)
        right["clean"] += not clean
        mutated = mutate(made, kept["front"], kept["ready"], kept["dead"], seed)
        altered = {"front": mutated.front, "delays": kept["delays"], "ready": mutated.ready, "dead": mutated.dead}
        said = found(made, **altered, asked=mutated.asked)
        unread = found(made, **altered, asked=Requests(unknown="nobody can read them"))
        right["perhaps_unasked"] += unread.get("perhaps_unasked") == mutated.moved
        for flaw in mutated.expected:
            right[flaw] += said.get(flaw) == mutated.expected[flaw]
        wrong = {flaw: sorted(names) for flaw, names in said.items() if names != mutated.expected.get(flaw)}
        missed = sorted(mutated.expected.keys() - said.keys())
        for rows in kept.values():
            rows.unpersist()
        say(
            f"seed {seed}: {time.monotonic() - began:.1f} s, clean {clean or 'yes'}, wrong {wrong or 'none'}, missed {missed or 'none'}"
        )
    return right


@click.command()
@click.option("--records", default=1_200_000, show_default=True)
@click.option("--seeds", default="0:100", show_default=True, help="From, and up to but not including.")
@click.option("--jars", type=click.Path(path_type=Path), required=True, help="What `make spark-jars` prints.")
@click.option("--results", type=click.Path(path_type=Path), help="Write the table there (JSON).")
def main(records: int, seeds: str, jars: Path, results: Path | None) -> None:
    """The mutation test: nothing that is done to a record goes unnoticed, and nothing is noticed that wasn't done."""
    first, last = map(int, seeds.split(":"))
    spark = session.start(master="local[*]", jars=jars, memory="3g")
    table = run(spark, records=records, seeds=range(first, last), say=click.echo)
    for flaw, count in table.items():
        click.echo(f"{flaw:16} {count} of {last - first}")
    if results is not None:
        results.write_text(json.dumps({"records": records, "seeds": [first, last], "right": table}, indent=2) + "\n")
    raise SystemExit(any(count != last - first for count in table.values()))


if __name__ == "__main__":
    main()
