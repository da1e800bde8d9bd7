"""Events of workers. Writing them does not wait for Kafka; the operator reads them."""

import logging
from collections.abc import Callable, Iterator

from delayed_topics_core.errors import UnknownEventKind, UnreadableRecord
from delayed_topics_core.events import Event
from delayed_topics_core.names import EVENTS_TOPIC

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import TopicTruncated
from delayed_topics_kafka.outbox import Outbox
from delayed_topics_kafka.reader import PartitionReader, Read

log = logging.getLogger(__name__)


class EventWriter:
    """Writes events without waiting for Kafka. An event that can't be delivered is dropped, and counted in `failed`."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._outbox = Outbox(connection, client_id=client_id)
        self.close = self._outbox.close

    @property
    def failed(self) -> int:
        """How many events could not be delivered so far. Never raises."""
        return self._outbox.failed

    def write(self, event: Event) -> None:
        """Queues an event. Returns at once, and never raises."""
        self._outbox.write(EVENTS_TOPIC, key=event.topic, value=event.encode())


class EventFollower(Closing):
    """Reads all events that the topic still has (seven days), oldest first, and then new ones. Belongs to one thread at a time."""

    def __init__(self, connection: Connection, *, client_id: str = "delayed-topics-events") -> None:
        self._connection = connection
        self._client_id = client_id
        self._reader = self._new_reader()

    def poll(self, timeout_seconds: float) -> list[Event]:
        """Returns the next events. Waits for the first one for at most `timeout_seconds`. Raises KafkaCallError."""
        try:
            return list(_events(self._reader.poll(timeout_seconds)))
        except TopicTruncated as e:
            log.warning("%s. Reading begins again with the first record of the topic", e)
            self._reader.close()
            self._reader = self._new_reader()
            return []

    def catch_up(self, timeout_seconds: float, take: Callable[[Event], object]) -> None:
        """Passes every event up to the present end of the topic to `take`. Raises KafkaCallError, and in particular KafkaUnreachable if
        nothing arrives for `timeout_seconds`."""

        def take_all(reads: list[Read]) -> None:
            for event in _events(reads):
                take(event)

        self._reader.catch_up(timeout_seconds, take_all)

    def close(self) -> None:
        self._reader.close()

    def _new_reader(self) -> PartitionReader:
        return PartitionReader(self._connection, EVENTS_TOPIC, client_id=self._client_id)


def _events(reads: list[Read]) -> Iterator[Event]:
    for read in reads:
        try:
            yield Event.decode(read.value or b"")
        except UnknownEventKind as e:
            log.debug("skipping a record of topic %s: %s", EVENTS_TOPIC, e)
        except UnreadableRecord as e:
            log.warning("skipping a record of topic %s: %s", EVENTS_TOPIC, e)
