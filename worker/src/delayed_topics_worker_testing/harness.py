"""Creates what an operator would create: system topics, the four topics, registry records, and the group's first offsets."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from delayed_topics_core.headers import Header
from delayed_topics_core.layout import LayoutSpec, evolve, initial
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import LayoutRecord, Owner, RegistryRecord, TopicsRecord
from delayed_topics_core.settings import TopicRole, topic_settings
from delayed_topics_core_testing.served import serving
from delayed_topics_devcluster.ports import free_ports
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.commits import committed_offsets
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.model import NewTopicSpec, TopicInfo
from delayed_topics_kafka.registry import RegistryFollower, RegistryWriter
from delayed_topics_kafka.system_topics import ensure_system_topics
from delayed_topics_kafka_testing.committing import commit

from delayed_topics_worker_testing.process import WorkerProcess

DAY_SECONDS = 86_400
MAX_AT_ONCE = 200  # topics that one call creates
ROLES: tuple[TopicRole, ...] = ("front", "delays", "ready", "dead-letter")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A record as a consumer sees it. `at_ms`: its append time."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    at_ms: int

    def header(self, name: str) -> bytes | None:
        """Returns the value of a header that occurs once; None if it is missing."""
        return dict(self.headers).get(name)

    @property
    def due_at_ms(self) -> int:
        return int(self.header("dt-due-at") or b"")

    @property
    def late_ms(self) -> int:
        return self.at_ms - self.due_at_ms

    @property
    def foreign(self) -> list[Header]:
        return [header for header in self.headers if not header[0].startswith("dt-")]


class WorkerHarness(Closing):
    """The delayed topics of one Kafka, and the workers that serve them. `close` ends these workers."""

    def __init__(self, connection: Connection, directory: Path, *, replication_factor: int = 1) -> None:
        self.connection = connection
        self.admin = KafkaAdmin(connection, timeout_seconds=60)
        self._directory = directory
        self.replication_factor = replication_factor
        ensure_system_topics(self.admin, replication_factor=replication_factor)
        self._follower = RegistryFollower(connection)
        self._writer = RegistryWriter(self._follower, connection)
        self.producer = Producer(
            {
                **connection.client_config(),
                "linger.ms": 2,
                "partitioner": "murmur2_random",
                **IDEMPOTENT,  # otherwise the test itself could send a record twice after a broker's crash
                "delivery.report.only.error": True,
                "on_delivery": self._undelivered,
            }
        )
        self._not_delivered: list[tuple[KafkaError, Message]] = []
        self._workers: list[WorkerProcess] = []

    def flush(self) -> None:
        """Waits until all records are in Kafka. A broker may not know new partitions yet, so their records are produced again."""
        while True:
            assert self.producer.flush(120) == 0
            failed, self._not_delivered = self._not_delivered, []
            if not failed:
                return
            for error, message in failed:
                assert error.code() == KafkaError._UNKNOWN_PARTITION, error
                self.producer.produce(
                    message.topic() or "",
                    message.value(),
                    message.key(),
                    partition=message.partition() or 0,
                    headers=message.headers(),
                )

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._not_delivered.append((error, message))

    def evidence(self) -> str:
        """Returns what a person would look at next: the status and the end of the log of each worker."""
        return "\n".join(worker.evidence() for worker in self._workers)

    def close(self) -> None:
        for worker in self._workers:
            if worker.running:
                worker.kill()
        self._follower.close()

    def declare(self, delay_seconds: Sequence[int] = (0, 1, 2), **further: Any) -> "DeclaredTopic":
        """Declares one delayed topic, see `declare_many`."""
        (declared,) = self.declare_many(1, delay_seconds, **further)
        return declared

    def declare_many(
        self,
        count: int,
        delay_seconds: Sequence[int] = (0, 1, 2),
        *,
        partitions: int = 4,
        lanes_per_delay: int = 1,
        front_partitions: int = 2,
        retry_cap: int = 3,
        group: str | None = None,
        begun: bool = True,
        ladder_seconds: Sequence[int] = (),
        config: Mapping[TopicRole, Mapping[str, str]] | None = None,
    ) -> list["DeclaredTopic"]:
        """Creates delayed topics as an operator does. `begun`: whether the first offsets are committed; False if the group has members,
        because only these can commit then. `config`: settings of topics that differ from the operator's."""
        layout = initial(
            LayoutSpec(
                delay_seconds=tuple(delay_seconds),
                partitions=partitions,
                lanes_per_delay=lanes_per_delay,
                ladder_seconds=tuple(ladder_seconds),
            )
        )
        counts = (front_partitions, layout.partition_count, front_partitions, 2)
        made: list[DeclaredTopic] = []
        for _ in range(count):
            names = TopicNames.of(f"orders-{uuid.uuid4().hex[:8]}")
            record = serving(
                names.front,
                layout,
                partitions=front_partitions,
                owner=Owner("cluster", "shop", names.front),
                retry_cap=retry_cap,
                group=group or names.group,
                max_delay_seconds=DAY_SECONDS,
            )
            made.append(DeclaredTopic(self, names, record))
        specs = [
            declared.spec(role, number, (config or {}).get(role))
            for declared in made
            for role, number in zip(ROLES, counts, strict=True)
        ]
        infos: dict[str, TopicInfo] = {}
        for at in range(0, len(specs), MAX_AT_ONCE):
            infos |= self.create(specs[at : at + MAX_AT_ONCE])
        offsets: dict[str, dict[tuple[str, int], OffsetAndMetadata]] = {}
        for declared in made:
            declared.note([infos[topic] for topic in declared.names.topics], begun=begun)
            starts = declared.topics.start_offsets.items()
            zeros = {(topic, p): OffsetAndMetadata(0) for topic, first in starts for p in range(len(first))}
            offsets.setdefault(declared.record.group, {}).update(zeros)
        if begun:
            for name, zeros in offsets.items():
                self.commit(name, zeros)
        self.write(*(record for declared in made for record in (declared.topics, declared.record)))
        return made

    def create(self, specs: Sequence[NewTopicSpec]) -> dict[str, TopicInfo]:
        found = self.admin.create_topics(specs)
        made = {name: info for name, info in found.items() if isinstance(info, TopicInfo)}
        assert made.keys() == found.keys(), found
        return made

    def commit(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata]) -> None:
        """Commits offsets for a group without members."""
        commit(self.connection, group, offsets)

    def write(self, *records: RegistryRecord) -> None:
        self._writer.write(records)

    def forget(self, *keys: str) -> None:
        self._writer.remove(keys)

    def start(
        self, *topics: "DeclaredTopic", member: str = "orders-0", ready: bool = True, **config: Any
    ) -> WorkerProcess:
        worker = WorkerProcess(
            self._directory,
            self.connection,
            [t.names.front for t in topics],
            port=free_ports(1)[0],
            member=member,
            **config,
        )
        self._workers.append(worker)
        return worker.ready() if ready else worker

    @contextmanager
    def reader(self, topic: str) -> Iterator[Callable[[], list[Seen]]]:
        """Yields a function that returns all records so far, read_committed, in no order across partitions."""
        info = self.admin.describe_topics([topic])[topic]
        assert isinstance(info, TopicInfo)
        consumer = Consumer(
            {
                **self.connection.client_config(),
                "group.id": f"reader-{uuid.uuid4().hex[:8]}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "fetch.queue.backoff.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(info.partitions)])
        seen: list[Seen] = []

        def read() -> list[Seen]:
            while batch := consumer.consume(1000, 0.1):
                seen.extend(_seen(m) for m in batch if m.error() is None)
            return seen

        try:
            yield read
        finally:
            consumer.close()

    def read(self, topic: str, count: int, *, timeout_seconds: float = 180) -> list[Seen]:
        """Returns at least `count` records of a topic. Fails if they do not come in time."""
        deadline = Deadline(timeout_seconds)
        with self.reader(topic) as read:
            while len(found := read()) < count:
                assert not deadline.over, f"{len(found)} of {count} records came to {topic} in {timeout_seconds} s"
        return found


class DeclaredTopic:
    """A delayed topic of a WorkerHarness."""

    def __init__(self, harness: WorkerHarness, names: TopicNames, record: LayoutRecord) -> None:
        self.harness = harness
        self.names = names
        self.record = record
        self.topics = TopicsRecord(topic=names.front)

    def make(self, role: TopicRole, partitions: int, settings: Mapping[str, str] | None = None) -> TopicInfo:
        spec = self.spec(role, partitions, settings)
        return self.harness.create([spec])[spec.name]

    def note(self, infos: Sequence[TopicInfo], *, begun: bool) -> None:
        """Sets what an operator registers about the four topics that it has created."""
        sources = infos[:2]
        self.topics = TopicsRecord(
            topic=self.names.front,
            ids={info.name: info.id for info in infos},
            start_offsets={info.name: (0,) * info.partitions for info in sources},
            begun={info.name: info.partitions if begun else 0 for info in sources},
        )

    def spec(self, role: TopicRole, partitions: int, settings: Mapping[str, str] | None = None) -> NewTopicSpec:
        name = dict(zip(ROLES, self.names.topics, strict=True))[role]
        config = topic_settings(
            role=role,
            delay_seconds=self.record.layout.delay_seconds,
            outage_budget_seconds=DAY_SECONDS,
            dead_letter_retention_seconds=DAY_SECONDS,
            replication_factor=self.harness.replication_factor,
        )
        return NewTopicSpec(
            name=name,
            partitions=partitions,
            replication_factor=self.harness.replication_factor,
            config={**config, **(settings or {})},
        )

    def change(self, **fields: Any) -> None:
        """Writes the layout record with other fields."""
        self.record = replace(self.record, **fields)
        self.harness.write(self.record)

    def remove(self) -> None:
        """Removes the topic from the registry, so that no worker serves it any more."""
        self.harness.forget(self.record.key, self.topics.key)

    def grow(self, delay_seconds: Sequence[int]) -> None:
        """Does what an operator does for another delay list: adds partitions, registers their starts, and then the layout with them."""
        wanted = LayoutSpec(
            delay_seconds=tuple(delay_seconds), partitions=self.record.layout.partition_count + 1, lanes_per_delay=1
        )
        grown = evolve(self.record.layout, wanted)
        self.harness.admin.create_partitions({self.names.delays: grown.partition_count})
        starts = {**self.topics.start_offsets, self.names.delays: (0,) * grown.partition_count}
        self.topics = replace(self.topics, start_offsets=starts)
        self.harness.write(self.topics)
        self.change(layout=grown)

    def grow_front(self, partitions: int) -> None:
        """Does what an operator does for more front partitions, and grows the ready topic first. `produce` knows the partitions then."""
        front, ready = self.names.front, self.names.ready
        for topic in (ready, front):
            self.harness.admin.create_partitions({topic: partitions})
        wait_until(
            lambda: len(self.harness.producer.list_topics(front).topics[front].partitions) == partitions,
            what=f"the producer knows {partitions} partitions of {front}",
        )
        starts = {**self.topics.start_offsets, front: (0,) * partitions}
        self.topics = replace(self.topics, start_offsets=starts)
        self.harness.write(self.topics)
        self.change(front_partitions=partitions, ready_partitions=partitions)

    def note_id(self, info: TopicInfo) -> None:
        """Registers, as an operator does, that a topic that was created again is the right one."""
        self.topics = replace(self.topics, ids={**self.topics.ids, info.name: info.id})
        self.harness.write(self.topics)

    def accept(self, info: TopicInfo, *, begun: int) -> None:
        """As `note_id`, for a topic of one partition. `begun`: 1 if the operator mistook a commit for the old topic for one for the new."""
        self.topics = replace(
            self.topics,
            start_offsets={**self.topics.start_offsets, info.name: (0,)},
            begun={**self.topics.begun, info.name: begun},
        )
        self.note_id(info)

    def produce(
        self,
        value: bytes | None = b"v",
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        topic: str | None = None,
    ) -> None:
        """Produces a record, by default to the front topic. The record may be queued until `flush`."""
        further: dict[str, Any] = {} if partition is None else {"partition": partition}
        producer = self.harness.producer
        while True:
            try:
                producer.produce(topic or self.names.front, value=value, key=key, headers=list(headers), **further)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def flush(self) -> None:
        self.harness.flush()

    def ready(self, count: int, *, timeout_seconds: float = 180) -> list[Seen]:
        return self.harness.read(self.names.ready, count, timeout_seconds=timeout_seconds)

    def released(self) -> int:
        """Returns the number of records that the ready topic has at this moment."""
        places = [(self.names.ready, p) for p in range(self.record.ready_partitions)]
        ends = self.harness.admin.list_offsets(places, "latest")
        known = [end for end in ends.values() if isinstance(end, int)]
        assert len(known) == len(places), ends
        return sum(known)

    def dead(self, count: int, *, timeout_seconds: float = 180) -> list[Seen]:
        return self.harness.read(self.names.dead_letter, count, timeout_seconds=timeout_seconds)

    def committed(self) -> dict[tuple[str, int], OffsetAndMetadata]:
        """See `committed_offsets`."""
        layout = {self.names.front: self.record.front_partitions, self.names.delays: self.record.layout.partition_count}
        places = [(topic, p) for topic, count in layout.items() for p in range(count)]
        return committed_offsets(self.harness.connection, self.record.group, places, timeout_seconds=60)


def _seen(message: Message) -> Seen:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Seen(
        partition=partition,
        offset=offset,
        key=message.key(),
        value=message.value(),
        headers=list(message.headers() or []),  # type: ignore[arg-type]
        at_ms=message.timestamp()[1],
    )
