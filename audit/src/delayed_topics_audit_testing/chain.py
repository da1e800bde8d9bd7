"""A simulated day of a delayed topic with all kinds of incidents, and what Kafka and the registry answer at any time of that day."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Final, cast

from delayed_topics_core.audit_window import AuditWindow
from delayed_topics_core.delay_list import DelayList
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_core.registry import AuditedRecord, Claim, TopicsRecord, encode
from delayed_topics_core.registry_state import RegistryState  # fmt: skip
from delayed_topics_core_testing.served import OWNER, serving
from delayed_topics_crds.audit import Window
from delayed_topics_kafka.model import TopicInfo
from delayed_topics_operator.audits.freeze import freeze
from delayed_topics_operator.gateways.kafka import KafkaLink
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from delayed_topics_audit_testing.rows import AT_MS, Place, Row, dead_letter, hop, kafka, level, release, retry

HOUR_MS: Final = 3_600_000
NAMES: Final = TopicNames.of("orders")
IDS: Final = dict.fromkeys(NAMES.topics, "id")
BEFORE: Final = LayoutSpec(delay_seconds=(0, 600, 10_800), partitions=3)
AFTER: Final = LayoutSpec(delay_seconds=(0, 900, 10_800), partitions=4)
CAP: Final = 3


@dataclass
class Topic:
    """The rows of a topic, in the order of their times. Each partition counts its own offsets."""

    rows: list[Row] = field(default_factory=list)

    def end(self, partition: int, at_ms: int) -> int:
        return sum(row[0] == partition and row[2] <= at_ms for row in self.rows)


@dataclass
class Day:
    """Everything that is appended and committed in a day.

    Times are milliseconds after rows.AT_MS. `grown_ms` is when the front topic and the ready topic got a third partition. `edited_ms` is
    when the delay list became AFTER."""

    hours: int
    grown_ms: int
    edited_ms: int
    topics: dict[str, Topic] = field(default_factory=lambda: {name: Topic() for name in NAMES.topics})
    commits: dict[TopicPartitionKey, list[tuple[int, int]]] = field(default_factory=dict)

    def append(self, topic: str, partition: int, at_ms: int, headers: Sequence[Header]) -> int:
        """Appends a row, and returns its offset. Within a partition, times must not go back."""
        rows = self.topics[topic].rows
        offset = sum(row[0] == partition for row in rows)
        assert all(row[2] <= at_ms for row in rows if row[0] == partition), (topic, partition, at_ms)
        rows.append((partition, offset, at_ms, headers))
        return offset

    def commit(self, topic: str, partition: int, offset: int, at_ms: int) -> None:
        self.commits.setdefault((topic, partition), []).append((at_ms, offset))

    def partitions(self, topic: str, at_ms: int) -> int:
        if topic == NAMES.delays:
            return 4 if at_ms >= self.edited_ms else 3
        return 1 if topic == NAMES.dead_letter else 3 if at_ms >= self.grown_ms else 2

    def freeze(self, at_ms: int, last: AuditedRecord | None) -> AuditWindow:
        """Returns the window that a link of the chain gets from the operator at that time."""
        link = cast(KafkaLink, Kafka(day=self, at_ms=at_ms, last=last))
        now = datetime.fromtimestamp(AT_MS / 1000, UTC) + timedelta(milliseconds=at_ms)
        asked = Window(since_last=True)
        frozen = asyncio.run(freeze(link, NAMES, OWNER, asked=asked, max_lateness_ms=60_000, now=now))
        assert isinstance(frozen, AuditWindow), frozen
        return frozen

    def reader(self, spark: SparkSession) -> Callable[[str, Sequence[int], Sequence[int]], DataFrame]:
        """Returns a reader of the day's topics, in the form of sources.Read."""
        every = {name: kafka(spark, topic.rows).localCheckpoint() for name, topic in self.topics.items()}

        def read(topic: str, starts: Sequence[int], ends: Sequence[int]) -> DataFrame:
            def limit(values: Sequence[int]) -> Column:
                return sf.get(sf.array(*map(sf.lit, values)), sf.col("partition"))

            return every[topic].where((sf.col("offset") >= limit(starts)) & (sf.col("offset") < limit(ends)))

        return read


@dataclass(frozen=True, kw_only=True)
class Kafka:
    """The reading methods of a KafkaLink, with the answers at one time of a Day."""

    day: Day
    at_ms: int
    last: AuditedRecord | None

    async def registry(self) -> RegistryState:
        edited, layout = self.at_ms >= self.day.edited_ms, initial(BEFORE)
        lists = [DelayList(delay_seconds=BEFORE.delay_seconds, retry_cap=CAP, from_ms=0)]
        if edited:
            layout = evolve(layout, AFTER)
            at_ms = AT_MS + self.day.edited_ms
            lists.append(DelayList(delay_seconds=AFTER.delay_seconds, retry_cap=CAP, from_ms=at_ms))
        front, delays = (self.day.partitions(name, self.at_ms) for name in (NAMES.front, NAMES.delays))
        known = {"retry_cap": CAP, "highest_retry_cap": CAP, "least_ready_partitions": 2, "lists": tuple(lists)}
        layout_record = serving(NAMES.front, layout, partitions=front, **known)
        starts = {NAMES.front: (0,) * front, NAMES.delays: (0,) * delays}
        topics = TopicsRecord(topic=NAMES.front, ids=IDS, start_offsets=starts)
        state = RegistryState()
        records = [Claim(topic=NAMES.front, owner=OWNER), layout_record, topics, *([self.last] if self.last else ())]
        for at, record in enumerate(records):
            state.apply(at, record.key, encode(record))
        return state

    async def topics(self, names: Sequence[str]) -> dict[str, TopicInfo | None]:
        def info(name: str) -> TopicInfo:
            count = self.day.partitions(name, self.at_ms)
            return TopicInfo(name=name, id=IDS[name], partitions=count, replication_factor=1, leaders_known=True)

        return {name: info(name) for name in names}

    async def committed(
        self, _group: str, partitions: Sequence[TopicPartitionKey]
    ) -> dict[TopicPartitionKey, OffsetAndMetadata | None]:
        def at(partition: TopicPartitionKey) -> OffsetAndMetadata:
            known = [offset for at_ms, offset in self.day.commits.get(partition, ()) if at_ms <= self.at_ms]
            return OffsetAndMetadata(max(known, default=0))

        return {partition: at(partition) for partition in partitions}

    async def offsets(self, partitions: Sequence[TopicPartitionKey], which: str) -> dict[TopicPartitionKey, int]:
        if which == "earliest":
            return dict.fromkeys(partitions, 0)
        return {place: self.day.topics[place[0]].end(place[1], self.at_ms) for place in partitions}

    async def offsets_at(self, times_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
        def first(place: TopicPartitionKey, at_ms: int) -> int | None:
            rows = [row for row in self.day.topics[place[0]].rows if row[0] == place[1] and row[2] <= self.at_ms]
            at = bisect_right([AT_MS + row[2] for row in rows], at_ms - 1)
            return rows[at][1] if at < len(rows) else None

        return {place: first(place, at_ms) for place, at_ms in times_ms.items()}


@dataclass(frozen=True, kw_only=True)
class Record:
    """The `nth` record that came in. `mark` says what happens to it."""

    nth: int
    root: Place
    attempt: int
    lane: int
    due_ms: int
    mark: str | None


MARKED: Final = {
    13: "comes again after hours", 20: "is lost", 31: "is early", 40: "is doubled", 70: "is copied", 25: "is dead", 50: "is dead",
}  # fmt: skip
AGAIN_MS: Final = {"comes again after hours": 5 * HOUR_MS, "is doubled": 2_000, "is copied": HOUR_MS // 2}
LANES: Final = {0: 0, 600: 1, 10_800: 2, 900: 3}
"""The partition of the delays topic for each delay in seconds."""
AWAY_MS: Final = (6 * HOUR_MS, 7 * HOUR_MS)
STEP_MS: Final = HOUR_MS // 12


class DayGenerator:
    """Generates a Day. A record comes in every five minutes. One in three waits for minutes, one in three for three hours, and some are
    retries.

    From the fourth hour on there are three partitions, and in the fifth hour the list is edited. The worker is away in the seventh hour,
    and then hops each record twice that came in meanwhile. MARKED says what happens to single records. The one that comes again after hours
    was settled by an audit long before; the one that is copied to the last byte was settled by the audit just before."""

    def __init__(self, hours: int) -> None:
        self.day = Day(hours=hours, grown_ms=3 * HOUR_MS + 1, edited_ms=4 * HOUR_MS + 1)
        self._turns = count()
        self._todo: list[tuple[int, int, Callable[[int], object]]] = []
        for nth in range(hours * 12):
            self._later(nth * STEP_MS + 5_000, partial(self._come, nth))

    def until_nothing_is_left(self) -> Day:
        while self._todo:
            at_ms, _, what = heappop(self._todo)
            what(at_ms)
        return self.day

    def _later(self, at_ms: int, what: Callable[[int], object]) -> None:
        heappush(self._todo, (at_ms, next(self._turns), what))

    def _by_worker(self, at_ms: int, what: Callable[[int], object]) -> None:
        self._later(AWAY_MS[1] + at_ms % 1000 if AWAY_MS[0] <= at_ms < AWAY_MS[1] else at_ms, what)

    def _come(self, nth: int, at_ms: int) -> None:
        kind, mark = nth % 3, MARKED.get(nth)
        attempt = CAP + 1 if mark == "is dead" else 1 if nth % 7 == 0 and kind == 1 else 0
        headers = retry(attempt, f"chain-{nth // 14}") if attempt else level(kind + 1)
        partition = nth % self.day.partitions(NAMES.front, at_ms)
        seconds = (AFTER if at_ms >= self.day.edited_ms else BEFORE).delay_seconds[kind]
        record = Record(
            nth=nth,
            root=("f", partition, self.day.append(NAMES.front, partition, at_ms, headers)),
            attempt=attempt,
            lane=LANES[seconds],
            due_ms=at_ms + seconds * 1000,
            mark=mark,
        )
        self._by_worker(at_ms + 10, partial(self._take, record))

    def _take(self, record: Record, at_ms: int) -> None:
        day, (_, partition, offset) = self.day, record.root
        if record.mark == "is dead":
            day.append(NAMES.dead_letter, 0, at_ms, dead_letter(record.root, attempt=record.attempt))
        elif record.due_ms <= at_ms:
            self._release(record, record.root, at_ms)
        else:
            for _ in range(2 if 0 <= at_ms - AWAY_MS[1] < 1000 else 1):
                headers = hop(record.root, record.due_ms, root=record.root)
                origin: Place = ("d", record.lane, day.append(NAMES.delays, record.lane, at_ms, headers))
                early_ms = 1000 if record.mark == "is early" else 0
                self._by_worker(record.due_ms - early_ms, partial(self._release, record, origin))
        day.commit(NAMES.front, partition, offset + 1, at_ms)

    def _release(self, record: Record, origin: Place, at_ms: int) -> None:
        day, mark = self.day, record.mark
        ready = record.root[1] % day.partitions(NAMES.ready, at_ms)

        def copy(wrote_ms: int) -> list[Header]:
            return release(origin, record.due_ms, root=record.root, attempt=record.attempt, wrote_ms=wrote_ms)

        if mark != "is lost":
            day.append(NAMES.ready, ready, at_ms, copy(at_ms))
        if mark in AGAIN_MS:
            again_ms = at_ms + AGAIN_MS[mark]
            headers = copy(at_ms if mark == "is copied" else again_ms)
            self._later(again_ms, partial(day.append, NAMES.ready, ready, headers=headers))
        if origin[0] == "d":
            day.commit(NAMES.delays, origin[1], origin[2] + 1, at_ms)
