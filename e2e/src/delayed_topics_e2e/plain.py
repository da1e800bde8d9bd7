"""Kafka as any user sees it: through the plain client, without helpers of this project."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tenacity
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from delayed_topics_e2e.waiting import until

__all__ = ["Kafka", "Record", "TopicReader"]

Headers = Sequence[tuple[str, bytes | None]]
TIMEOUT_SECONDS = 30.0
ASK_SECONDS = 10.0
"""The timeout of one call: a client that has lost its connection sometimes gives no answer, and has reconnected by the next call."""


def _is_transient(error: BaseException) -> bool:
    """Whether the error is that of a restarted broker which is not yet connected, or not yet the leader of all its partitions."""
    codes = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    return isinstance(error, KafkaException) and error.args[0].code() in codes


_retry_transient = tenacity.retry(
    retry=tenacity.retry_if_exception(_is_transient),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(TIMEOUT_SECONDS),
    reraise=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A consumed record. `timestamp_ms` is the broker's append time on a topic with LogAppendTime."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, message: Message) -> "Record":
        return cls(
            topic=str(message.topic()),
            partition=int(message.partition() or 0),
            offset=int(message.offset() or 0),
            timestamp_ms=message.timestamp()[1],
            key=_bytes(message.key()),
            value=_bytes(message.value()),
            headers=tuple((name, _bytes(value)) for name, value in list[Any](message.headers() or ())),
        )

    def header(self, name: str) -> bytes | None:
        """Returns the value of the first header of this name, or None."""
        return next((value for found, value in self.headers if found == name), None)


@dataclass
class TopicReader:
    """Reads a topic from its beginning, without a group. Each call of `read_new` reads to the present end."""

    config: Mapping[str, Any]
    topic: str
    _consumer: Consumer = field(init=False)
    _next: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._consumer = self._new_consumer()

    def read_new(self) -> list[Record]:
        """Returns the records that were appended since the last call."""
        ends = self._ends()
        for partition in ends.keys() - self._next.keys():
            self._next[partition] = 0
            self._consumer.incremental_assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING)])
        records: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while behind := {p: (self._next[p], end) for p, end in ends.items() if self._next[p] < end}:
            assert time.monotonic() < deadline, (
                f"could not read {self.topic} to its end. Next offset and end by partition: {behind}"
            )
            for message in self._consumer.consume(10_000, 0.05):
                self._advance(message, records)
        return records

    def close(self) -> None:
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return Consumer({**self.config, "group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True})

    def _replace_consumer(self) -> None:
        """Replaces the consumer, which may know no broker any more after an outage of Kafka's only broker."""
        self._consumer.close()
        self._consumer = self._new_consumer()
        self._consumer.assign([TopicPartition(self.topic, p, offset) for p, offset in self._next.items()])

    def _advance(self, message: Message, records: list[Record]) -> None:
        error = message.error()
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        if error is None:
            records.append(Record.of(message))
            self._next[partition] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            # The end offset counts transaction markers, which consumers never get.
            self._next[partition] = offset
        elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            raise KafkaException(error)

    @_retry_transient
    def _ends(self) -> dict[int, int]:
        try:
            metadata = self._consumer.list_topics(self.topic, timeout=ASK_SECONDS).topics[self.topic]
        except KafkaException:
            self._replace_consumer()
            raise
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return {
            p: self._consumer.get_watermark_offsets(TopicPartition(self.topic, p), timeout=ASK_SECONDS)[1]
            for p in metadata.partitions
        }


@dataclass
class Kafka:
    """A Kafka cluster through the plain client. `address` is called each time, because a new pod has a new address."""

    address: Callable[[], str]
    security: Mapping[str, Any] = field(default_factory=dict)
    _admins: dict[str, AdminClient] = field(init=False, repr=False, default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address(), **self.security}

    @property
    def admin(self) -> AdminClient:
        config = self.config
        address = str(config["bootstrap.servers"])
        if address not in self._admins:
            self._admins.clear()  # a client for an address that is gone would never stop reconnecting
            self._admins[address] = AdminClient(config)
        return self._admins[address]

    def produce(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None, Headers]], *, partition: int = -1
    ) -> int:
        """Produces (key, value, headers) and waits for every acknowledgement. `partition`: -1 chooses it by the key. Returns the number
        of records."""
        failed: list[KafkaError] = []

        def seen(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({**self.config, "partitioner": "murmur2_random", "linger.ms": 5})
        count = 0
        for key, value, headers in records:
            while True:
                try:
                    producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=seen)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        assert producer.flush(TIMEOUT_SECONDS) == 0, f"{topic}: not all records were acknowledged"
        assert not failed, f"{topic}: {len(failed)} records were refused, the first with {failed[0]}"
        return count

    def copy(self, record: Record, *, to: str, headers: Headers | None = None, partition: int = -1) -> None:
        """Produces a record again, byte for byte. `headers`: replace its own."""
        content = (record.key, record.value, record.headers if headers is None else headers)
        self.produce(to, [content], partition=partition)

    def read(self, topic: str) -> list[Record]:
        """Returns all records from the beginning to the present end."""
        reader = TopicReader(self.config, topic)
        try:
            return reader.read_new()
        finally:
            reader.close()

    def topics(self) -> dict[str, int]:
        """Returns the number of partitions by topic."""
        found = self.admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def topic_ids(self, *names: str) -> dict[str, str]:
        """Returns topic ids in base64url, as Kafka's own tools print them; the client library uses the standard alphabet of base64."""
        described = self.admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_SECONDS)
        found = {name: str(future.result(TIMEOUT_SECONDS).topic_id) for name, future in described.items()}
        return {name: topic_id.replace("+", "-").replace("/", "_") for name, topic_id in found.items()}

    def create(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic without the operator, and waits until it is visible."""
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self.admin.create_topics([wanted])[topic].result(TIMEOUT_SECONDS)
        until(lambda: self.topics().get(topic), what=f"topic {topic} can be seen", timeout_seconds=TIMEOUT_SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_SECONDS)

    def delete(self, *topics: str) -> None:
        """Deletes those of the topics that exist, and waits until they are gone."""
        existing = [topic for topic in topics if topic in self.topics()]
        for future in self.admin.delete_topics(existing).values() if existing else ():
            future.result(TIMEOUT_SECONDS)
        until(
            lambda: self.topics().keys().isdisjoint(existing),
            what=f"the topics {existing} are gone",
            timeout_seconds=TIMEOUT_SECONDS,
        )

    def settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self.admin.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
        return {name: str(entry.value) for name, entry in entries.items()}

    def change(self, topic: str, **settings: str) -> None:
        """Changes settings of a topic, as an administrator would by hand; `_` in a name stands for `.`."""
        changes = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_SECONDS)

    @_retry_transient
    def ends(self, topic: str) -> dict[int, int]:
        """Returns by partition the offset that the next record gets."""
        requests = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in self.admin.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions
        }
        answers = self.admin.list_offsets(requests, request_timeout=TIMEOUT_SECONDS)
        ends = {place.partition: future.result(TIMEOUT_SECONDS).offset for place, future in answers.items()}
        if OFFSET_INVALID in ends.values():  # so the client library (2.16) reports a failed request
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return ends

    def committed(self, group: str) -> dict[tuple[str, int], TopicPartition]:
        """Returns the committed offsets of the group, with their metadata, by topic and partition."""
        request = ConsumerGroupTopicPartitions(group)
        answer = self.admin.list_consumer_group_offsets([request])[group].result(TIMEOUT_SECONDS)
        return {(p.topic, p.partition): p for p in answer.topic_partitions or ()}

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Moves the offset of a group without members, as kafka-consumer-groups --reset-offsets does."""
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        answer = self.admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_SECONDS)
        refused = [p.error for p in answer.topic_partitions or () if p.error is not None]
        assert not refused, f"group {group}: {refused[0]}"

    def remove_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Deletes the records before these offsets, by partition, as retention does."""
        self.admin.list_topics(topic, TIMEOUT_SECONDS)  # delete_records does not itself learn of new partitions
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for future in self.admin.delete_records(places, request_timeout=TIMEOUT_SECONDS).values():
            future.result(TIMEOUT_SECONDS)

    def groups(self) -> set[str]:
        listed = self.admin.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result(TIMEOUT_SECONDS)
        return {str(group.group_id) for group in listed.valid or ()}


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
