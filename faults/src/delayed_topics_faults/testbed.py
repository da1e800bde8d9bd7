"""The testbed of a row: brokers, one delayed topic, its workers, and the independent reader."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata
from delayed_topics_core.headers import Header
from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_devcluster.broker import Broker
from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.kafka import java_tool, limit_producer
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import GroupInfo, TopicInfo
from delayed_topics_worker.config import Guarantee
from delayed_topics_worker_testing.generations import owners_now
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.copies import EXPECT, Copy
from delayed_topics_faults.judge import MAX_DOUBLED, Seen, Terms
from delayed_topics_faults.reader import Reader

TICK_SECONDS: Final = 0.01
SETTLE_SECONDS: Final = 60.0
DUE_TIMES: Final = 0.1
AHEAD_MS: Final = 4000
LATE_MS: Final = 5000
"""Promise T: how late a record may be once the fault is over."""


def now_ms() -> int:
    """Returns the brokers' time, since they use this machine's clock."""
    return int(time.time() * 1000)


class Load(Closing):
    """A thread that produces records with all delays to all front partitions. Use it as a context manager; the exit waits for the thread.

    `due_times`: the share of records with a due time of their own, if the topic has a ladder. `ahead_ms`: how far ahead a due time may be.
    """

    def __init__(
        self,
        orders: DeclaredTopic,
        rng: Random,
        *,
        records: int,
        per_second: int,
        levels: Sequence[int] | None = None,
        due_times: float = DUE_TIMES,
        ahead_ms: int = AHEAD_MS,
    ) -> None:
        self.seconds = records / per_second
        self._orders = orders
        self._rng = Random(rng.random())
        self._records = records
        self._per_tick = max(1, int(per_second * TICK_SECONDS))
        self._tick_seconds = self._per_tick / per_second
        self._due_times, self._ahead_ms = due_times, ahead_ms
        self._levels = levels or range(1, len(orders.record.layout.delay_seconds) + 1)
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits until all records are produced and acknowledged."""
        self._thread.join()
        self._orders.flush()

    def _run(self) -> None:
        sent, next_at = 0, time.monotonic()
        while sent < self._records:
            for _ in range(min(self._per_tick, self._records - sent)):
                self._produce(sent)
                sent += 1
            next_at += self._tick_seconds
            time.sleep(max(0.0, next_at - time.monotonic()))

    def _produce(self, number: int) -> None:
        rng, record = self._rng, self._orders.record
        headers: list[Header] = [("x-n", b"%d" % number)]
        if record.layout.ladder_seconds and rng.random() < self._due_times:
            at_ms = now_ms() + rng.randint(-500, self._ahead_ms)
            headers += [(EXPECT, b"at:%d" % at_ms), ("dt-deliver-at", b"%d" % at_ms)]
        else:
            level = rng.choice(self._levels)
            headers.append(expect_ready(record.layout.delay_for_level(level)))
            if level != 1 or rng.random() < 0.5:
                headers.append(("dt-delay-level", b"%d" % level))
        if rng.random() < 0.1:
            headers.append(("dt-id", b"id-%d" % number))
        key = b"%d" % number if rng.random() < 0.7 else None
        self._orders.produce(
            rng.randbytes(rng.randint(0, 200)),
            key=key,
            headers=headers,
            partition=rng.randrange(record.front_partitions),
        )


def member_name(number: int) -> str:
    """Returns the name of a worker, which is like that of a pod of a StatefulSet and also its client id."""
    return f"orders-{number}"


def expect_ready(delay_seconds: int) -> Header:
    return EXPECT, b"ready:%d" % (delay_seconds * 1000)


class Testbed(Closing):
    """One delayed topic serves all trials of a row, unless the row declares another one."""

    def __init__(self, directory: Path, bootstrap: str, *, replication_factor: int = 1) -> None:
        self.directory = directory
        quiet = Connection(bootstrap_servers=bootstrap, further={"log_level": "2"})  # rows stop brokers on purpose
        self.harness = WorkerHarness(quiet, directory, replication_factor=replication_factor)
        self.reader = Reader(bootstrap, directory / "reader.log")
        self.not_awaited: set[TopicPartitionKey] = set()
        """Source partitions for which `settled` doesn't wait."""
        self.guarantee: Guarantee = "AtLeastOnce"
        self._admin = AdminClient(self.harness.connection.client_config())
        self._next_offsets: dict[str, tuple[int, ...]] = {}
        self._programs: list[subprocess.Popen[bytes]] = []
        self.orders: DeclaredTopic

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        self.reader.close()
        self.harness.close()

    def declare(self, delay_seconds: Sequence[int] = (0, 1, 2), **further: Any) -> DeclaredTopic:
        self.orders = self.harness.declare(delay_seconds, **further)
        return self.orders

    def start(self, number: int = 0, *beside: DeclaredTopic, **further: Any) -> WorkerProcess:
        """Starts worker `number` of the delayed topic and of those `beside` it, as a static member, like a pod of a StatefulSet."""
        return self.harness.start(self.orders, *beside, member=member_name(number), guarantee=self.guarantee, **further)

    def run(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Runs a Python module beside the workers until the testbed closes."""
        with (self.directory / f"{module}.log").open("ab") as log:
            program = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=log, stderr=log)
        self._programs.append(program)
        return program

    def expected(self, level: int) -> Header:
        """Returns the header that says what has to become of a record of this delay level."""
        return expect_ready(self.orders.record.layout.delay_for_level(level))

    def load(self, rng: Random, *, records: int, per_second: int, **further: Any) -> Load:
        return Load(self.orders, rng, records=records, per_second=per_second, **further)

    def wait_in_sync(self) -> None:
        """Waits until each partition of the cluster has a leader and all of its replicas in sync."""
        self._wait_for_all(
            lambda found: len(found.isrs) == len(found.replicas) and found.leader >= 0, what="all replicas are in sync"
        )

    def wait_out_of_sync(self, broker: Broker) -> None:
        """Waits until no partition counts on a broker that was killed. Until then, every write to its partitions waits for it."""
        self._wait_for_all(
            lambda found: broker.node_id not in found.isrs, what=f"no replica of broker {broker.node_id} is in sync"
        )

    def _wait_for_all(self, is_so: Callable[[PartitionMetadata], bool], *, what: str) -> None:
        def all_so() -> bool:
            try:
                topics = self._admin.list_topics(timeout=5).topics.values()
            except KafkaException:
                return False
            return all(is_so(partition) for topic in topics for partition in topic.partitions.values())

        wait_until(all_so, what=what, timeout_seconds=90)

    def elect(self) -> None:
        """Moves leaders back to their preferred brokers. Uses Kafka's own tool, because the client library (2.16) crashes."""
        java_tool(
            "org.apache.kafka.tools.LeaderElectionCommand",
            *("--bootstrap-server", self.harness.connection.bootstrap_servers),
            *("--election-type", "preferred", "--all-topic-partitions"),
        )

    def limit_copies(self, bytes_per_second: int | None) -> None:
        """Sets Kafka's producer quota for worker 0; None removes it."""
        limit_producer(self.harness.connection.bootstrap_servers, member_name(0), bytes_per_second)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Deletes records as retention does."""
        for deleted in self._admin.delete_records([TopicPartition(topic, partition, before)]).values():
            deleted.result(20)

    def empty_group(self) -> None:
        """Waits until the group has no members. A static member stays until its session is over."""
        group = self.orders.record.group

        def empty() -> bool:
            info = self.harness.admin.describe_groups([group])[group]
            return isinstance(info, GroupInfo) and not info.members

        wait_until(empty, what=f"group {group} has no members", timeout_seconds=30)

    def partitions_of(self, number: int) -> frozenset[str] | None:
        """Returns the source partitions assigned to worker `number`, written as origins begin (`f:0`); None if it has none."""
        letters = {self.orders.names.front: "f", self.orders.names.delays: "d"}
        owners = owners_now(self.orders)
        return (
            frozenset(f"{letters[t]}:{p}" for (t, p), owner in owners.items() if owner == member_name(number)) or None
        )

    def settled(self, timeout_seconds: float = SETTLE_SECONDS) -> bool:
        """Waits until all source partitions are committed to their end. Returns False at the timeout."""
        try:
            wait_until(
                lambda: not self.unsettled(),
                what="everything is committed",
                timeout_seconds=timeout_seconds,
                poll_seconds=0.2,
            )
        except NotInTimeError:
            return False
        return True

    def unsettled(self) -> list[str]:
        """Describes the source partitions that are not committed to their end. Reads commits before ends, so that none is missed."""
        topics, names = self.orders.topics, self.orders.names
        sources = [(topic, p) for topic in (names.front, names.delays) for p in range(len(topics.start_offsets[topic]))]
        try:
            committed = self.orders.committed()
        except KafkaException as e:
            return [str(e)]
        ends = self.harness.admin.list_offsets(sources, "latest")
        waiting: dict[TopicPartitionKey, str] = {}
        for source in set(sources) - self.not_awaited:
            at, end = committed.get(source), ends[source]
            if at is None or isinstance(end, KafkaCallError) or at.offset < end:
                waiting[source] = f"{source[0]} [{source[1]}]: {at.offset if at else None} of {end}"
        if self.guarantee == "ExactlyOnce" and {topic for topic, _ in waiting} <= {names.delays}:
            return self._unsettled_transactions(committed, waiting)
        return list(waiting.values())

    def _unsettled_transactions(
        self, committed: Mapping[TopicPartitionKey, OffsetAndMetadata], waiting: Mapping[TopicPartitionKey, str]
    ) -> list[str]:
        """Describes the partitions of `waiting` with more than transaction markers left, and partitions with an open transaction."""
        _, *outcomes = self.orders.names.topics
        found = self.harness.admin.describe_topics(outcomes)
        counts = {topic: info.partitions for topic, info in found.items() if isinstance(info, TopicInfo)}
        places = [(topic, p) for topic, count in counts.items() for p in range(count)]
        ends = self.harness.admin.list_offsets(places, "latest")
        stable = self.harness.admin.list_offsets(places, "latest", isolation="read_committed")
        held_back = [
            f"{place[0]} [{place[1]}]: an open transaction" for place in places if stable[place] != ends[place]
        ]
        delays = self.orders.names.delays
        starts = tuple(
            committed[delays, p].offset if (delays, p) in committed else 0
            for p in range(self.orders.record.layout.partition_count)
        )
        left, _ = self.reader.read(delays, starts) if waiting else ([], ())
        with_records = {(delays, copy.partition) for copy in left}
        behind = [text for source, text in waiting.items() if source not in committed or source in with_records]
        return held_back + behind

    def read(self) -> Seen:
        """Reads the records that were added since the last call, with the independent reader."""
        return Seen(*(self._read(topic) for topic in self.orders.names.topics))

    def read_repeats(self) -> Seen:
        """As `read`, but without the hops of records that came out once, whose path is then not judged. Only for a delays topic to which
        no one but the workers writes."""
        front, delays, ready, dead = self.orders.names.topics
        out = self._read(ready), self._read(dead)
        times = Counter(copy.own.get("dt-root") for copies in out for copy in copies)
        hops = self._read(delays, keep=lambda copy: times[copy.own.get("dt-root")] > 1)
        return Seen(self._read(front), hops, *out)

    def skip(self, topic: str) -> None:
        """Excludes the records that the topic has now from the judgement."""
        self._read(topic)

    def released(self) -> int:
        """Returns the number of copies added to the ready topic since the last `read`."""
        ready = self.orders.names.ready
        places = [(ready, p) for p in range(self.orders.record.ready_partitions)]
        found = self.harness.admin.list_offsets(places, "latest")
        ends = [end for end in found.values() if not isinstance(end, KafkaCallError)]
        assert len(ends) == len(places), found
        return sum(ends) - sum(self._next_offsets.get(ready, ()))

    def peek(self, topic: str) -> list[Copy]:
        """Reads the records added to a topic since the last `read`, which will return them again."""
        copies, _ = self.reader.read(topic, self._next_offsets.get(topic, ()))
        return copies

    def forget(self, topic: str) -> None:
        """Starts again at offset 0, because the topic was created again."""
        self._next_offsets.pop(topic, None)

    def _read(self, topic: str, **further: Any) -> list[Copy]:
        copies, self._next_offsets[topic] = self.reader.read(topic, self._next_offsets.get(topic, ()), **further)
        return copies

    def terms(self, **further: Any) -> Terms:
        orders = self.orders
        return Terms(
            front_id=orders.topics.ids[orders.names.front],
            delays_id=orders.topics.ids[orders.names.delays],
            lane_delays=orders.record.layout.partition_delays,
            ready_partitions=orders.record.ready_partitions,
            most_doubled=0 if self.guarantee == "ExactlyOnce" else MAX_DOUBLED,
            **further,
        )
