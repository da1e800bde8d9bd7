"""Reads the control topics of all delayed topics of a worker, from the beginning and without a consumer group."""

from collections.abc import Collection
from threading import Event
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.headers import MAX_ID_BYTES

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaCallError, call_error, making_client
from delayed_topics_kafka.reader import IGNORED_ERRORS, MAX_AT_ONCE, reader_config

LOOK_AGAIN_SECONDS: Final = 5
MAX_BEHIND_SECONDS: Final = 5
"""How long reading may stand before the end of a topic that has further records."""


class ControlRead(NamedTuple):
    """A record of a control topic. `id` is its key. `control` is its value, and None if the record has none or `is_understood` is False.
    `at_ms` is the time of its append in milliseconds, by the broker's clock."""

    topic: str
    id: bytes
    control: Control | None
    is_understood: bool
    at_ms: int


class ControlReader(Closing):
    """Reads topics of one partition each, with one client for all of them. Belongs to one thread at a time.

    `read` has the topics that were read to their end. One is missing from it again while an open transaction hides its later records.
    `problems` says by topic why it can't be read.
    """

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._stranded = Event()
        self._auth_errors: list[KafkaError] = []
        self._config = {
            **reader_config(connection, client_id, stranded=self._stranded, auth_errors=self._auth_errors),
            # retention and compaction may have removed the offset where reading continues
            "auto.offset.reset": "earliest",
        }
        self.read: set[str] = set()
        self.problems: dict[str, KafkaCallError] = {}
        self._positions: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        """Of topics that are not in `read`, the offset up to which they have to be read: the end when Kafka last gave out no more."""
        self._standing: dict[str, tuple[int, Deadline]] = {}
        """The topics that have records after the position at which reading stands."""
        self._looked = Deadline(LOOK_AGAIN_SECONDS)
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)

    def follow(self, topics: Collection[str]) -> None:
        """Reads these topics from now on, and no others."""
        fresh, over = set(topics) - self._positions.keys(), self._positions.keys() - set(topics)
        if fresh:
            # not OFFSET_BEGINNING: the client library waits half a second before it looks that up
            self._positions.update(dict.fromkeys(fresh, 0))
            self._consumer.incremental_assign([TopicPartition(topic, 0, 0) for topic in fresh])
        if over:
            self._consumer.incremental_unassign([TopicPartition(topic, 0) for topic in over])
            for topic in over:
                for of_topic in (self._positions, self._ends, self._standing, self.problems):
                    of_topic.pop(topic, None)
            self.read -= over

    def poll(self, timeout_seconds: float) -> list[ControlRead]:
        """Returns the next records. Waits for the first one for at most `timeout_seconds`."""
        if self._stranded.is_set():
            self._stranded.clear()
            self._consumer.close()
            self._consumer = Consumer(self._config)
            self._consumer.incremental_assign([TopicPartition(t, 0, at) for t, at in self._positions.items()])
        first = self._consumer.poll(timeout_seconds)
        messages = [] if first is None else [first, *self._consumer.consume(MAX_AT_ONCE, 0)]
        reads = [read for message in messages if (read := self._take(message)) is not None]
        self._look_for_hidden()
        self._look_again()
        if self._auth_errors:
            error = self._error(self._auth_errors.pop(), "control topics")
            self.problems.update(dict.fromkeys(self._positions.keys() - self.read, error))
            self._auth_errors.clear()
        return reads

    def close(self) -> None:
        self._consumer.close()

    def _look_for_hidden(self) -> None:
        """Finds the topics whose end does not come nearer. Committed records are not given to consumers while they follow a record of an
        open transaction, so that this position looks like the end."""
        for topic, position in self._positions.items():
            if (end := self._end(topic)) <= position:
                self._standing.pop(topic, None)
            elif (standing := self._standing.get(topic)) is None or standing[0] != position:
                self._standing[topic] = position, Deadline(MAX_BEHIND_SECONDS)
            elif standing[1].over:
                self.read.discard(topic)
                self._ends[topic] = end
                self.problems[topic] = KafkaCallError(
                    f"a transaction is open since offset {position} of {topic}, and Kafka gives out nothing that follows until it ends. "
                    "End the application that began it, or let `kafka-transactions.sh find-hanging` find and abort it"
                )

    def _end(self, topic: str) -> int:
        """Returns the end of a topic as of the last answer, with the records of open transactions. Less than 0: there was no answer yet."""
        low_and_high = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)
        return -1 if low_and_high is None else low_and_high[1]

    def _look_again(self) -> None:
        """Assigns the topics with a problem again, and so finds out whether it is over. The client library does not report that a topic
        can be read again until the topic has a new record."""
        if not self.problems or not self._looked.over:
            return
        self._looked = Deadline(LOOK_AGAIN_SECONDS)
        self._consumer.incremental_unassign([TopicPartition(topic, 0) for topic in self.problems])
        self._consumer.incremental_assign([TopicPartition(topic, 0, self._positions[topic]) for topic in self.problems])

    def _take(self, message: Message) -> ControlRead | None:
        error, topic, offset = message.error(), message.topic(), message.offset()
        if topic is None or topic not in self._positions:
            return None
        if error is None:
            assert offset is not None
            self._reach(topic, offset + 1)
            return _read(topic, message)
        if error.code() == KafkaError._PARTITION_EOF:
            assert offset is not None
            if topic not in self.read:
                self._ends[topic] = self._end(topic)
            self._reach(topic, offset)
        elif error.code() not in IGNORED_ERRORS:
            self.problems[topic] = self._error(error, topic)
        return None

    def _reach(self, topic: str, position: int) -> None:
        if position > self._positions[topic] or self._end(topic) <= position:
            self.problems.pop(topic, None)
        self._positions[topic] = position
        if self._ends.get(topic, position + 1) <= position:
            del self._ends[topic]
            self.read.add(topic)

    def _error(self, error: KafkaError, what: str) -> KafkaCallError:
        return call_error(error, doing=f"reading {what}", bootstrap_servers=self._bootstrap_servers)


def _read(topic: str, message: Message) -> ControlRead | None:
    key, value, at_ms = message.key(), message.value(), message.timestamp()[1]
    if not key:
        return None  # a record without a key names no id
    try:
        control = None if value is None else Control.decode(value)
    except ValueError:
        return ControlRead(topic, key, None, is_understood=False, at_ms=at_ms)
    fits = len(key) <= MAX_ID_BYTES or control is None or control.kind is ControlKind.NOT_UNDERSTOOD
    return ControlRead(topic, key, control, is_understood=fits, at_ms=at_ms)
