"""The testbed of all parts of the benchmark: one broker or three, delayed topics, real worker processes, and backlogs."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from delayed_topics_devcluster.broker import Broker, Brokers
from delayed_topics_devcluster.kafka import kafka_jars
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_worker_testing.harness import DeclaredTopic, WorkerHarness
from delayed_topics_worker_testing.process import Launch, WorkerProcess

from delayed_topics_bench.java import JAVA_OPTIONS, JavaProgram, class_path_of
from delayed_topics_bench.samples import Samples

__all__ = ["PARTITIONS", "Backlog", "Testbed"]

PARTITIONS = 8
"""The partitions of every topic: two for each of four workers."""
HEAP_MEGABYTES = 1024
"""The heap that Kafka's own start script sets."""
BROKER_SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "transaction.max.timeout.ms": "900000",
    # the system sets them: with Kafka's default of 100 KiB, loopback pauses for 210 ms
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}
BROKER_SKEW_MS = 5
"""With several brokers, the operator takes this difference of their clocks into account unless the connection has another."""
FILL_TIMEOUT_SECONDS = 240.0
DRAIN_TIMEOUT_SECONDS = 240.0
READ_TIMEOUT_SECONDS = 120.0


class Backlog:
    """Records in an open transaction: the broker has them, but they are not visible yet."""

    def __init__(self, program: JavaProgram, directory: Path) -> None:
        self._program = program
        self._directory = directory

    def show(self) -> int:
        """Commits the transaction, and returns the time in milliseconds at which the commit began."""
        self._program.say("show")
        (at_ms,) = self._program.expect("shown", timeout_seconds=60)
        return int(at_ms)

    def samples(self, received: Path) -> Samples:
        """Returns the samples of what this backlog sent and of what `Testbed.read` has written into `received`."""
        (received / "sent.bin").write_bytes((self._directory / "sent.bin").read_bytes())
        return Samples.read(received)


class Testbed:
    """Starts the broker or brokers when it is entered, and removes everything when it is left."""

    def __init__(self, *, exactly_once: bool = False, replicated: bool = False) -> None:
        """`exactly_once`: workers have the guarantee ExactlyOnce. `replicated`: three brokers, all of which have each topic."""
        self._stack = ExitStack()
        self.exactly_once = exactly_once
        self._launch = Launch()
        self._replication_factor = 3 if replicated else 1
        self._brokers: Broker | Brokers = (
            Brokers(settings=BROKER_SETTINGS, heap_megabytes=HEAP_MEGABYTES)
            if replicated
            else Broker(settings=BROKER_SETTINGS, heap_megabytes=HEAP_MEGABYTES, java_options=())
        )
        self._runs = 0
        self.class_path = class_path_of("kafka", jars=kafka_jars())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._brokers)
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="delayed-topics-bench-")))
            # the log level hides errors about a broker that is killed on purpose
            connection = Connection(bootstrap_servers=self.bootstrap, further={"log_level": "2"})
            harness = WorkerHarness(connection, self.directory, replication_factor=self._replication_factor)
            self.harness = stack.enter_context(harness)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return self._brokers.bootstrap

    @property
    def broker(self) -> Broker:
        """The broker, if there is only one."""
        assert isinstance(self._brokers, Broker)
        return self._brokers

    @property
    def log(self) -> Path:
        """The log of all Java programs."""
        return self.directory / "java.log"

    def new_directory(self) -> Path:
        """Creates a directory for the samples of a run."""
        self._runs += 1
        directory = self.directory / f"run-{self._runs}"
        directory.mkdir()
        return directory

    @contextmanager
    def topic(self, name: str, *, partitions: int) -> Iterator[str]:
        """Creates a plain topic, and deletes it afterwards."""
        self.harness.admin.create_topics(
            [NewTopicSpec(name=name, partitions=partitions, replication_factor=self._replication_factor, config={})]
        )
        try:
            yield name
        finally:
            self.harness.admin.delete_topics([name])

    @contextmanager
    def declared(
        self, delay_seconds: Sequence[int], *, lanes: int = 1, partitions: int = PARTITIONS
    ) -> Iterator[DeclaredTopic]:
        """Declares a delayed topic, and deletes its topics afterwards, so that the disk holds one run at a time."""
        topic = self.harness.declare(
            delay_seconds, partitions=partitions, lanes_per_delay=lanes, front_partitions=partitions
        )
        if self._replication_factor > 1:
            topic.change(broker_skew_ms=BROKER_SKEW_MS)
        try:
            yield topic
        finally:
            self.harness.admin.delete_topics(list(topic.names.topics))

    @contextmanager
    def workers(self, topic: DeclaredTopic, count: int, **config: Any) -> Iterator[list[WorkerProcess]]:
        """Starts worker processes, waits until they share the partitions, and ends them afterwards.

        Start them after a backlog was written: partitions that grow and give no records make a worker check again after three seconds.
        `config`: further fields of worker.json.
        """
        name = topic.names.front
        partitions = topic.record.front_partitions + topic.record.layout.partition_count
        config = {"guarantee": "ExactlyOnce" if self.exactly_once else "AtLeastOnce", **config}
        started = [
            self.harness.start(topic, member=f"{name}-{n}", ready=False, launch=self._launch, **config)
            for n in range(count)
        ]

        def settled() -> bool:
            held = [w.metric("delayedtopics_partitions", topic=name) for w in started]
            all_ready = all(w.get("/readyz")[0] == 200 for w in started)
            return all_ready and all(held) and sum(held) == partitions

        wait_until(settled, what=f"{count} workers share {name} (see {self.directory})", timeout_seconds=60)
        try:
            yield started
        finally:
            for worker in started:
                if worker.running:
                    worker.terminate()

    def shared_workers(self, group: str, count: int, *, partitions: int) -> list[WorkerProcess]:
        """Starts workers as the operator starts shared workers. Returns when this number of partitions is served."""
        started = [
            self.harness.start(member=f"{group}-{n}", ready=False, group=group, protocol="classic", assignor="Sticky")
            for n in range(count)
        ]

        def served() -> bool:
            return sum(worker.metric("delayedtopics_partitions") for worker in started) == partitions and all(
                worker.get("/readyz")[0] == 200 for worker in started
            )

        wait_until(served, what=f"{partitions} partitions are served", timeout_seconds=300, poll_seconds=1)
        return started

    @contextmanager
    def filled(self, topic: DeclaredTopic, *, records: int, size: int) -> Iterator[Backlog]:
        """Writes a backlog of new records into the front topic."""
        directory = self.new_directory()
        with self.java(
            "Backlog", "fill", topic=topic.names.front, records=records, size=size, directory=directory
        ) as p:
            p.expect("filled", timeout_seconds=FILL_TIMEOUT_SECONDS)
            yield Backlog(p, directory)

    @contextmanager
    def copied(
        self,
        source: DeclaredTopic,
        target: DeclaredTopic,
        *,
        records: int,
        due_at_ms: int | None = None,
        shift_due_ms: int = 0,
    ) -> Iterator[Backlog]:
        """Writes a backlog: the hopped records of one delayed topic, in the same partitions of another, with another due time."""
        with self.java(
            "Backlog",
            "copy",
            source=source.names.delays,
            topic=target.names.delays,
            records=records,
            due_at_ms=due_at_ms,
            shift_due_ms=shift_due_ms,
        ) as p:
            p.expect("filled", timeout_seconds=FILL_TIMEOUT_SECONDS)
            yield Backlog(p, self.directory)

    def read(self, topic: str) -> Path:
        """Reads all records that a topic has now, and returns the directory with the samples."""
        directory = self.new_directory()
        with self.java("Backlog", "read", topic=topic, directory=directory) as program:
            program.finish(timeout_seconds=READ_TIMEOUT_SECONDS)
        return directory

    def java(self, main_class: str, *words: str, **arguments: object) -> JavaProgram:
        """Starts one of the programs of java/kafka on this broker."""
        given = {"bootstrap": self.bootstrap, **arguments}
        # Java's second compiler would take the cores from what is measured for half a minute
        options = (*JAVA_OPTIONS, "-XX:TieredStopAtLevel=1")
        return JavaProgram(main_class, words, given, class_path=self.class_path, log=self.log, options=options)

    def await_records(self, topic: str, count: int, *, timeout_seconds: float = DRAIN_TIMEOUT_SECONDS) -> None:
        """Waits until the topic's partitions have this many offsets in all; such requests cost next to nothing.

        With ExactlyOnce, transaction markers are among the offsets, so this also waits until their number no longer grows.
        """
        info = self.harness.admin.describe_topics([topic])[topic]
        assert isinstance(info, TopicInfo), info
        keys = [(topic, partition) for partition in range(info.partitions)]
        before: int | None = None

        def there() -> bool:
            nonlocal before
            ends = self.harness.admin.list_offsets(keys, "latest", isolation="read_committed").values()
            last, before = before, sum(end for end in ends if isinstance(end, int))
            return before >= count and (last == before or not self.exactly_once)

        poll_seconds = 1.0 if self.exactly_once else 0.1
        wait_until(
            there, what=f"{count} records in {topic}", timeout_seconds=timeout_seconds, poll_seconds=poll_seconds
        )
