"""The registry, which all programs follow and the operator writes."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from delayed_topics_core.errors import UnreadableRecord
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.registry import LayoutRecord, RegistryRecord, encode
from delayed_topics_core.registry_state import RegistryState

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import (
    FENCED,
    RAISED,
    KafkaUnreachable,
    RegistryLost,
    RegistryTooLarge,
    TopicTruncated,
    WriterFenced,
    call_error,
    kafka_error,
    making_client,
)
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.reader import PartitionReader, Read
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS

log = logging.getLogger(__name__)

_ABORT_SECONDS = 1.0
PARTITION_BYTES = 10
"""One partition of a layout takes as much memory as this many bytes of any other record."""


class RegistryChange(NamedTuple):
    """A change of the registry. `record` is None if the key was removed."""

    offset: int
    key: str
    record: RegistryRecord | None


@contextmanager
def _raising_registry_lost() -> Iterator[None]:
    """Raises RegistryLost instead of TopicTruncated."""
    try:
        yield
    except TopicTruncated as e:
        raise RegistryLost(
            f"{e}. Either restore it, or restart this process to begin with what the topic has now", code=e.code
        ) from e


class RegistryFollower(Closing):
    """Reads the registry into `state`, without a consumer group or a thread of its own. Belongs to one thread at a time.

    It logs and skips a record that it can't parse, so that a newer writer does not stop an older reader.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        client_id: str = "delayed-topics-registry",
        most_bytes: int | None = None,
    ) -> None:
        """`most_bytes` limits the size of all keys and values together. Above it, every call raises RegistryTooLarge. In memory they
        take about four times their size."""
        self._reader = PartitionReader(connection, REGISTRY_TOPIC, client_id=client_id)
        self._most_bytes = most_bytes
        self._sizes: dict[str, int] = {}
        self._held_bytes = 0
        self.state = RegistryState()

    @property
    def at_end(self) -> bool:
        """Whether `state` is complete: reading has reached the end of the registry at least once."""
        return self._reader.at_end

    @property
    def fullness(self) -> float:
        """How much of `most_bytes` is held, from 0 to 1. 0 without a limit."""
        return self._held_bytes / self._most_bytes if self._most_bytes else 0.0

    def poll(self, timeout_seconds: float) -> list[RegistryChange]:
        """Returns the next changes. Waits for the first one for at most `timeout_seconds`. Raises KafkaCallError."""
        with _raising_registry_lost():
            reads = self._reader.poll(timeout_seconds)
        return self._apply(reads)

    def catch_up(self, timeout_seconds: float) -> None:
        """Reads to the present end of the registry. Raises KafkaCallError, and in particular KafkaUnreachable if nothing arrives for
        `timeout_seconds`, and TopicMissing without a registry."""
        with _raising_registry_lost():
            self._reader.catch_up(timeout_seconds, self._apply)

    def read_to(self, end: int, deadline: Deadline) -> None:
        """Reads everything below the offset `end`, which the registry must have reached. Raises KafkaCallError."""
        with _raising_registry_lost():
            self._reader.read_to(end, deadline, self._apply)

    def check_brokers(self) -> None:
        """Raises KafkaUnreachable, as PartitionReader does."""
        self._reader.check_brokers()

    def close(self) -> None:
        self._reader.close()

    def _apply(self, reads: Sequence[Read]) -> list[RegistryChange]:
        changes: list[RegistryChange] = []
        for read in reads:
            key = (read.key or b"").decode("utf-8", "backslashreplace")
            try:
                record = self.state.apply(read.offset, key, read.value)
            except UnreadableRecord as e:
                log.warning("skipping the record at offset %d of topic %s: %s", read.offset, REGISTRY_TOPIC, e)
                continue
            changes.append(RegistryChange(read.offset, key, record))
            self._count_bytes(key, read.value, record)
        if self._most_bytes is not None and self._held_bytes > self._most_bytes:
            raise RegistryTooLarge(
                f"topic {REGISTRY_TOPIC} has more than {self._most_bytes >> 20} MiB of keys and values in {len(self._sizes)} records, "
                "which is the most that the operator holds for one connection",
                code="REGISTRY_TOO_LARGE",
            )
        return changes

    def _count_bytes(self, key: str, value: bytes | None, record: RegistryRecord | None) -> None:
        self._held_bytes -= self._sizes.pop(key, 0)
        if value is not None:
            kinds = record.layout.kinds if isinstance(record, LayoutRecord) else ()
            partitions = sum(len(kind.partitions) for kind in kinds)  # the value has them only as ranges
            self._sizes[key] = len(key) + len(value) + PARTITION_BYTES * partitions
            self._held_bytes += self._sizes[key]


class RegistryWriter:
    """Writes records, and returns when the follower has read them back. Belongs to the follower's thread.

    With a `transactional_id`, the writer must be opened, each call is a transaction, and Kafka accepts only the newest writer with
    that id. After WriterFenced, every call raises it again, because a new producer would fence the writer that has taken over.
    """

    def __init__(
        self,
        follower: RegistryFollower,
        connection: Connection,
        *,
        client_id: str = "delayed-topics-registry",
        timeout_seconds: float = 30,
        transactional_id: str | None = None,
    ) -> None:
        self._follower = follower
        self._connection = connection
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._transactional_id = transactional_id
        self._what = REGISTRY_TOPIC + (f" as transactional id {transactional_id}" if transactional_id else "")
        self._producer: Producer | None = None
        self._fenced: WriterFenced | None = None

    def open(self) -> None:
        """Fences the earlier writers with this transactional id, and ends their transactions. A reader of the registry therefore
        misses none of their writes afterwards. Does nothing if this writer is open; a failed write closes it. Raises
        KafkaCallError."""
        if self._fenced is not None:
            raise self._fenced
        if self._producer is None:
            with self._raising_call_errors("opening"):
                self._producer = self._new_producer(Deadline(self._timeout_seconds))

    def write(self, records: Sequence[RegistryRecord]) -> None:
        """Writes the records in this order. Raises KafkaCallError."""
        self._append([(record.key, encode(record)) for record in records])

    def remove(self, keys: Sequence[str]) -> None:
        """Writes a tombstone for each key. Raises KafkaCallError."""
        self._append([(key, None) for key in keys])

    def _append(self, entries: Sequence[tuple[str, bytes | None]]) -> None:
        if self._fenced is not None:
            raise self._fenced
        if self._producer is None and self._transactional_id is not None:
            # A writer that was opened here would write what was decided before the last record of another writer was read.
            raise KafkaUnreachable(
                f"an earlier write to {self._what} failed. The operator reads the registry again before it writes"
            )
        deadline = Deadline(self._timeout_seconds)
        with self._raising_call_errors("writing"):
            producer = self._producer or self._new_producer(deadline)
            self._producer = None  # a producer that has failed once is not used again
            end = self._sent(producer, entries, deadline)
            self._producer = producer
        self._follower.read_to(end, deadline)

    @contextmanager
    def _raising_call_errors(self, doing: str) -> Iterator[None]:
        """Raises KafkaCallError in place of the exceptions of the client library."""
        try:
            yield
        except RAISED as e:
            raised = call_error(
                kafka_error(e), doing=f"{doing} {self._what}", bootstrap_servers=self._connection.bootstrap_servers
            )
            if isinstance(raised, WriterFenced):
                self._fenced = raised
            raise raised from None

    def _sent(self, producer: Producer, entries: Sequence[tuple[str, bytes | None]], deadline: Deadline) -> int:
        """Writes the entries, in a transaction if there is a transactional id. Returns the offset after the last record. Raises
        KafkaException, SystemError."""
        offsets: list[int] = []
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets.append(message.offset() or 0)

        if self._transactional_id is not None:
            producer.begin_transaction()
        try:
            for key, value in entries:
                producer.produce(REGISTRY_TOPIC, key=key, value=value, partition=0, on_delivery=delivered)
        except KafkaException as e:  # produce() itself raises if the topic was deleted, and no delivery report follows
            failures.append(kafka_error(e))
        unsent = 0
        try:
            unsent = producer.flush(deadline.remaining_seconds + 1)
        except RAISED as e:  # the producer has a fatal error, and its queued records have failed with it
            failures.insert(0, kafka_error(e))
        if unsent and not failures:
            failures.append(KafkaError(KafkaError._TIMED_OUT, "not all records were acknowledged"))
        if self._transactional_id is not None:
            self._end_transaction(producer, failures, deadline)
        if failures:
            raise KafkaException(failures[0])
        return max(offsets, default=-1) + 1

    def _end_transaction(self, producer: Producer, failures: list[KafkaError], deadline: Deadline) -> None:
        """Commits the transaction, or aborts it after a failure. If this fails too, its error is put first in `failures` if it says more
        than they do."""
        try:
            if failures:
                producer.abort_transaction(_ABORT_SECONDS)  # otherwise readers wait until the transaction times out
            else:
                producer.commit_transaction(max(_ABORT_SECONDS, deadline.remaining_seconds))
        except RAISED as e:
            error = kafka_error(e)
            if not failures or error.code() in FENCED:
                failures.insert(0, error)

    def _new_producer(self, deadline: Deadline) -> Producer:
        config = {
            **self._connection.client_config(),
            "client.id": self._client_id,
            **IDEMPOTENT,
            "linger.ms": 0,
            "message.timeout.ms": int(self._timeout_seconds * 1000),
        }
        if self._transactional_id is not None:
            config |= {
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": min(TRANSACTION_TIMEOUT_MS, int(self._timeout_seconds * 1000)),
            }
        with making_client(self._connection.bootstrap_servers):
            producer = Producer(config)
        if self._transactional_id is not None:
            producer.init_transactions(max(_ABORT_SECONDS, deadline.remaining_seconds))
        return producer
