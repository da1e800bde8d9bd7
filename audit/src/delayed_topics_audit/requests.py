"""Finds out whether cancelled and rescheduled records were requested to be so.

As long as nothing was removed from the control topic, it shows when each id was first named there. If the topic can't be read completely,
the audit does not check cancelled records against it, and a due time counts as requested only if the rest of the topic shows the request.
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

_CANCELS: Final = (ControlKind.CANCEL, ControlKind.CANCELLED, ControlKind.TOO_LATE, ControlKind.NOT_FOUND)
"""The values that had workers cancel records. The last two are answers to either kind of request. Without a time, it was one to cancel."""
_MOVES: Final = (
    ControlKind.DELIVER_AT, ControlKind.RESCHEDULED, ControlKind.TOO_DEEP, ControlKind.TOO_LATE, ControlKind.NOT_FOUND,
)  # fmt: skip
"""The values that, with a time, had workers move records to it. Answers that refuse a request are not among them."""
_TIMED: Final = r"^[a-z-]+ [0-9]{1,15}\z"


class _Unknown(Exception):
    """Some requests can't be read. The message says why."""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The requests in the control topic, as far as they are known.

    `by_id` has a row for each id that was named (see `of_rows`). None: no id was, as far as can be seen.
    `unknown` says why some requests can't be read. `offsets` is the number of offsets that were read.
    """

    by_id: DataFrame | None = None
    unknown: str | None = None
    offsets: int = 0

    def annotate(self, parsed: Sequence[DataFrame], *, skew_ms: int) -> list[DataFrame]:
        """Adds to each row whether it was requested. `parsed` has the rows that `facts.parser` returns, by topic number.

        Records that were cancelled without a request get the reason UNASKED. Releases get the column `asked`, which says whether their due
        time was requested. Null: this is not known.
        """
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
            before = ~sf.col("log_append") | (sf.col("cancel_ms") <= sf.col("at_ms") + skew_ms)
            unasked &= ~headers.or_false(sf.col("cancel_ms").isNotNull() & before)
        return letters.withColumn("reason", sf.when(unasked, refusals.UNASKED).otherwise(sf.col("reason")))

    def _released(self, releases: DataFrame, skew_ms: int) -> DataFrame:
        otherwise = sf.lit(False if self.unknown is None else None).cast("boolean")
        if self.by_id is None:
            return releases.withColumn("asked", otherwise)
        joined = releases.join(sf.broadcast(self.by_id), "id", "left")
        stamped, at_ms, due_ms = sf.col("log_append"), sf.col("at_ms"), sf.col("due_ms")

        def names_it(time: Column) -> Column:
            came_first = ~stamped | (time["from_ms"] <= at_ms + skew_ms)
            # if compaction has removed a request, its answer is left, which is written after the fact
            answered = sf.lit(False) if self.unknown is None else time["is_answer"]
            return (time["due_ms"] == due_ms) & (came_first | answered)

        return joined.withColumn("asked", sf.when(sf.exists("times", names_it), True).otherwise(otherwise)).drop(
            "times"
        )


def requests(admin: KafkaAdmin, read: Read, window: AuditWindow) -> Requests:
    """Reads the requests for a delayed topic up to now, which include those for all records cancelled within the window. The audit does not
    fail if the control topic can't be read."""
    name = TopicNames.of(window.topic).control
    if window.control_id == "":
        return Requests()
    try:
        begin, end = _offsets(admin, name, window.control_id)
        by_id = session.checkpointed(of_rows(read(name, [begin], [end])))
        records = by_id.agg(sf.sum("records")).collect()[0][0] or 0
    except _Unknown as e:
        return Requests(unknown=str(e))
    except (PySparkException, Py4JError) as e:
        return Requests(unknown=f"topic {name} can't be read: {session.reason(e, WHAT_TO_DO)}")
    missing = f"records of topic {name} are missing because of retention, compaction or a transaction"
    return Requests(by_id=by_id, unknown=missing if records < end else None, offsets=end - begin)


def of_rows(rows: DataFrame) -> DataFrame:
    """Returns one row for each key of the control topic. `rows` are the rows of that topic.

    id         a hash of the key
    cancel_ms  since when records of this id may have been cancelled. That is when the request was appended, or without one its answer,
               which is a request to a worker that reads it. 0 if this is not known
    times      the due times that were requested, each with the time since when it may have applied, by the same rule, and whether it is in
               an answer
    records    the number of records with this key
    """
    value = sf.col("value").cast("string")
    kind = sf.substring_index(value, " ", 1)
    from_ms = sf.when(sf.col("timestampType") == 1, sf.unix_millis("timestamp")).otherwise(0)
    due_ms = sf.when(kind.isin(*_MOVES) & value.rlike(_TIMED), sf.substring_index(value, " ", -1).try_cast("long"))
    is_answer = kind != ControlKind.DELIVER_AT.value
    time = sf.struct(due_ms.alias("due_ms"), from_ms.alias("from_ms"), is_answer.alias("is_answer"))
    key = sf.xxhash64(sf.col("key").cast("string"))
    return rows.groupBy(key.alias("id")).agg(
        sf.min(sf.when(value.isin(*_CANCELS), from_ms)).alias("cancel_ms"),
        sf.collect_set(sf.when(due_ms.isNotNull(), time)).alias("times"),
        sf.count("*").alias("records"),
    )


def _offsets(admin: KafkaAdmin, name: str, topic_id: str | None) -> tuple[int, int]:
    """Returns the first and the end offset of committed records, in the partition that workers read. Raises _Unknown."""
    info = _known(admin.describe_topics([name])[name])
    if info is None or info.id != topic_id:
        raise _Unknown(f"topic {name} was deleted or created again, or its id was not noted")
    begin = _known(admin.list_offsets([(name, 0)], "earliest")[name, 0])
    return begin, _known(admin.list_offsets([(name, 0)], "latest", isolation="read_committed")[name, 0])


def _known(found: T | KafkaCallError) -> T:
    if isinstance(found, KafkaCallError):
        raise _Unknown(str(found)) from found
    return found
