"""What a rebalance does to those who wait for records: by the append times in the ready topic, whatever workers say of themselves."""

import json
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal, Protocol

from confluent_kafka import Consumer, TopicPartition
from delayed_topics_devcluster.pace import paced, repeated
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.generations import Generation, noted_by_kafka
from delayed_topics_worker_testing.harness import DeclaredTopic
from numpy import percentile

from delayed_topics_bench.testbed import Testbed

__all__ = ["EVENTS", "SETUPS", "EventKind", "Interruption", "Setup", "interruption", "moved_since", "rebalance"]

EventKind = Literal["join", "leave", "restart", "kill", "grow"]
EVENTS: tuple[EventKind, ...] = ("join", "leave", "restart", "kill", "grow")
"""`leave`: scaled away. `restart`: SIGKILL, and a new process of the same name at once. `kill`: SIGKILL for good. `grow`: the topics get
half as many partitions more."""
PER_PARTITION_PER_SECOND = 34
LATE_MS = 100
"""From sending to the append in the ready topic: what takes longer counts as late."""
CALM_SECONDS = 3.0
"""The event comes when every partition gave records for so long, with no gap of STEADY_GAP_MS, and the measurement ends when they did so
again, with no gap of CALM_GAP_MS."""
STEADY_GAP_MS = 200
"""Far above what a quiet group shows: members that have just started would otherwise set the floor that an interruption must exceed."""
CALM_GAP_MS = 1000
TIMEOUT_SECONDS = 120.0

Owners = Mapping[tuple[str, int], str]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Who serves. `worker`: fields of worker.json. `plain`: settings of a consumer that only forwards what it gets."""

    worker: Mapping[str, str] | None = None
    plain: Mapping[str, str] | None = None

    @property
    def protocol(self) -> str:
        return (self.worker or {}).get("protocol", "classic")

    @property
    def sees_growth(self) -> bool:
        """By default a plain consumer looks every five minutes."""
        return self.plain != {}


SETUPS: Mapping[str, Setup] = {
    "worker, Classic, Range": Setup(worker={"protocol": "classic", "assignor": "Range"}),
    "worker, Classic, Sticky": Setup(worker={"protocol": "classic", "assignor": "Sticky"}),
    "worker, Consumer, Uniform": Setup(worker={"protocol": "consumer", "assignor": "Uniform"}),
    "plain consumer, its defaults": Setup(plain={}),
    "plain consumer, our timeouts": Setup(
        plain={
            "session.timeout.ms": "10000",
            "heartbeat.interval.ms": "500",
            "topic.metadata.refresh.interval.ms": "5000",
        }
    ),
}


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """`convergence_s`: from the event until the last partition that was interrupted gave records again: one whose pause was longer than
    `floor_ms`, the longest of any partition while nothing happened, for CALM_SECONDS before the event. The pauses are the longest
    of each partition, beyond what the load itself makes: of those that had another owner, if only in between, the median and the
    longest, of the others p99. Those of a member that was started again count as moved, and so do new ones, whose pause is from the
    event to their first record. There may be none: the broker assigns the topics in turn, and what the member had may be of the
    delays topic alone.
    `late`: records that came over LATE_MS after they were sent."""

    convergence_s: float
    moved: int
    moved_pause_ms: float | None
    moved_pause_most_ms: float | None
    undisturbed_pause_p99_ms: float
    floor_ms: float
    late: int


def moved_since(before: Owners, generations: Sequence[Generation], *, event_ms: int) -> frozenset[tuple[str, int]]:
    """Those that somebody got in a generation since the event who did not have them then. `generations`: as Kafka has noted them."""
    owners = dict(before)
    moved: set[tuple[str, int]] = set()
    for generation in generations:
        if generation.at_ms >= event_ms:
            moved |= {place for place, owner in generation.owners.items() if owners.get(place) != owner}
            owners |= generation.owners
    return frozenset(moved)


def interruption(
    appends_ms: Mapping[int, Sequence[int]],
    sent_ms: Mapping[int, Sequence[int]],
    *,
    event_ms: int,
    moved: frozenset[int],
    interval_ms: float,
) -> Interruption:
    """`appends_ms`, `sent_ms`: of the records of each partition of the ready topic, in their order, from before the event to long after."""
    floor_ms = interval_ms
    longest: dict[int, tuple[int, int]] = {}
    for partition, times in appends_ms.items():
        begin = bisect_left(times, event_ms) - 1
        calm = times[bisect_left(times, event_ms - CALM_SECONDS * 1000) : begin + 1]
        floor_ms = max(floor_ms, *(after - before for before, after in pairwise(calm)), 0)
        since = times[begin:] if begin >= 0 else [event_ms, *times]
        longest[partition] = max(((after - before, after) for before, after in pairwise(since)), default=(0, event_ms))
    pauses = {partition: max(0.0, pause - interval_ms) for partition, (pause, _) in longest.items()}
    resumed_ms = max((ended for pause, ended in longest.values() if pause > floor_ms), default=event_ms)
    of_moved = sorted(pauses[p] for p in pauses if p in moved)
    others = sorted(pauses[p] for p in pauses if p not in moved)
    late = sum(
        append - sent > LATE_MS
        for partition, times in appends_ms.items()
        for append, sent in zip(times, sent_ms[partition], strict=True)
        if append >= event_ms
    )
    return Interruption(
        convergence_s=(resumed_ms - event_ms) / 1000,
        moved=len(moved),
        moved_pause_ms=median(of_moved) if of_moved else None,
        moved_pause_most_ms=max(of_moved, default=None),
        undisturbed_pause_p99_ms=float(percentile(others, 99)) if others else 0.0,
        floor_ms=floor_ms - interval_ms,
        late=late,
    )


class Member(Protocol):
    """One of the group, a process."""

    def terminate(self) -> int: ...
    def kill(self) -> None: ...


class _Forwarder:
    """A process of `forwarder`."""

    def __init__(self, testbed: Testbed, topic: DeclaredTopic, member: str, settings: Mapping[str, str]) -> None:
        sources = f"{topic.names.front},{topic.names.delays}"
        arguments = (testbed.bootstrap, topic.names.group, member, sources, topic.names.ready, json.dumps(settings))
        with (testbed.directory / f"{member}.log").open("ab") as log:
            program = [sys.executable, "-m", "delayed_topics_bench.forwarder", *arguments]
            self._process = subprocess.Popen(program, stdout=log, stderr=log)

    def terminate(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


@dataclass
class _Group:
    """The members that serve a delayed topic, by number."""

    testbed: Testbed
    topic: DeclaredTopic
    setup: Setup
    members: dict[int, Member]

    def start(self, number: int) -> None:
        name = f"{self.topic.names.front}-{number}"
        if self.setup.plain is not None:
            self.members[number] = _Forwarder(self.testbed, self.topic, name, self.setup.plain)
        else:
            config: Mapping[str, Any] = self.setup.worker or {}
            self.members[number] = self.testbed.harness.start(self.topic, member=name, ready=False, **config)

    def owners(self) -> Owners:
        group: Any = self.testbed.harness.admin.describe_groups([self.topic.names.group])[self.topic.names.group]
        if not group.settled or len(group.members) != len(self.members):
            return {}
        return {place: member.client_id for member in group.members for place in member.assignment}

    def wait_settled(self) -> Owners:
        """Who has what, once everything has somebody."""
        wanted = self.topic.record.front_partitions + self.topic.record.layout.partition_count
        owners: Owners = {}

        def settled() -> bool:
            nonlocal owners
            owners = self.owners()
            return len(owners) == wanted

        wait_until(
            settled,
            what=f"{len(self.members)} members share {self.topic.names.front} (see {self.testbed.directory})",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        return owners

    def make(self, event: EventKind) -> None:
        """Lets it happen to the last member, to one more, or to the topics."""
        last = max(self.members)
        match event:
            case "join":
                self.start(last + 1)
            case "leave":
                self.topic.change(workers=len(self.members) - 1)
                self.members.pop(last).terminate()
            case "kill":
                self.members.pop(last).kill()
            case "restart":
                self.members[last].kill()
                self.start(last)
            case "grow":
                self.topic.grow_front(self.topic.record.front_partitions * 3 // 2)

    def end(self) -> None:
        for member in self.members.values():
            member.kill()


@contextmanager
def _load(topic: DeclaredTopic) -> Iterator[None]:
    """Records into each front partition at a steady pace, each with the time at which it was sent. All partitions get theirs at the
    same time: with records one by one the broker had to answer thousands of requests a second, and was what everybody waited for."""

    def send(_: int) -> None:
        now = b"%d" % int(time.time() * 1000)
        for partition in range(topic.record.front_partitions):
            topic.produce(now, partition=partition)

    with paced(send, lambda: PER_PARTITION_PER_SECOND):
        yield
    topic.flush()


class _Received:
    """What comes to the ready topic, by partition: when it was appended, and when it was sent."""

    def __init__(self, topic: DeclaredTopic, consumer: Consumer) -> None:
        self._topic, self._consumer = topic.names.ready, consumer
        self.appends_ms: dict[int, list[int]] = {}
        self.sent_ms: dict[int, list[int]] = {}
        self._assigned = 0
        self.follow(topic.record.ready_partitions)

    def follow(self, partitions: int) -> None:
        """So many, from now on."""
        new = range(len(self.appends_ms), partitions)
        self.sent_ms.update({partition: [] for partition in new})
        self.appends_ms.update({partition: [] for partition in new})

    def read(self) -> None:
        # by the thread that reads: the client (2.16) lets another one wait for as long as this one calls it again and again
        new = range(self._assigned, len(self.appends_ms))
        if new:
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, 0) for partition in new])
            self._assigned = new.stop
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                partition = message.partition() or 0
                self.sent_ms[partition].append(int(message.value() or b"0"))
                self.appends_ms[partition].append(message.timestamp()[1])

    def wait_calm(self, *, gap_ms: int, after_ms: int = 0) -> None:
        """Until each partition has given records for a while, without a gap of `gap_ms`, after that time."""

        def calm() -> bool:
            now_ms = int(time.time() * 1000)
            since_ms = now_ms - CALM_SECONDS * 1000
            moments = (
                [since_ms, *(at for at in times if at > since_ms), now_ms] for times in list(self.appends_ms.values())
            )
            return since_ms >= after_ms and all(
                after - before < gap_ms for times in moments for before, after in pairwise(times)
            )

        wait_until(
            calm,
            what="every partition gives records all the time",
            timeout_seconds=TIMEOUT_SECONDS,
            poll_seconds=0.5,
            evidence=lambda: {partition: times[-3:] for partition, times in self.appends_ms.items()},
        )


@contextmanager
def _received(testbed: Testbed, topic: DeclaredTopic) -> Iterator[_Received]:
    """Read until the block ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": testbed.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    received = _Received(topic, consumer)
    with repeated(received.read):
        yield received
    consumer.close()


def rebalance(testbed: Testbed, setup: Setup, *, members: int, partitions: int, event: EventKind) -> Interruption:
    """One event in a group that has settled and is busy."""
    with testbed.declared((0,), partitions=partitions) as topic, _received(testbed, topic) as received:
        group = _Group(testbed, topic, setup, {})
        try:
            with _load(topic):
                for number in range(members):
                    group.start(number)
                before = group.wait_settled()
                received.wait_calm(gap_ms=STEADY_GAP_MS)
                event_ms = int(time.time() * 1000)
                group.make(event)
                received.follow(topic.record.ready_partitions)
                group.wait_settled()
                received.wait_calm(gap_ms=CALM_GAP_MS, after_ms=event_ms)
            noted = noted_by_kafka(topic, setup.protocol)
        finally:
            group.end()
    gone = f"{topic.names.front}-{members - 1}" if event == "restart" else None
    of_gone = {place for place, owner in before.items() if owner == gone}
    moved = of_gone | moved_since(before, noted, event_ms=event_ms)
    return interruption(
        received.appends_ms,
        received.sent_ms,
        event_ms=event_ms,
        moved=frozenset(number for name, number in moved if name == topic.names.front),
        interval_ms=1000 / PER_PARTITION_PER_SECOND,
    )
