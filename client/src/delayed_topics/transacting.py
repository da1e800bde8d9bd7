"""Writes copies of records and commits the offsets of the originals in one transaction.

The caller keeps the copies until the transaction is committed. A transaction therefore lasts only milliseconds, and can be tried again with
a new producer.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import FENCED, RAISED, kafka_error, making_client
from delayed_topics_kafka.transactions import TRANSACTION_TIMEOUT_MS, send_offsets, why_undelivered

from delayed_topics.copies import BY_KEY, Copy
from delayed_topics.producers import LARGEST_RECORD_BYTES

log = logging.getLogger(__name__)

PURGE_SECONDS: Final = 1.0
"""How long to wait for the delivery reports of purged records. Until these arrive, the producer and the consumer keep their threads and
connections."""
TIMEOUTS: Final = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")
"""librdkafka derives these from the timeout of the transaction, and refuses a larger value. The user's values, which may be larger, are for
the records that the user sends and receives."""


class CopyTransactions:
    """The transactions of one transactional id. Belongs to one thread at a time."""

    def __init__(
        self, properties: Mapping[str, Any], transactional_id: str, *, bootstrap_servers: str, timeout_seconds: float
    ) -> None:
        """`timeout_seconds` is the timeout of each call to Kafka."""
        self._bootstrap_servers = bootstrap_servers
        self._timeout_seconds = timeout_seconds
        self._undelivered: list[KafkaError] = []
        self._producer: Producer | None = None
        self._partitions: dict[str, int] = {}
        self._config: dict[str, Any] = {
            **{name: value for name, value in properties.items() if name not in TIMEOUTS},
            "message.max.bytes": LARGEST_RECORD_BYTES,  # whatever the user's limit for sent records, a copy may be as large as its record
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "delivery.report.only.error": True,
            "on_delivery": self._note_undelivered,
        }

    def take_over(self) -> Producer:
        """Begins a producer with the transactional id, unless there is one. This ends the open transaction of an earlier producer with the
        id, and fences that producer. Raises KafkaException, SystemError, and ConnectionInvalid."""
        if self._producer is None:
            with making_client(self._bootstrap_servers):
                producer = Producer(self._config)
            producer.init_transactions(self._timeout_seconds)
            self._partitions.clear()
            self._producer = producer
        return self._producer

    def write(
        self,
        copies: Iterable[Copy],
        points: list[TopicPartition],
        consumer: Consumer,
        *,
        before_commit: Callable[[], object] = lambda: None,
    ) -> Literal["done", "too large"]:
        """Writes the copies and commits `points`, offsets of the consumer's group, in one transaction. Returns "too large" if Kafka refuses
        a copy as too large for its topic. If this raises after it has called `before_commit`, the transaction may or may not be committed.

        Raises what `take_over` raises, with a code in FENCED if another producer with the id has begun meanwhile.
        """
        producer = self.take_over()
        self._producer = None  # a producer that has failed or was interrupted is not used again
        self._undelivered.clear()
        try:
            producer.begin_transaction()
            for copy in copies:
                self._produce(producer, copy)
            producer.flush(self._timeout_seconds)
            if self._undelivered:
                raise KafkaException(why_undelivered(producer, self._undelivered[0]))
            if points:
                group = consumer.consumer_group_metadata()  # looked up now, because Kafka refuses an older generation
                send_offsets(producer, points, group, self._timeout_seconds)
            before_commit()
            producer.commit_transaction(self._timeout_seconds)
        except RAISED as e:
            error = kafka_error(e)
        except BaseException:
            self._end(producer)
            raise
        else:
            self._producer = producer
            return "done"
        # outside of the except block: if the client library raises while an exception is handled, it keeps that exception and the
        # frames of its traceback alive, and so the producer
        not_aborted = self._end(producer)
        if not_aborted is not None and not_aborted.code() in FENCED:
            error = not_aborted
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return "too large"
        raise KafkaException(error)

    def _end(self, producer: Producer) -> KafkaError | None:
        """Aborts the transaction of a producer that has failed. The producer is not used again, because it may have a fatal error or a gap
        in its sequence numbers. Returns the error if the abort failed. The next producer then ends the transaction, or its timeout does."""
        try:
            producer.abort_transaction(self._timeout_seconds)
            return None
        except RAISED as e:
            error = kafka_error(e)
        log.debug("a transaction is left to the next producer to end: %s", error)
        producer.purge()
        try:
            producer.flush(PURGE_SECONDS)
        except RAISED as e:
            log.debug("a producer ended with %s", kafka_error(e))
        return error

    def _produce(self, producer: Producer, copy: Copy) -> None:
        partition = BY_KEY if copy.partition == BY_KEY else copy.partition % self._partition_count(producer, copy.topic)
        deadline = Deadline(self._timeout_seconds)
        while True:
            with suppress(BufferError):  # the queue is full
                producer.produce(copy.topic, copy.value, copy.key, partition, headers=[*copy.headers])
                return
            if deadline.over:
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL))
            producer.poll(0.1)

    def _partition_count(self, producer: Producer, topic: str) -> int:
        if topic not in self._partitions:
            described = producer.list_topics(topic, self._timeout_seconds).topics[topic]
            if described.error is not None:
                raise KafkaException(described.error)
            self._partitions[topic] = len(described.partitions)
        return self._partitions[topic]

    def _note_undelivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._undelivered.append(error)
