"""Runs one audit: checks the topics, reads, counts, checks the topics again, and judges."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Final

from delayed_topics_core.audit_table import MAX_OFFSET, TOPIC_LETTERS
from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.events import Event
from delayed_topics_core.names import TopicNames
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.events import EventFollower
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delayed_topics_audit import blame, carried, facts, repeats, session, sources
from delayed_topics_audit.account import BlindSpot, Result, judge, unseen
from delayed_topics_audit.bounds import Bounds
from delayed_topics_audit.carried import Table, Unusable
from delayed_topics_audit.errors import AuditFailed
from delayed_topics_audit.findings import Findings, Progress, WorkerEvents, count, with_tables
from delayed_topics_audit.output import Output
from delayed_topics_audit.places import places_of
from delayed_topics_audit.promise import Declared, Promise
from delayed_topics_audit.requests import Requests, requests
from delayed_topics_audit.sources import Read
from delayed_topics_audit.visibility import WindowVisibility, held_up, look

FACTS_IN_A_SHUFFLE_PARTITION: Final = 250_000
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
MAX_EVENT_SECONDS: Final = 30.0

Span = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """The outcome of an audit. `findings` is None if nothing was read."""

    result: Result
    findings: Findings | None = None


def audit(
    window: AuditWindow,
    connection: Connection,
    started: Callable[[], SparkSession],
    progress: Progress,
    output: Output | None = None,
) -> Audited:
    """Audits one window. Raises AuditFailed if no verdict was reached. `started` starts a Spark session. It is called only if there is
    something to read."""
    admin = KafkaAdmin(connection, client_id=sources.CLIENT_ID)
    before = look(admin, window)
    if not before.readable:
        return Audited(result=unseen(before.spots))
    began = time.monotonic()

    def say(text: str) -> None:
        progress(f"[{time.monotonic() - began:6.1f} s] {text}")

    sha256, unused = None, ""
    try:
        spark = started()
        if output is not None:
            output.prepare(spark)
        table, unused = _table(spark, output, window)
        reading = Reading(window=window, visibility=before, table=table)
        say(f"reading {reading.offsets:,} offsets of {window.topic} and its other topics{unused}")
        read = partial(sources.read, spark, connection)
        asked = requests(admin, read, window)
        places, blocks = places_and_blocks(spark, read, reading, asked, carries=window.carries and output is not None)
        events = _worker_events(connection, window.topic, say)
        offsets_read = reading.offsets + asked.offsets
        findings = count(spark, places, window, events, say, offsets_read=offsets_read, requests_unknown=asked.unknown)
        if output is not None:
            findings = with_tables(spark, places, findings)
        if output is not None and blocks is not None:
            since_ms, bounds = findings.counted.pending_since_ms, bounds_of(window, before)
            sha256 = carried.written(spark, output, window, blocks, bounds, starts=before.starts, since_ms=since_ms)
            say("wrote the records that the next audit would otherwise read again")
        if output is not None and output.parquet:
            output.write_places(places, window)
            say(f"wrote the account of every record to {output.folder}")
        places.unpersist()
    except (PySparkException, Py4JError, ConnectionError) as e:
        reasons = look(admin, window).spots
        if reasons:
            return Audited(result=unseen(reasons))
        # a transaction may end before the Job tries again
        why = f"Spark could not read or count the records of {window.topic}: {session.reason(e, sources.WHAT_TO_DO)}"
        raise AuditFailed(". ".join((*held_up(admin, window), why))) from e
    after = look(admin, window)
    spots = list(
        {spot.sentence: spot for spot in (*_blind_spots_when_frozen(window), *before.spots, *after.spots)}.values()
    )
    result = judge(findings.counted, spots)
    return Audited(
        result=replace(result, message=result.message + unused, carried_sha256=sha256),
        findings=findings,
    )


def _blind_spots_when_frozen(window: AuditWindow) -> list[BlindSpot]:
    return [
        *(BlindSpot(sentence=sentence, hides_outcomes=True) for sentence in window.unseen),
        *(BlindSpot(sentence=sentence, hides_outcomes=True, only_losses=True) for sentence in window.perhaps_unseen),
        *(BlindSpot(sentence=sentence, hides_outcomes=False) for sentence in window.unserved),
    ]


def _table(spark: SparkSession, output: Output | None, window: AuditWindow) -> tuple[Table | None, str]:
    """Returns the table that the previous audit of the chain has written for this one. Without a table, the text says why there is none."""
    if output is None:
        return None, ". Without an output, the table of the previous audit can't be used" if window.carried else ""
    try:
        return carried.opened(spark, output, window), ""
    except Unusable as e:
        return None, f". Everything is read from Kafka because the table of the previous audit can't be used: {e}"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an audit reads of the window, and from where."""

    window: AuditWindow
    visibility: WindowVisibility
    table: Table | None = None

    def spans(self, topic: str) -> tuple[Span, Span]:
        """Returns two spans of offsets by partition: the one that the table has, and the rest, which is read from Kafka."""
        starts, ends = self.visibility.starts[topic], self.window.end_offsets[topic]
        last = self.table.covers(topic, starts, ends) if self.table else starts
        return (starts, last), (last, ends)

    @property
    def offsets(self) -> int:
        """The number of offsets that are read from Kafka."""
        spans = [self.spans(topic)[1] for topic in self.visibility.starts]
        return sum(sum(to) - sum(from_) for from_, to in spans)

    def parsed(self, read: Read, bounds: Bounds) -> list[DataFrame]:
        """Returns the rows of each topic, as `facts.parse_…` returns them."""
        made = []
        for topic_number, topic in enumerate(self.window.topics):
            known, newer = self.spans(topic)
            rows = facts.parser(topic_number, topic)(read(topic, *newer), bounds)
            if self.table is not None:
                kept = carried.between(carried.rows_of(self.table.blocks, topic_number), *known)
                rows = carried.uniform(rows).unionAll(kept)
            made.append(rows)
        return made


def places_and_blocks(
    spark: SparkSession, read: Read, reading: Reading, asked: Requests, *, carries: bool
) -> tuple[DataFrame, DataFrame | None]:
    """Returns the places and, with `carries`, the blocks from which they were made, for the next link."""
    window, visibility = reading.window, reading.visibility
    bounds, promise = bounds_of(window, visibility), promise_of(window)
    context = spark.sparkContext
    offsets = Reading(window=window, visibility=visibility).offsets
    shuffle_partitions = max(context.defaultParallelism, offsets // FACTS_IN_A_SHUFFLE_PARTITION)
    if context.getConf().get(SHUFFLE_PARTITIONS) is None:
        # Spark's default of 200 means 200 tasks for each query of a cached table, which takes 5 to 10 s of a small audit.
        spark.conf.set(SHUFFLE_PARTITIONS, shuffle_partitions)
    parsed, blocks = reading.parsed(read, bounds), None
    if carries:
        blocks = session.checkpointed(carried.blocks_of(parsed))
        parsed = [carried.rows_of(blocks, topic_number) for topic_number in range(len(parsed))]
    parsed = asked.annotate(parsed, skew_ms=window.broker_skew_ms)
    made = [facts.of_parsed(topic_number)(rows, bounds) for topic_number, rows in enumerate(parsed)]
    places = places_of(made, bounds, promise, shuffle_partitions=shuffle_partitions)
    return places.persist(StorageLevel.MEMORY_AND_DISK), blocks


def bounds_of(window: AuditWindow, visibility: WindowVisibility) -> Bounds:
    names = TopicNames.of(window.topic)
    if max(max(ends, default=0) for ends in window.end_offsets.values()) > MAX_OFFSET:
        raise AuditFailed(f"topic {window.topic} has offsets above {MAX_OFFSET:,}, which no audit can count")

    def begin(topic: str) -> list[int]:
        """The audit reports what retention has removed, and does not count it."""
        return [max(pair) for pair in zip(window.from_offsets[topic], visibility.starts[topic], strict=True)]

    return Bounds(
        front_from=begin(names.front),
        front_committed=window.committed_offsets[names.front],
        delays_from=begin(names.delays),
        delays_committed=window.committed_offsets[names.delays],
        front_audited=window.from_offsets[names.front],
        delays_audited=window.from_offsets[names.delays],
        ready_partitions=(window.least_ready_partitions, window.ready_partitions),
        retry_cap=window.retry_cap,
        front_to=window.to_offsets.get(names.front, ()),
        delays_to=window.to_offsets.get(names.delays, ()),
        front_end=window.end_offsets[names.front],
        delays_end=window.end_offsets[names.delays],
        new_from={
            topic_number: window.new_from_offsets[name]
            for topic_number, name in enumerate(window.topics)
            if name in window.new_from_offsets
        },
        target_partitions={
            len(TOPIC_LETTERS) + nr: len(window.end_offsets[topic]) for nr, topic in enumerate(window.targets)
        },
        one_in=window.sample_one_in,
        least_limit_bytes=visibility.least_limit_bytes,
        front_id=window.topic_ids[names.front],
        delays_id=window.topic_ids[names.delays],
    )


def promise_of(window: AuditWindow) -> Promise:
    return Promise(
        partition_delays_ms=[seconds * 1000 for seconds in window.partition_delays],
        skew_ms=window.broker_skew_ms,
        max_lateness_ms=window.max_lateness_ms,
        overdue_before_ms=window.frozen_at_ms - window.max_lateness_ms,
        lists=[
            Declared(
                list_ms=[seconds * 1000 for seconds in declared.delay_seconds],
                retry_cap=declared.retry_cap,
                from_ms=declared.from_ms,
                until_ms=following.from_ms if following else None,
                max_delay_ms=None if declared.max_delay_seconds is None else declared.max_delay_seconds * 1000,
            )
            for declared, following in zip_longest(window.delay_lists, window.delay_lists[1:])
        ],
    )


def _worker_events(connection: Connection, topic: str, say: Progress) -> WorkerEvents:
    """Reads the events of the workers. Without the right to do so, the audit continues, but can neither explain late records nor excuse
    doubled ones."""
    events: list[Event] = []
    read_ms = int(time.time() * 1000)
    try:
        with EventFollower(connection, client_id="delayed-topics-audit-events") as follower:
            follower.catch_up(MAX_EVENT_SECONDS, lambda event: events.append(event) if event.topic == topic else None)
    except KafkaCallError as e:
        say(f"could not read the events of the workers: {e}")
        return WorkerEvents(unread=True)
    return WorkerEvents(
        causes=blame.causes(events, topic),
        takeovers=repeats.takeovers(events, topic),
        known=repeats.reported_spans(events, topic),
        read_ms=read_ms,
        newest_ms=max((event.at_ms for event in events), default=0),
    )
