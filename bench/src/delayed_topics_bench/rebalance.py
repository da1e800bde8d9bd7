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
from threading import Event, Thread
from typing import Any, Literal, Protocol, Self

from confluent_kafka import Consumer, TopicPartition
from delayed_topics_devcluster.pace import paced
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.world import Declared
from numpy import percentile

from delayed_topics_bench.stand import Stand

__all__ = ["EVENTS", "SETUPS", "EventKind", "Interruption", "Setup", "interruption", "rebalance"]

EventKind = Literal["join", "leave", "restart", "kill"]
EVENTS: tuple[EventKind, ...] = ("join", "leave", "restart", "kill")
"""`restart`: SIGKILL, and a new process of the same name at once. `kill`: SIGKILL for good."""
PER_PARTITION_PER_SECOND = 34
LATE_MS = 100
"""From sending to the append in the ready topic: what takes longer counts as late."""
CALM_SECONDS = 3.0
"""A rebalance is over when every partition gave records for so long."""
TIMEOUT_SECONDS = 120.0

Owners = Mapping[tuple[str, int], str]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Who serves. `worker`: fields of worker.json. `plain`: settings of a consumer that only forwards what it gets."""

    worker: Mapping[str, str] | None = None
    plain: Mapping[str, str] | None = None


SETUPS: Mapping[str, Setup] = {
    "worker, Classic, Range": Setup(worker={"protocol": "classic", "assignor": "Range"}),
    "worker, Classic, Sticky": Setup(worker={"protocol": "classic", "assignor": "Sticky"}),
    "worker, Consumer, Uniform": Setup(worker={"protocol": "consumer", "assignor": "Uniform"}),
    "plain consumer, its defaults": Setup(plain={}),
    "plain consumer, our timeouts": Setup(plain={"session.timeout.ms": "10000", "heartbeat.interval.ms": "2000"}),
}


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """`convergence_s`: from the event until the last partition that had been interrupted gave records again. The pauses are the longest
    of each partition, beyond what the load itself makes: of those with another owner the median and the longest, of the others
    p99. Those of a member that was started again count as moved. `late`: records that came over LATE_MS after they were sent."""

    convergence_s: float
    moved: int
    moved_pause_ms: float
    moved_pause_most_ms: float
    undisturbed_pause_p99_ms: float
    late: int


def interruption(
    appends_ms: Mapping[int, Sequence[int]],
    sent_ms: Mapping[int, Sequence[int]],
    *,
    event_ms: int,
    moved: frozenset[int],
    interval_ms: float,
) -> Interruption:
    """`appends_ms`, `sent_ms`: of the records of each partition of the ready topic, in their order, from before the event to long after."""
    pauses: dict[int, float] = {}
    resumed_ms = event_ms
    for partition, times in appends_ms.items():
        begin = max(0, bisect_left(times, event_ms) - 1)
        gaps = [(after - before, after) for before, after in pairwise(times[begin:])]
        longest, ended_ms = max(gaps, default=(0, event_ms))
        pauses[partition] = max(0.0, longest - interval_ms)
        if pauses[partition] > interval_ms:
            resumed_ms = max(resumed_ms, ended_ms)
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
        moved_pause_ms=median(of_moved) if of_moved else 0.0,
        moved_pause_most_ms=max(of_moved, default=0.0),
        undisturbed_pause_p99_ms=float(percentile(others, 99)) if others else 0.0,
        late=late,
    )


class Member(Protocol):
    """One of the group, a process."""

    def terminate(self) -> int: ...
    def kill(self) -> None: ...


class _Forwarder:
    """A process of `forwarder`."""

    def __init__(self, stand: Stand, topic: Declared, member: str, settings: Mapping[str, str]) -> None:
        sources = f"{topic.names.front},{topic.names.delays}"
        arguments = (stand.bootstrap, topic.names.group, member, sources, topic.names.ready, json.dumps(settings))
        with (stand.directory / f"{member}.log").open("ab") as log:
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

    stand: Stand
    topic: Declared
    setup: Setup
    members: dict[int, Member]

    def start(self, number: int) -> None:
        name = f"{self.topic.names.front}-{number}"
        if self.setup.plain is not None:
            self.members[number] = _Forwarder(self.stand, self.topic, name, self.setup.plain)
        else:
            config: Mapping[str, Any] = self.setup.worker or {}
            self.members[number] = self.stand.world.start(self.topic, member=name, ready=False, **config)

    def owners(self) -> Owners:
        group: Any = self.stand.world.admin.describe_groups([self.topic.names.group])[self.topic.names.group]
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
            what=f"{len(self.members)} members share {self.topic.names.front} (see {self.stand.directory})",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        return owners

    def make(self, event: EventKind) -> None:
        """Lets it happen to the last member, or to one more."""
        last = max(self.members)
        match event:
            case "join":
                self.start(last + 1)
            case "leave":
                self.members.pop(last).terminate()
            case "kill":
                self.members.pop(last).kill()
            case "restart":
                self.members[last].kill()
                self.start(last)

    def end(self) -> None:
        for member in self.members.values():
            member.kill()


@contextmanager
def _load(topic: Declared) -> Iterator[None]:
    """Records into each front partition at a steady pace, each with the time at which it was sent."""
    partitions = topic.record.front_partitions

    def send(number: int) -> None:
        topic.produce(b"%d" % int(time.time() * 1000), partition=number % partitions)

    with paced(send, lambda: PER_PARTITION_PER_SECOND * partitions):
        yield
    topic.flush()


class _Received:
    """What comes to the ready topic, by partition: when it was appended, and when it was sent. Read until it is left."""

    def __init__(self, stand: Stand, topic: Declared) -> None:
        partitions = range(topic.record.ready_partitions)
        self.appends_ms: dict[int, list[int]] = {partition: [] for partition in partitions}
        self.sent_ms: dict[int, list[int]] = {partition: [] for partition in partitions}
        self._consumer = Consumer(
            {"bootstrap.servers": stand.bootstrap, "group.id": "none", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic.names.ready, partition, 0) for partition in partitions])
        self._ended = Event()
        self._thread = Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    partition = message.partition() or 0
                    self.sent_ms[partition].append(int(message.value() or b"0"))
                    self.appends_ms[partition].append(message.timestamp()[1])

    def wait_calm(self, *, after_ms: int = 0) -> None:
        """Until each partition has given records for a while, without a gap, after that time."""
        most_ms = 10 * 1000 / PER_PARTITION_PER_SECOND

        def calm() -> bool:
            now_ms = int(time.time() * 1000)
            since_ms = now_ms - CALM_SECONDS * 1000
            moments = (
                [since_ms, *(at for at in times if at > since_ms), now_ms] for times in list(self.appends_ms.values())
            )
            return since_ms >= after_ms and all(
                after - before < most_ms for times in moments for before, after in pairwise(times)
            )

        wait_until(
            calm,
            what="every partition gives records all the time",
            timeout_seconds=TIMEOUT_SECONDS,
            poll_seconds=0.5,
            evidence=lambda: {partition: times[-3:] for partition, times in self.appends_ms.items()},
        )


def rebalance(stand: Stand, setup: Setup, *, members: int, partitions: int, event: EventKind) -> Interruption:
    """One event in a group that has settled and is busy."""
    with stand.declared((0,), partitions=partitions) as topic, _Received(stand, topic) as received:
        group = _Group(stand, topic, setup, {})
        try:
            with _load(topic):
                for number in range(members):
                    group.start(number)
                before = group.wait_settled()
                received.wait_calm()
                event_ms = int(time.time() * 1000)
                group.make(event)
                after = group.wait_settled()
                received.wait_calm(after_ms=event_ms)
        finally:
            group.end()
    gone = f"{topic.names.front}-{members - 1}" if event == "restart" else None
    moved = frozenset(
        place[1]
        for place, owner in before.items()
        if place[0] == topic.names.front and (owner != after[place] or owner == gone)
    )
    return interruption(
        received.appends_ms,
        received.sent_ms,
        event_ms=event_ms,
        moved=moved,
        interval_ms=1000 / PER_PARTITION_PER_SECOND,
    )
