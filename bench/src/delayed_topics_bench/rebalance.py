"""Rebalances busy groups by several events: workers with each protocol and assignor, and plain consumers for comparison."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from confluent_kafka import Consumer, TopicPartition
from delayed_topics_devcluster.pace import paced, repeated
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.generations import recorded_generations
from delayed_topics_worker_testing.harness import DeclaredTopic

from delayed_topics_bench.interruption import CALM_SECONDS, Interruption, Owners, interruption, moved_since
from delayed_topics_bench.testbed import Testbed

__all__ = ["EVENTS", "SETUPS", "EventKind", "Setup", "rebalance"]

EventKind = Literal["join", "leave", "restart", "kill", "grow"]
EVENTS: tuple[EventKind, ...] = ("join", "leave", "restart", "kill", "grow")
"""`leave`: a member is scaled down. `restart`: SIGKILL, and a new process of the same name at once. `kill`: SIGKILL without a new process.
`grow`: the topics get half as many partitions more."""
PER_PARTITION_PER_SECOND = 34
STEADY_GAP_MS = 200
"""The event comes when every partition has given records for CALM_SECONDS without such a gap. Without this wait, members that have just
started would set the floor that an interruption has to exceed. The gap is far longer than those of a quiet group."""
CALM_GAP_MS = 1000
"""The measurement ends when they have done so again without such a gap."""
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What the members of a group are. `worker`: fields of worker.json. `plain`: settings of a consumer that only forwards records."""

    worker: Mapping[str, str] | None = None
    plain: Mapping[str, str] | None = None

    @property
    def protocol(self) -> str:
        return (self.worker or {}).get("protocol", "classic")

    @property
    def sees_growth(self) -> bool:
        """A plain consumer doesn't: by default, it refreshes its metadata every five minutes."""
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


class Member(Protocol):
    """A process that is a member of the group."""

    def wait_up(self) -> None: ...
    def terminate(self) -> int: ...
    def kill(self) -> None: ...


class _Forwarder:
    """A process that runs `forwarder`."""

    def __init__(self, testbed: Testbed, topic: DeclaredTopic, member: str, settings: Mapping[str, str]) -> None:
        sources = f"{topic.names.front},{topic.names.delays}"
        arguments = (testbed.bootstrap, topic.names.group, member, sources, topic.names.ready, json.dumps(settings))
        self._log = testbed.directory / f"{member}.log"
        with self._log.open("ab") as log:
            program = [sys.executable, "-m", "delayed_topics_bench.forwarder", *arguments]
            self._process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log)

    def wait_up(self) -> None:
        """Waits for the line that the process prints when it is up."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"the forwarder has ended (see {self._log})"

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

    def name(self, number: int) -> str:
        return f"{self.topic.names.front}-{number}"

    def start(self, number: int) -> None:
        name = self.name(number)
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
        """Waits until each partition has an owner, and returns the owners."""
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

    def trigger(self, event: EventKind) -> None:
        """Triggers the event for the last member, for a new one, or for the topics."""
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
    """Produces records to each front partition at a steady pace. The value is the time of sending.

    All partitions get their records at the same time. If the records were spread out, the broker would have to answer thousands of
    requests a second, and would be the bottleneck.
    """

    def send(_: int) -> None:
        now = b"%d" % _now_ms()
        for partition in range(topic.record.front_partitions):
            topic.produce(now, partition=partition)

    with paced(send, lambda: PER_PARTITION_PER_SECOND):
        yield
    topic.flush()


class _Received:
    """The records of the ready topic by partition: when they were appended, and when they were sent."""

    def __init__(self, topic: DeclaredTopic, consumer: Consumer) -> None:
        self._topic, self._consumer = topic.names.ready, consumer
        self.appends_ms: dict[int, list[int]] = {}
        self.sent_ms: dict[int, list[int]] = {}
        self._assigned = 0
        self.follow(topic.record.ready_partitions)

    def follow(self, partitions: int) -> None:
        """Reads this many partitions from now on."""
        new = range(len(self.appends_ms), partitions)
        self.sent_ms.update({partition: [] for partition in new})
        self.appends_ms.update({partition: [] for partition in new})

    def read(self) -> None:
        # in the thread that reads: the client (2.16) makes another thread wait for as long as this one keeps calling it
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
        """Waits until each partition has given records for CALM_SECONDS after `after_ms`, without a gap of `gap_ms`."""

        def calm() -> bool:
            now_ms = _now_ms()
            since_ms = now_ms - CALM_SECONDS * 1000
            moments = (
                [since_ms, *(at for at in times if at > since_ms), now_ms] for times in list(self.appends_ms.values())
            )
            return since_ms >= after_ms and all(
                after - before < gap_ms for times in moments for before, after in pairwise(times)
            )

        wait_until(
            calm,
            what="every partition gives records without a gap",
            timeout_seconds=TIMEOUT_SECONDS,
            poll_seconds=0.5,
            evidence=lambda: {partition: times[-3:] for partition, times in self.appends_ms.items()},
        )


@contextmanager
def _received(testbed: Testbed, topic: DeclaredTopic) -> Iterator[_Received]:
    """Reads the ready topic until the block ends."""
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
    """Measures one event in a group that has settled and is busy."""
    with testbed.declared((0,), partitions=partitions) as topic, _received(testbed, topic) as received:
        group = _Group(testbed, topic, setup, {})
        try:
            with _load(topic):
                for number in range(members):
                    group.start(number)
                before = group.wait_settled()
                received.wait_calm(gap_ms=STEADY_GAP_MS)
                event_ms = _now_ms()
                group.trigger(event)
                received.follow(topic.record.ready_partitions)
                last, up_ms = max(group.members), None
                if event in ("join", "restart"):
                    group.members[last].wait_up()
                    up_ms = _now_ms()
                after = group.wait_settled()
                received.wait_calm(gap_ms=CALM_GAP_MS, after_ms=event_ms)
            recorded = recorded_generations(topic, setup.protocol)
        finally:
            group.end()
    its = {"restart": before, "join": after}.get(event, {})
    own = {place for place, owner in its.items() if owner == group.name(last)}
    return interruption(
        received.appends_ms,
        received.sent_ms,
        event_ms=event_ms,
        moved=_of_front(topic, own | moved_since(before, recorded, event_ms=event_ms)),
        interval_ms=1000 / PER_PARTITION_PER_SECOND,
        own=_of_front(topic, own),
        up_ms=up_ms,
    )


def _of_front(topic: DeclaredTopic, places: Collection[tuple[str, int]]) -> frozenset[int]:
    return frozenset(number for name, number in places if name == topic.names.front)


def _now_ms() -> int:
    return int(time.time() * 1000)
