"""The fate of a record: the term of the account to which the record belongs."""

from functools import cache

from delayed_topics_core.audit_table import FATES
from pyspark.sql import Column
from pyspark.sql import functions as sf

from delayed_topics_audit import facts
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.facts import has


@cache
def has_fate(fate: str) -> Column:
    return sf.col("fate") == FATES.index(fate)


def fate_of(bounds: Bounds) -> Column:
    """Returns the fate of each place, as its index in FATES. A record at or above the committed offset is pending, whatever became of it
    since, because the next audit judges it. A place that has an outcome, but whose record was never read, has a fate too, so that the
    account of its partition does not add up."""
    released, dead_lettered, hopped, pending, lost, cancelled = range(len(FATES))
    settled = (
        sf.when(has(facts.RELEASED), released)
        .when(has(facts.DEAD_LETTERED), dead_lettered)
        .when(has(facts.CANCELLED), cancelled)
        .when(has(facts.HOPPED), hopped)
    )
    seen = sf.when(has(facts.RECORD), sf.when(bounds.settled(sf.col("place")), lost).otherwise(pending))
    return sf.coalesce(settled, seen)
