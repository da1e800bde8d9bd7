"""Writes records without waiting for their delivery."""

import logging
from typing import Any, Final, final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RAISED, kafka_error
from delayed_topics_kafka.idempotence import IDEMPOTENT

log = logging.getLogger(__name__)

DELIVERY_TIMEOUT_MS: Final = 60_000


# After a fatal error of a producer, the client library (2.16) may call the delivery callback while an exception is set. CPython then
# finds attributes only in the class itself and not in its base classes, so nothing may inherit from this class
@final
class Outbox:
    """Writes to topics of one partition without waiting. A record that can't be delivered is dropped, and counted in `failed`."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._failed = 0
        self._config: dict[str, Any] = {
            **connection.client_config(),
            "client.id": client_id,
            **IDEMPOTENT,
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "topic.metadata.propagation.max.ms": 3000,  # after that, the client reports a missing topic
            "queue.buffering.max.messages": 10_000,
            "delivery.report.only.error": True,
            "on_delivery": self._undelivered,
        }
        self._may_be_stranded = False
        self._producer = Producer(self._config)

    def write(self, topic: str, *, key: bytes | str, value: bytes | None) -> None:
        """Queues a record. Returns at once, and never raises."""
        self._poll()
        # see stranded.py; the producer is polled too seldom for its statistics to show that it is stranded
        if self._may_be_stranded:
            self._renew()
        try:
            self._producer.produce(topic, key=key, value=value, partition=0)
        except (BufferError, KafkaException) as e:  # for a deleted topic, too; no delivery report follows
            self._fail(topic, e)

    @property
    def failed(self) -> int:
        """How many records could not be delivered so far. Never raises."""
        self._poll()
        return self._failed

    def _poll(self) -> None:
        """Counts the records that could not be delivered since the last poll. The client reports them only to a poll. Returns at once, and
        never raises."""
        try:
            self._producer.poll(0)
        except RAISED as e:
            self._end(e)

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Waits up to `timeout_seconds` for the delivery of queued records. Never raises."""
        try:
            left = self._producer.flush(timeout_seconds)  # the callbacks of this call change `_failed`, too
            self._failed += left
        except RAISED as e:
            self._end(e)

    def _end(self, error: KafkaException | SystemError) -> None:
        """Replaces the producer after a fatal error, for example because it has no right to write."""
        self._renew()
        log.warning("giving up the records that were to be written to Kafka: %s", kafka_error(error))

    def _renew(self) -> None:
        """Replaces the producer. Its queued records count as failed, because it never reports on them."""
        self._failed += len(self._producer)
        self._may_be_stranded = False
        self._producer = Producer(self._config)

    def _fail(self, topic: str, error: object) -> None:
        self._failed += 1
        log.warning("could not write a record to %s: %s", topic, error)

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._may_be_stranded = True
            self._fail(message.topic() or "Kafka", error)
