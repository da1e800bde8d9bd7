"""The registry as it is followed by everybody and written by the operator."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import RegistryRecord, RegistryState, encode

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import RAISED, KafkaUnreachable, door_error, kafka_error, making_client
from delayed_topics_kafka.reader import PartitionReader, Read

log = logging.getLogger(__name__)


class RegistryChange(NamedTuple):
    """A record as it was read; `record` None: removed."""

    offset: int
    key: str
    record: RegistryRecord | None


class RegistryFollower(Closing):
    """Poll-driven, without a group or threads of its own; belongs to one thread at a time.

    A record that doesn't parse is logged and passed over, so that a newer writer doesn't stop an older reader.
    """

    def __init__(self, connection: Connection, *, client_id: str = "delayed-topics-registry") -> None:
        self._reader = PartitionReader(connection, REGISTRY_TOPIC, client_id=client_id)
        self.state = RegistryState()

    def poll(self, timeout_seconds: float) -> list[RegistryChange]:
        """What has changed, waiting at most that long for the first change. Raises KafkaDoorError."""
        return self._apply(self._reader.poll(timeout_seconds))

    def catch_up(self, timeout_seconds: float) -> list[RegistryChange]:
        """Reads to the end as it is now. Raises KafkaDoorError: KafkaUnreachable in time, TopicMissing without a registry."""
        return self._apply(self._reader.catch_up(timeout_seconds))

    def read_to(self, end: int, deadline: Deadline) -> list[RegistryChange]:
        """Reads what lies below the offset `end`, which has to be there already. Raises KafkaDoorError."""
        return self._apply(self._reader.read_to(end, deadline))

    def close(self) -> None:
        self._reader.close()

    def _apply(self, reads: Sequence[Read]) -> list[RegistryChange]:
        changes: list[RegistryChange] = []
        for read in reads:
            key = (read.key or b"").decode("utf-8", "backslashreplace")
            try:
                record = self.state.apply(read.offset, key, read.value)
            except UnreadableRecord as e:
                log.warning("%s, offset %d is passed over: %s", REGISTRY_TOPIC, read.offset, e)
            else:
                changes.append(RegistryChange(read.offset, key, record))
        return changes


class RegistryWriter:
    """The operator's pen. Each call returns when the follower has read the records back; belongs to the follower's thread."""

    def __init__(
        self,
        follower: RegistryFollower,
        connection: Connection,
        *,
        client_id: str = "delayed-topics-registry",
        timeout_seconds: float = 30,
    ) -> None:
        self._follower = follower
        self._connection = connection
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._producer: Producer | None = None

    def write(self, records: Sequence[RegistryRecord]) -> list[RegistryChange]:
        """In this order. Returns all that the follower read meanwhile, others' records included. Raises KafkaDoorError."""
        return self._append([(record.key, encode(record)) for record in records])

    def remove(self, keys: Sequence[str]) -> list[RegistryChange]:
        """As write."""
        return self._append([(key, None) for key in keys])

    def _append(self, entries: Sequence[tuple[str, bytes | None]]) -> list[RegistryChange]:
        deadline = Deadline(self._timeout_seconds)
        offsets: list[int] = []
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        producer = self._producer or self._new_producer()
        self._producer = None  # an idempotent producer that failed once is not used again
        try:
            for key, value in entries:
                producer.produce(REGISTRY_TOPIC, key=key, value=value, partition=0, on_delivery=delivered)
        except KafkaException as e:  # a topic that is gone is refused right here, not by a report
            failures.append(kafka_error(e))
        unsent = 0
        try:
            unsent = producer.flush(deadline.remaining_seconds + 1)
        except RAISED as e:  # the producer itself was refused, and with it all that it has
            failures.insert(0, kafka_error(e))
        if failures:
            raise door_error(
                failures[0], doing=f"writing {REGISTRY_TOPIC}", bootstrap_servers=self._connection.bootstrap_servers
            )
        if unsent:
            raise KafkaUnreachable(
                f"writing {REGISTRY_TOPIC}, Kafka at {self._connection.bootstrap_servers} did not answer"
            )
        self._producer = producer
        return self._follower.read_to(max(offsets, default=-1) + 1, deadline)

    def _new_producer(self) -> Producer:
        with making_client(self._connection.bootstrap_servers):
            return Producer(
                {
                    **self._connection.client_config(),
                    "client.id": self._client_id,
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "message.timeout.ms": int(self._timeout_seconds * 1000),
                }
            )
