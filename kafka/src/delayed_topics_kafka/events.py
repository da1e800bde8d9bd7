"""Events of workers: written without waiting, read by the operator."""

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
    """Writes events fire and forget: one that can't be delivered is counted in `failed`, and nothing waits for it."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._outbox = Outbox(connection, client_id=client_id)
        self.close = self._outbox.close

    @property
    def failed(self) -> int:
        """How many so far. Never raises."""
        return self._outbox.failed

    def tell(self, event: Event) -> None:
        """Returns at once, and never raises."""
        self._outbox.write(EVENTS_TOPIC, key=event.topic, value=event.encode())


class EventFollower(Closing):
    """All events that the topic still has (seven days), oldest first, and then as they come; belongs to one thread at a time."""

    def __init__(self, connection: Connection, *, client_id: str = "delayed-topics-events") -> None:
        self._connection = connection
        self._client_id = client_id
        self._reader = self._new_reader()

    def poll(self, timeout_seconds: float) -> list[Event]:
        """The next events, waiting at most that long for the first. Raises KafkaCallError."""
        try:
            return list(_events(self._reader.poll(timeout_seconds)))
        except TopicTruncated as e:
            log.warning("%s. Reading begins again with the first record of the topic", e)
            self._reader.close()
            self._reader = self._new_reader()
            return []

    def catch_up(self, timeout_seconds: float, take: Callable[[Event], object]) -> None:
        """Gives everything up to the end as it is now to `take`. Raises KafkaCallError: KafkaUnreachable when nothing comes for that
        time."""

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
