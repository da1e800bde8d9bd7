"""The mutation test: the audit finds each mutation of a flawless window where it is, and nothing else. See `whole_mutations` and
`link_mutations`.

python -m delayed_topics_audit_testing.mutations --records 1000000 --seeds 0:100
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
from delayed_topics_audit import checks, repeats, session
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.flaws import FLAWS, has_flaw
from delayed_topics_audit.place import name_of
from delayed_topics_audit.places import places_of
from delayed_topics_audit.promise import Promise
from delayed_topics_audit.requests import Requests
from delayed_topics_core.audit_table import FATES, PARTITION_BITS, TOPIC_LETTERS
from delayed_topics_devcluster.revision import revision
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit_testing import link_mutations, whole_mutations
from delayed_topics_audit_testing.link_mutations import MONTH_MS, Link, MutatedLink
from delayed_topics_audit_testing.made import BEGAN_MS, LATE_MS, Made
from delayed_topics_audit_testing.mutation_results import Judged, Results, over
from delayed_topics_audit_testing.rows import NOBODY, facts_of
from delayed_topics_audit_testing.victims import Found
from delayed_topics_audit_testing.whole_mutations import UNBALANCED

Topics = Mapping[str, DataFrame]
"""The rows that Spark would read, under the names front, delays, ready and dead."""


def judge(spark: SparkSession, *, records: int, seed: int) -> Judged:
    """Returns whether each flaw was found exactly where it is, and whether the clean windows were found clean."""
    chance = random.Random(seed)
    made = Made(spark=spark, records=records, late_ms=chance.randrange(LATE_MS, 500), pending=chance.randrange(1, 1000))
    topics = {"front": made.front(), "delays": made.delays(), "ready": made.ready(), "dead": made.dead_letters()}
    kept = {name: rows.persist() for name, rows in topics.items()}
    whole, link = _judge_whole(made, kept, seed), _judge_link(Link.of(made, chance), kept, chance)
    for rows in kept.values():
        rows.unpersist()
    return Judged(right={**whole.right, **link.right}, summary=f"{whole.summary}; of the link {link.summary}")


def _judge_whole(made: Made, kept: Topics, seed: int) -> Judged:
    mutated = whole_mutations.mutate(made, kept["front"], kept["ready"], kept["dead"], seed)
    altered = {**kept, "front": mutated.front, "ready": mutated.ready, "dead": mutated.dead}
    unknown = Requests(unknown="nobody can read them")

    def found_in(topics: Topics, asked: Requests) -> Found:
        with _places(topics, made.spark, made.bounds, made.promise, asked) as places:
            return found(places)

    clean, actual, unread = found_in(kept, NOBODY), found_in(altered, mutated.asked), found_in(altered, unknown)
    expected = mutated.expected
    in_turn = [flaw for flaw in (*FLAWS, "out_of_order", UNBALANCED) if flaw != "perhaps_unasked"]
    right = {flaw: actual.get(flaw) == expected[flaw] for flaw in in_turn}  # each flaw has a mutation
    right |= {"perhaps_unasked": unread.get("perhaps_unasked") == mutated.moved, "clean": not clean}
    return Judged(right=right, summary=_summary(clean, actual, expected))


def _judge_link(link: Link, kept: Topics, chance: random.Random) -> Judged:
    spark, bounds, promise = link.made.spark, link.bounds, link.promise
    with _places(kept, spark, bounds, promise) as places:
        clean = found(places)
    mutated = link_mutations.mutate(link, **kept, chance=chance)
    altered = {"front": mutated.front, "delays": mutated.delays, "ready": mutated.ready, "dead": mutated.dead}
    with _places(altered, spark, bounds, promise) as places:
        actual = found(places)
        gone = checks.totals(places).collect()[0].unread_roots
        at_least_once, exactly_once = (_beyond(places, mutated, from_ms) for from_ms in (None, BEGAN_MS))
    right = {
        name: {flaw for flaw, names in actual.items() if mutated.roots[name] in names} == {flaw_of} - {None}
        for name, flaw_of in link_mutations.FLAWS_OF.items()
    }
    right["root gone"] &= gone == 1
    right |= {
        "doubles of a link are judged": at_least_once == mutated.beyond,
        "doubles with ExactlyOnce": exactly_once == dict.fromkeys(mutated.beyond, True),
        "nothing else in a link": actual == mutated.expected,
        "clean link": not clean,
    }
    return Judged(right=right, summary=_summary(clean, actual, mutated.expected))


@contextmanager
def _places(
    topics: Topics, spark: SparkSession, bounds: Bounds, promise: Promise, asked: Requests = NOBODY
) -> Iterator[DataFrame]:
    """Yields the places of these topics, and persists them meanwhile."""
    every = facts_of([topics[name] for name in ("front", "delays", "ready", "dead")], bounds, asked=asked)
    places = places_of(every, bounds, promise, shuffle_partitions=spark.sparkContext.defaultParallelism).persist()
    yield places
    places.unpersist()


def found(places: DataFrame) -> Found:
    """Returns the names of the places that have each flaw, as the audit finds them."""
    names: dict[str, set[str]] = {}
    flaws = sf.array_compact(sf.array(*(sf.when(has_flaw(flaw), flaw) for flaw in FLAWS)))
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
    return {flaw: frozenset(of_it) for flaw, of_it in names.items()}


def _beyond(places: DataFrame, mutated: MutatedLink, exactly_once_from_ms: int | None) -> dict[int, bool]:
    """Returns by line whether the one double of the line is beyond the promise."""
    table = session.table(places.sparkSession, repeats.rows(mutated.takeovers), repeats.TAKEOVERS)
    known = [(0, BEGAN_MS + MONTH_MS)]
    judged = repeats.repeats(places, table, known=known, exactly_once_from_ms=exactly_once_from_ms).collect()
    return {row.way: row.beyond == row.extra == 1 for row in judged}


def _summary(clean: Found, actual: Found, expected: Found) -> str:
    wrong = {flaw: sorted(names) for flaw, names in actual.items() if names != expected.get(flaw)}
    missed = sorted(expected.keys() - actual.keys())
    return f"clean {clean or 'yes'}, wrong {wrong or 'none'}, missed {missed or 'none'}"


@click.command()
@click.option("--records", default=1_200_000, show_default=True)
@click.option("--seeds", default="0:100", show_default=True, help="From, and up to but not including.")
@click.option("--jars", type=click.Path(path_type=Path), required=True, help="What `make spark-jars` prints.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    help="Write there after each seed (JSON), and go on with what it has of the same commit and size.",
)
def main(records: int, seeds: str, jars: Path, results: Path | None) -> None:
    """Runs the mutation test: the audit must find every mutation, and nothing else."""
    first, last = map(int, seeds.split(":"))
    found_so_far = Results.of(results, commit=revision(), records=records)
    spark = session.start(master="local[*]", jars=jars, memory="3g")
    over(range(first, last), found_so_far, lambda seed: judge(spark, records=records, seed=seed), click.echo)
    table = found_so_far.right(range(first, last))
    for flaw, count in table.items():
        click.echo(f"{flaw:16} {count} of {last - first}")
    raise SystemExit(any(count != last - first for count in table.values()))


if __name__ == "__main__":
    main()
