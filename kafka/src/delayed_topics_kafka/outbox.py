"""Records that nobody waits for."""

import logging
from typing import Any, Final, final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RAISED, kafka_error
from delayed_topics_kafka.idempotence import IDEMPOTENT

log = logging.getLogger(__name__)

DELIVERY_TIMEOUT_MS: Final = 60_000


# When a producer has ended for good, the client library (2.16) may report a record while an exception is set. CPython then finds an
# attribute in the class itself only, and in no class above it
@final
class Outbox:
    """Fire and forget, to topics of one partition: a record that can't be delivered is counted in `failed`, and nothing waits for it."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._failed = 0
        self._config: dict[str, Any] = {
            **connection.client_config(),
            "client.id": client_id,
            **IDEMPOTENT,
            "linger.ms": 5,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "topic.metadata.propagation.max.ms": 3000,  # a missing topic is said after that
            "queue.buffering.max.messages": 10_000,
            "delivery.report.only.error": True,
            "on_delivery": self._undelivered,
        }
        self._ailing = False
        self._producer = Producer(self._config)

    def write(self, topic: str, *, key: bytes | str, value: bytes | None) -> None:
        """Returns at once, and never raises: a topic that is gone is refused right here, not by a report."""
        self._poll()
        if self._ailing:  # it may be stranded, see stranded.py; nobody polls it often enough to be told
            self._renew()
        try:
            self._producer.produce(topic, key=key, value=value, partition=0)
        except (BufferError, KafkaException) as e:
            self._fail(topic, e)

    @property
    def failed(self) -> int:
        """How many so far. Never raises."""
        self._poll()
        return self._failed

    def _poll(self) -> None:
        """Counts what could not be delivered meanwhile: the client tells nobody who does not ask. Returns at once, and never raises."""
        try:
            self._producer.poll(0)
        except RAISED as e:
            self._end(e)

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Gives what is under way that long to arrive. Never raises."""
        try:
            left = self._producer.flush(timeout_seconds)  # first: it reports on others, which counts them
            self._failed += left
        except RAISED as e:
            self._end(e)

    def _end(self, error: KafkaException | SystemError) -> None:
        """The producer can't go on, for instance because it has no right to write."""
        self._renew()
        log.warning("giving up the records that were to be written to Kafka: %s", kafka_error(error))

    def _renew(self) -> None:
        """A producer that is given up does not report on the records that it still has."""
        self._failed += len(self._producer)
        self._ailing = False
        self._producer = Producer(self._config)

    def _fail(self, topic: str, error: object) -> None:
        self._failed += 1
        log.warning("could not write a record to %s: %s", topic, error)

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._ailing = True
            self._fail(message.topic() or "Kafka", error)
