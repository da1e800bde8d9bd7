"""Events of workers: written without waiting, read by the operator."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from delayed_topics_core.errors import UnknownEventKind, UnreadableRecord
from delayed_topics_core.events import Event
from delayed_topics_core.names import EVENTS_TOPIC

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RAISED, kafka_error
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.reader import PartitionReader, Read

log = logging.getLogger(__name__)


class EventWriter:
    """Fire and forget: an event that can't be delivered is counted in `failed`, and nothing waits for it."""

    def __init__(self, connection: Connection, *, client_id: str = "delayed-topics-events") -> None:
        self.failed = 0
        self._config: dict[str, Any] = {
            **connection.client_config(),
            "client.id": client_id,
            **IDEMPOTENT,
            "linger.ms": 5,
            "message.timeout.ms": 60_000,
            "topic.metadata.propagation.max.ms": 3000,  # a missing topic is said after that
            "queue.buffering.max.messages": 10_000,
            "delivery.report.only.error": True,
            "on_delivery": self._undelivered,
        }
        self._ailing = False
        self._producer = Producer(self._config)

    def write(self, event: Event) -> None:
        """Returns at once, and never raises: a topic that is gone is refused right here, not by a report."""
        if self._ailing:  # it may be stranded, see stranded.py; nobody polls it often enough to be told
            self._ailing = False
            self._producer = Producer(self._config)
        try:
            self._producer.produce(EVENTS_TOPIC, key=event.topic, value=event.encode(), partition=0)
        except (BufferError, KafkaException) as e:
            self._fail(e)
        try:
            self._producer.poll(0)
        except RAISED as e:
            self._end(e)

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Gives what is under way that long to arrive. Never raises."""
        try:
            self.failed += self._producer.flush(timeout_seconds)
        except RAISED as e:
            self._end(e)

    def _end(self, error: KafkaException | SystemError) -> None:
        """The producer can't go on, for instance without the right to write anything; nor will what it has be told of."""
        self.failed += len(self._producer)
        self._producer = Producer(self._config)
        log.warning("events could not be written to %s: %s", EVENTS_TOPIC, kafka_error(error))

    def _fail(self, error: object) -> None:
        self.failed += 1
        log.warning("an event could not be written to %s: %s", EVENTS_TOPIC, error)

    def _undelivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._ailing = True
            self._fail(error)


class EventFollower(Closing):
    """All events that the topic still has (seven days), oldest first, and then as they come; belongs to one thread at a time."""

    def __init__(self, connection: Connection, *, client_id: str = "delayed-topics-events") -> None:
        self._reader = PartitionReader(connection, EVENTS_TOPIC, client_id=client_id)

    def poll(self, timeout_seconds: float) -> list[Event]:
        """The next events, waiting at most that long for the first. Raises KafkaDoorError."""
        return list(_events(self._reader.poll(timeout_seconds)))

    def catch_up(self, timeout_seconds: float, take: Callable[[Event], object]) -> None:
        """Gives everything up to the end as it is now to `take`. Raises KafkaDoorError: KafkaUnreachable when nothing comes for that
        time."""

        def take_all(reads: list[Read]) -> None:
            for event in _events(reads):
                take(event)

        self._reader.catch_up(timeout_seconds, take_all)

    def close(self) -> None:
        self._reader.close()


def _events(reads: list[Read]) -> Iterator[Event]:
    for read in reads:
        try:
            yield Event.decode(read.value or b"")
        except UnknownEventKind as e:
            log.debug("a record of %s is passed over: %s", EVENTS_TOPIC, e)
        except UnreadableRecord as e:
            log.warning("a record of %s is passed over: %s", EVENTS_TOPIC, e)
