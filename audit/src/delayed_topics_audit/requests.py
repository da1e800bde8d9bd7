"""Who had asked for what was cancelled or rescheduled: the control topic, as long as nothing was removed from it, tells of every id when
it was first named there. Where it can't be read as a whole, dead letters of that reason are not held against it, and whether somebody had
asked for a due time is known only if what is left says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from delayed_topics_core.audit_table import DEAD_LETTER, DELAYS, FRONT
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.control import ControlKind
from delayed_topics_core.names import TopicNames
from delayed_topics_core.reasons import DeadLetterReason
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.errors import KafkaCallError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from delayed_topics_audit import header_columns as headers
from delayed_topics_audit import refusals, session
from delayed_topics_audit.sources import WHAT_TO_DO, Read

T = TypeVar("T")

_DONE: Final = (ControlKind.CANCELLED, ControlKind.RESCHEDULED, ControlKind.TOO_DEEP)
"""What a worker writes when it has done, or has not done, what was asked for."""
_TIMED: Final = r"^[a-z-]+ [0-9]{1,15}\z"


class _Unknown(Exception):
    """Not all requests can be seen; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What is known of them.

    `by_id`: a row for each id that was named, see `of_rows`; None: none was, as far as can be seen.
    `unknown`: why not all requests can be seen. `offsets`: how many were read for it.
    """

    by_id: DataFrame | None = None
    unknown: str | None = None
    offsets: int = 0

    def held_against(self, parsed: Sequence[DataFrame], *, skew_ms: int) -> list[DataFrame]:
        """`parsed`: as `facts.parser` makes them, by topic number. What was cancelled without a request gets the reason UNASKED.
        Releases get the column `asked`: the due time that they tell was asked for; null: it is not known whether it was."""
        return [
            rows
            if topic_number in (FRONT, DELAYS)
            else self._cancelled(rows, skew_ms)
            if topic_number == DEAD_LETTER
            else self._released(rows, skew_ms)
            for topic_number, rows in enumerate(parsed)
        ]

    def _cancelled(self, letters: DataFrame, skew_ms: int) -> DataFrame:
        if self.unknown is not None:
            return letters
        unasked = refusals.one_of("reason", [DeadLetterReason.CANCELLED])
        if self.by_id is not None:
            letters = letters.join(sf.broadcast(self.by_id), "id", "left")
            before = ~sf.col("log_append") | (sf.col("first_ms") <= sf.col("at_ms") + skew_ms)
            unasked &= ~headers.true(before)
        return letters.withColumn("reason", sf.when(unasked, refusals.UNASKED).otherwise(sf.col("reason")))

    def _released(self, releases: DataFrame, skew_ms: int) -> DataFrame:
        otherwise = sf.lit(False if self.unknown is None else None).cast("boolean")
        if self.by_id is None:
            return releases.withColumn("asked", otherwise)
        joined = releases.join(sf.broadcast(self.by_id), "id", "left")
        stamped, at_ms, due_ms = sf.col("log_append"), sf.col("at_ms"), sf.col("due_ms")

        def names_it(time: Column) -> Column:
            came_first = ~stamped | (time["from_ms"] <= at_ms + skew_ms)
            # of a request that compaction has removed its answer is left
            return (time["due_ms"] == due_ms) & (came_first if self.unknown is None else sf.lit(True))

        return joined.withColumn("asked", sf.when(sf.exists("times", names_it), True).otherwise(otherwise)).drop(
            "times"
        )


def requests(admin: KafkaAdmin, read: Read, window: AuditWindow) -> Requests:
    """Of a delayed topic up to now, so that what was cancelled within the window was asked for before. That its control topic can't be
    read is no failure."""
    name = TopicNames.of(window.topic).control
    if window.control_id == "":
        return Requests()
    try:
        begin, end = _offsets(admin, name, window.control_id)
        by_id = session.kept(of_rows(read(name, [begin], [end])))
        records = by_id.agg(sf.sum("records")).collect()[0][0] or 0
    except _Unknown as e:
        return Requests(unknown=str(e))
    except (PySparkException, Py4JError) as e:
        return Requests(unknown=f"topic {name} can't be read: {session.reason(e, WHAT_TO_DO)}")
    missing = f"records of topic {name} are missing because of retention, compaction or a transaction"
    return Requests(by_id=by_id, unknown=missing if records < end else None, offsets=end - begin)


def of_rows(rows: DataFrame) -> DataFrame:
    """`rows`: of the control topic. A row for each key: `id`, its hash; `first_ms`, from when on it may have been cancelled, which is
    not shown by what a worker writes after it has done so; `times`, the due times that were asked for, and from when on each is shown by
    the same rule; `records` with that key."""
    value = sf.col("value").cast("string")
    kind = sf.substring_index(value, " ", 1)
    by_worker = kind.isin(*_DONE) & (sf.col("timestampType") == 1)
    asked_ms = sf.when(by_worker, sf.unix_millis("timestamp")).otherwise(0)
    due_ms = sf.when(value.rlike(_TIMED), sf.substring_index(value, " ", -1).try_cast("long"))
    time = sf.when(due_ms.isNotNull(), sf.struct(due_ms.alias("due_ms"), asked_ms.alias("from_ms")))
    key = sf.xxhash64(sf.col("key").cast("string"))
    return rows.groupBy(key.alias("id")).agg(
        sf.min(asked_ms).alias("first_ms"), sf.collect_set(time).alias("times"), sf.count("*").alias("records")
    )


def _offsets(admin: KafkaAdmin, name: str, topic_id: str | None) -> tuple[int, int]:
    """From where up to where the partition that workers read has what is committed. Raises _Unknown."""
    info = _known(admin.describe_topics([name])[name])
    if info is None or info.id != topic_id:
        raise _Unknown(f"topic {name} was deleted or created again, or its id was not noted")
    begin = _known(admin.list_offsets([(name, 0)], "earliest")[name, 0])
    return begin, _known(admin.list_offsets([(name, 0)], "latest", isolation="read_committed")[name, 0])


def _known(found: T | KafkaCallError) -> T:
    if isinstance(found, KafkaCallError):
        raise _Unknown(str(found)) from found
    return found
