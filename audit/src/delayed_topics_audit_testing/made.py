"""The rows that a flawless worker would leave behind in the four topics, in the form in which Spark reads them from Kafka.

Record i goes to front partition i mod P. Its offset chooses the entry of the delay list. A third of the records request it by level, the
others by attempt, and a few are above the retry cap. All places follow from i. Only due times need a join, if the append times are those
of a broker.
"""

from dataclasses import dataclass
from functools import cached_property

from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.promise import Declared, Promise
from delayed_topics_core import headers as own
from delayed_topics_core.reasons import DeadLetterReason
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

BEGAN_MS = 1_700_000_000_000
PER_MS = 100
"""The number of records that come in each millisecond."""
READY_PER_MS = 1024
"""The number of offsets of the ready topic for each millisecond, most of them gaps."""
LATE_MS = 3
CAP = 4
DEAD_EVERY = 1000
"""One in so many records of a partition and the first delay is above the retry cap."""
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A flawless window. `pending` is the number of places at the end of each partition that are above the commit and have no outcome.

    `appended`: partition, offset and appended_ms of each record of the front topic, where a broker decides that; None: as made.
    """

    spark: SparkSession
    records: int
    partitions: int = 4
    delays_ms: tuple[int, ...] = (0, 10_000, 60_000)
    value_bytes: int = 100
    late_ms: int = LATE_MS
    pending: int = 5
    appended: DataFrame | None = None

    def __post_init__(self) -> None:
        if self.records % (self.partitions * len(self.delays_ms)):
            raise ValueError("records must be a multiple of partitions x delays")

    @property
    def per_partition(self) -> int:
        return self.records // self.partitions

    def is_dead(self, offset: int) -> bool:
        kinds = len(self.delays_ms)
        return offset % kinds == 0 and offset // kinds % DEAD_EVERY == DEAD_EVERY - 1

    @property
    def released_below(self) -> int:
        """All records with a number below this have come out."""
        return (self.bounds.front_committed[0] - self.pending - len(self.delays_ms)) * self.partitions

    @property
    def bounds(self) -> Bounds:
        committed = self.per_partition - self.pending
        kinds = len(self.delays_ms)
        hopped = committed // kinds * self.partitions  # only whole rounds; the rest of the last round is pending too
        return Bounds(
            front_from=[0] * self.partitions,
            front_committed=[committed // kinds * kinds] * self.partitions,
            delays_from=[0] * kinds,
            delays_committed=[0, *[hopped - self.pending] * (kinds - 1)],
            ready_partitions=(self.partitions, self.partitions),
            retry_cap=CAP,
            front_id=TOPIC_ID,
            delays_id=TOPIC_ID,
        )

    @property
    def promise(self) -> Promise:
        return Promise(
            partition_delays_ms=self.delays_ms,
            skew_ms=0,
            max_lateness_ms=1000,
            lists=[Declared(list_ms=self.delays_ms, retry_cap=CAP, from_ms=0, until_ms=None)],
            overdue_before_ms=BEGAN_MS,
        )

    @cached_property
    def all(self) -> DataFrame:
        """All records: i, with everything that follows from it."""
        i, kinds = sf.col("id"), len(self.delays_ms)
        offset = sf.floor(i / self.partitions)
        kind = (offset % kinds).cast("int")
        dead = (kind == 0) & (sf.floor(offset / kinds) % DEAD_EVERY == DEAD_EVERY - 1)
        came_ms = sf.lit(BEGAN_MS) + sf.floor(i / PER_MS)
        delay_ms = sf.get(sf.array(*(sf.lit(ms).cast("long") for ms in self.delays_ms)), kind)
        delays_offset = sf.floor(offset / kinds) * self.partitions + i % self.partitions
        by_level = (kind == 0) | (i % 3 == 0)
        made = self.spark.range(self.records).select(
            i,
            (i % self.partitions).cast("int").alias("partition"),
            offset.alias("offset"),
            kind.alias("kind"),
            dead.alias("dead"),
            sf.when(dead, CAP + 1).when(by_level, 0).otherwise(kind).alias("attempt"),
            by_level.alias("by_level"),
            came_ms.alias("came_ms"),
            delay_ms.alias("delay_ms"),
            delays_offset.alias("delays_offset"),
        )
        if self.appended is None:
            made = made.withColumn("appended_ms", sf.col("came_ms"))
        else:
            made = made.join(self.appended, ["partition", "offset"])
        made = made.withColumn("due_ms", sf.col("appended_ms") + sf.col("delay_ms"))
        return made.withColumn("value", sf.rpad(i.cast("string"), self.value_bytes, ".").cast("binary"))

    def front(self) -> DataFrame:
        level = _when(sf.col("by_level") & (sf.col("kind") > 0), header(own.DELAY_LEVEL, sf.col("kind") + 1))
        retry = [header(own.ATTEMPT, sf.col("attempt")), header(own.ID, _identity()), *_of_retry()]
        attempt = _when(sf.col("attempt") > 0, *retry)
        return self._rows(
            self.all, sf.col("partition"), sf.col("offset"), sf.col("came_ms"), [_foreign(), level, attempt]
        )

    def delays(self) -> DataFrame:
        """The rows of the delays topic. The worker hops each record a millisecond after it came in."""
        hopped = self.all.where(_hops() & self._settled())
        headers = [
            _foreign(),
            _own_identity(),
            _root(),
            _origin(sf.lit("f"), "partition", "offset"),
            _due(),
            _hop_count(),
        ]
        return self._rows(hopped, sf.col("kind"), sf.col("delays_offset"), sf.col("appended_ms") + 1, headers)

    def ready(self) -> DataFrame:
        """The rows of the ready topic. Their offsets have gaps, such as transactions leave."""
        committed = sf.get(sf.array(*map(sf.lit, self.bounds.delays_committed)), sf.col("kind"))
        released = self.all.where(
            ~sf.col("dead") & self._settled() & (~_hops() | (sf.col("delays_offset") < committed))
        )
        at_ms = sf.col("due_ms") + self.late_ms
        # the order within a millisecond; a broker appends any number of records in one, and these are written in the order of their ids
        within = sf.col("kind") * PER_MS + sf.col("id") % PER_MS if self.appended is None else sf.lit(0)
        offset = (at_ms - BEGAN_MS) * READY_PER_MS + within
        origin = [
            _when(~_hops(), *_origin_headers(sf.lit("f"), "partition", "offset")),
            _when(_hops(), *_origin_headers(sf.lit("d"), "kind", "delays_offset")),
        ]
        wrote = sf.array(header(own.RELEASED, sf.concat_ws(":", "attempt", sf.col("due_ms"))))
        hops = sf.array(header(own.HOPS, _hops().cast("int")))
        headers = [_foreign(), _own_identity(), _root(), *origin, _due(), wrote, hops]
        return self._rows(released, sf.col("partition"), offset, at_ms, headers)

    def dead_letters(self) -> DataFrame:
        dead = self.all.where(sf.col("dead") & self._settled())
        return self.as_dead_letters(dead)

    def as_dead_letters(
        self, records: DataFrame, reason: DeadLetterReason = DeadLetterReason.RETRY_CAP_EXCEEDED
    ) -> DataFrame:
        """Returns the dead letters of front records, whatever their attempt."""
        why = sf.array(header(own.REASON, sf.lit(reason.value)), header(own.ERROR, sf.lit("")))
        headers = [_foreign(), _own_identity(), _root(), _origin(sf.lit("f"), "partition", "offset"), why]
        return self._rows(
            records,
            sf.col("partition"),
            sf.floor(sf.col("offset") / (DEAD_EVERY * len(self.delays_ms))),
            sf.col("came_ms") + 1,
            headers,
        )

    def _settled(self) -> Column:
        return sf.col("offset") < self.bounds.front_committed[0]

    def _rows(
        self, rows: DataFrame, partition: Column, offset: Column, at_ms: Column, headers: list[Column]
    ) -> DataFrame:
        return rows.select(
            "id",
            sf.concat(sf.lit("k"), (sf.col("id") % 97).cast("string")).cast("binary").alias("key"),
            "value",
            partition.cast("int").alias("partition"),
            offset.cast("long").alias("offset"),
            sf.timestamp_millis(at_ms).alias("timestamp"),
            sf.lit(1).alias("timestampType"),
            sf.concat(*headers).alias("headers"),
        )


def _hops() -> Column:
    return (sf.col("kind") > 0) & ~sf.col("dead")


def header(name: str, value: Column) -> Column:
    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _when(condition: Column, *headers: Column) -> Column:
    none = sf.array().cast("array<struct<key:string,value:binary>>")
    return sf.when(condition, sf.array(*headers)).otherwise(none)


def _foreign() -> Column:
    return sf.array(header("trace", sf.col("id") * 31), header("source", sf.lit("made")))


def _identity() -> Column:
    """Returns the id of a retry. Every retry has a chain of its own."""
    return sf.concat(sf.lit("chain-"), sf.col("id").cast("string"))


def _of_retry() -> list[Column]:
    return [header(own.GROUP, sf.lit("billing")), header(own.CREATED_AT, sf.col("came_ms") - 5)]


def _root_text() -> Column:
    return sf.concat_ws(":", sf.lit("f"), "partition", "offset", sf.lit(TOPIC_ID))


def _own_identity() -> Column:
    identity = sf.when(sf.col("attempt") > 0, _identity()).otherwise(_root_text())
    id_and_attempt = sf.array(header(own.ID, identity), header(own.ATTEMPT, sf.col("attempt")))
    return sf.concat(id_and_attempt, _when(sf.col("attempt") > 0, *_of_retry()))


def _root() -> Column:
    return sf.array(header(own.ROOT, _root_text()))


def _origin_headers(topic_letter: Column, partition: str, offset: str) -> list[Column]:
    return [header(own.ORIGIN, sf.concat_ws(":", topic_letter, partition, offset))]


def _origin(topic_letter: Column, partition: str, offset: str) -> Column:
    return sf.array(*_origin_headers(topic_letter, partition, offset))


def _due() -> Column:
    return sf.array(header(own.DUE_AT, sf.col("due_ms")))


def _hop_count() -> Column:
    return sf.array(header(own.HOPS, sf.lit(1)))
