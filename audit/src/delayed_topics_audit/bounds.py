"""The bounds of a window: which of the rows that Spark reads belong to the window, and which of them are settled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from delayed_topics_core.audit_table import FRONT
from delayed_topics_core.settings import DEFAULT_MAX_MESSAGE_BYTES
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers
from delayed_topics_audit.place import by_line, longs, offset_of, partition_of, topic_number_of


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of the window, by partition. Records belong to it from `…_from` on, and are settled below `…_committed`.

    …_audited          earlier audits of the chain have settled what is below. Retention may have removed records from here up to `…_from`;
                       empty: the same as `…_from`
    …_to               records from here on do not belong to the window; empty: all that are read belong to it
    …_end              no record has this offset yet
    new_from           by topic number and partition, the first offset appended since the previous audit; empty: not known
    ready_partitions   the least and the greatest number of partitions that the ready topic had
    target_partitions  the number of partitions of other ready topics, by topic number
    retry_cap          the highest that ever applied
    one_in             the audit reads one root in so many, with all of its copies
    least_limit_bytes  no topic refuses a copy that is smaller
    …_id               the topic ids, as roots have them
    """

    front_from: Sequence[int]
    front_committed: Sequence[int]
    delays_from: Sequence[int]
    delays_committed: Sequence[int]
    ready_partitions: tuple[int, int]
    retry_cap: int
    front_audited: Sequence[int] = ()
    delays_audited: Sequence[int] = ()
    front_to: Sequence[int] = ()
    delays_to: Sequence[int] = ()
    front_end: Sequence[int] = ()
    delays_end: Sequence[int] = ()
    new_from: Mapping[int, Sequence[int]] = field(default_factory=dict)
    target_partitions: Mapping[int, int] = field(default_factory=dict)
    one_in: int = 1
    least_limit_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    front_id: str = ""
    delays_id: str = ""

    def misplaced(self, topic_number: int) -> Column:
        """Whether a row of this ready topic is in another partition than the one that belongs to its root. This is not checked for roots in
        the delays topic, whose partition follows from a hash of the key that Spark does not have. The number of partitions can grow, so
        any number that there was counts as right."""
        of_target = self.target_partitions.get(topic_number)
        least, most = self.ready_partitions if of_target is None else (1, of_target)
        at, root = partition_of(sf.col("at")), partition_of(sf.col("root"))
        counts = sf.sequence(sf.lit(least), sf.lit(most))
        fits = sf.exists(counts, lambda count: root % count == at) if least < most else root % most == at
        return (topic_number_of(sf.col("root")) == FRONT) & ~fits

    def sampled(self, rows: DataFrame, root: Column) -> DataFrame:
        """Returns the rows of the sample. Call this before any expensive step. The sample has all rows without a root: they are rare, and
        are no copies.

        A sample adds up just as all records do, because a record, its hops and its outcomes have the same root. An outcome that states
        another root than its origin leaves the origin lost, or is forged, so the audit finds it either way.
        """
        if self.one_in == 1:
            return rows
        return rows.where(root.isNull() | (sf.pmod(sf.xxhash64(root), sf.lit(self.one_in)) == 0))

    def belongs(self, place: Column) -> Column:
        if not self.front_to:
            return self.begun(place)
        return self.begun(place) & (offset_of(place) < by_line(place, self.front_to, self.delays_to))

    def begun(self, place: Column) -> Column:
        """Whether the place is not below the window."""
        return offset_of(place) >= by_line(place, self.front_from, self.delays_from)

    def settled(self, place: Column) -> Column:
        return offset_of(place) < by_line(place, self.front_committed, self.delays_committed)

    def nowhere(self, origin: Column) -> Column:
        """Whether there was no partition of this number, or no record in it with this offset yet."""
        beyond = sf.lit(False)
        if self.front_end:
            beyond = headers.or_false(offset_of(origin) >= by_line(origin, self.front_end, self.delays_end))
        return beyond | self._in_no_partition(origin)

    def never_hopped(self, origin: Column) -> Column:
        """Whether the origin of a hop was never there, as in `nowhere`. In the delays topic, the end of the origin's partition proves
        nothing: the operator may have read it before the origin came, and the end of the hop's partition after the hop came."""
        return sf.when(topic_number_of(origin) == FRONT, self.nowhere(origin)).otherwise(self._in_no_partition(origin))

    def _in_no_partition(self, origin: Column) -> Column:
        return origin.isNotNull() & by_line(origin, self.front_committed, self.delays_committed).isNull()

    def again(self, origin: Column, topic_number: int) -> Column:
        """Whether a row of that topic is a further copy of a record that an earlier audit has settled. A row that came after that audit is
        one, because all copies that belong to the commit were there before it."""
        if topic_number not in self.new_from:
            return sf.lit(False)
        audited = by_line(origin, self.front_audited or self.front_from, self.delays_audited or self.delays_from)
        return headers.or_false(self.new(topic_number) & (offset_of(origin) < audited))

    def new(self, topic_number: int) -> Column:
        """Whether no earlier audit has read this row of that topic."""
        if topic_number not in self.new_from:
            return sf.lit(True)
        came = offset_of(sf.col("at")) >= sf.get(longs(self.new_from[topic_number]), partition_of(sf.col("at")))
        return sf.coalesce(came, sf.lit(True))
