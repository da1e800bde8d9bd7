"""Which of the rows that Spark reads belong to a window, and what of them is settled."""

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
    """What belongs to the window, by partition: from `…_from` on, and settled below `…_committed`.

    `…_to`: not from here on; empty: all that is read belongs to it. `…_end`: no record has this offset yet.
    `new_from`: by topic number and partition, the first offset that has come since the audit before; empty: not known.
    `ready_partitions`: the least and the most that there were. `target_partitions`: of other ready topics, by number. `retry_cap`: the
    highest that there was. `one_in`: of so many roots one is looked at, with all that is said of it. `least_limit_bytes`: no topic
    refuses a copy that is smaller. `…_id`: of the topics, as roots have it.
    """

    front_from: Sequence[int]
    front_committed: Sequence[int]
    delays_from: Sequence[int]
    delays_committed: Sequence[int]
    ready_partitions: tuple[int, int]
    retry_cap: int
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
        """Whether a row of this ready topic is in another partition than its root's. A direct write's partition is its key's, by a hash
        that Spark doesn't have. Partitions grow: any count that there was is right."""
        of_target = self.target_partitions.get(topic_number)
        least, most = self.ready_partitions if of_target is None else (1, of_target)
        at, root = partition_of(sf.col("at")), partition_of(sf.col("root"))
        counts = sf.sequence(sf.lit(least), sf.lit(most))
        fits = sf.exists(counts, lambda count: root % count == at) if least < most else root % most == at
        return (topic_number_of(sf.col("root")) == FRONT) & ~fits

    def sampled(self, rows: DataFrame, root: Column) -> DataFrame:
        """The rows of the sample, to be chosen before any expensive step. Rows without a root are in it: they are no copies, and rare.

        The law holds of a sample as of all: a record, its hops and its outcomes have one root. An outcome that says another
        root than its origin's leaves its origin lost, or is forged, so it is found by either.
        """
        if self.one_in == 1:
            return rows
        return rows.where(root.isNull() | (sf.pmod(sf.xxhash64(root), sf.lit(self.one_in)) == 0))

    def belongs(self, place: Column) -> Column:
        if not self.front_to:
            return self.begun(place)
        return self.begun(place) & (offset_of(place) < by_line(place, self.front_to, self.delays_to))

    def begun(self, place: Column) -> Column:
        """Not below the window."""
        return offset_of(place) >= by_line(place, self.front_from, self.delays_from)

    def settled(self, place: Column) -> Column:
        return offset_of(place) < by_line(place, self.front_committed, self.delays_committed)

    def nowhere(self, origin: Column) -> Column:
        """No partition of this number was there, or none of its records has this offset yet."""
        beyond = sf.lit(False)
        if self.front_end:
            beyond = headers.true(offset_of(origin) >= by_line(origin, self.front_end, self.delays_end))
        return beyond | self._in_no_partition(origin)

    def never_hopped(self, origin: Column) -> Column:
        """As `nowhere`, for the origin of a hop. In the delays topic, the end of the origin's partition proves nothing: it may have been
        looked up before the origin came, and the end of the hop's partition after the hop came."""
        return sf.when(topic_number_of(origin) == FRONT, self.nowhere(origin)).otherwise(self._in_no_partition(origin))

    def _in_no_partition(self, origin: Column) -> Column:
        return origin.isNotNull() & by_line(origin, self.front_committed, self.delays_committed).isNull()

    def again(self, origin: Column, topic_number: int) -> Column:
        """Whether a row of that topic is a further copy of a record that a previous audit has settled. It is if it came after that audit,
        because all copies that belong to the commit were there before."""
        return (
            headers.true(self.new(topic_number) & ~self.begun(origin))
            if topic_number in self.new_from
            else sf.lit(False)
        )

    def new(self, topic_number: int) -> Column:
        """Whether no audit before has read this row of that topic."""
        if topic_number not in self.new_from:
            return sf.lit(True)
        came = offset_of(sf.col("at")) >= sf.get(longs(self.new_from[topic_number]), partition_of(sf.col("at")))
        return sf.coalesce(came, sf.lit(True))
