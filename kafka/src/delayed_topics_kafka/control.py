"""Reads the control topics of all delayed topics of a worker, from the beginning and without a consumer group."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from threading import Event
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.headers import MAX_ID_BYTES

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable, call_error, making_client
from delayed_topics_kafka.reader import IGNORED_ERRORS, MAX_AT_ONCE, reader_config
from delayed_topics_kafka.statistics import topics_out_of_reach

LOOK_AGAIN_SECONDS: Final = 5
"""It doubles each time, up to `MAX_LOOK_AGAIN_SECONDS`, because an answer is lost if the topic is assigned again before it arrives."""
MAX_LOOK_AGAIN_SECONDS: Final = 60
MAX_BEHIND_SECONDS: Final = 5
"""How long reading may stand before the end of a topic that has further records."""
MAX_OUT_OF_REACH_SECONDS: Final = 10
"""A client needs some seconds to connect to the next leader of a topic."""


class ControlRead(NamedTuple):
    """A record of a control topic. `id` is its key. `control` is its value, and None if the record has none or `is_understood` is False.
    `at_ms` is the time of its append in milliseconds, by the broker's clock."""

    topic: str
    id: bytes
    control: Control | None
    is_understood: bool
    at_ms: int


@dataclass
class _Progress:
    """How far a topic is read.

    `position`: the next offset to read. `stopped_at`: where Kafka last gave out no more. `read_to`: the offset up to which the topic has to
    be read to count as read: the lowest end that Kafka has reported meanwhile, because later ones move away if there is always an open
    transaction. `behind`: it has records after `position` for so long. `out_of_reach`: the client has been without a connection to its
    leader for so long.
    """

    position: int = 0
    stopped_at: int | None = None
    read_to: int | None = None
    is_read: bool = False
    behind: Deadline | None = None
    out_of_reach: Deadline | None = None
    problem: KafkaCallError | None = None

    def reach(self, position: int, end: int) -> None:
        """`end`: that of the topic as of the last answer, with the records of open transactions."""
        if position != self.position:
            self.behind = None
        if position > self.position or end <= position:
            self.problem = None
        self.position = position
        if not self.is_read and end >= position:
            self.read_to = end if self.read_to is None else min(end, self.read_to)
            self.is_read = self.read_to <= position

    def stop(self, position: int, end: int) -> None:
        """Takes in that Kafka gives out nothing from this position on."""
        self.stopped_at = position
        self.problem = None  # Kafka has answered
        self.reach(position, end)

    def fail(self, problem: KafkaCallError) -> None:
        self.problem = problem
        if self.is_read:
            self.is_read, self.read_to = False, None

    def look_for_hidden(self, topic: str, end: int) -> None:
        """Finds out whether the end does not come nearer. Committed records are not given to consumers while they follow a record of an
        open transaction, so that this position looks like the end."""
        if end <= self.position:
            self.behind = None
            # the client may not have known the end yet when it reported that Kafka gives out no more
            self.is_read |= end >= 0 and self.stopped_at == self.position and self.problem is None
        elif self.behind is None:
            self.behind = Deadline(MAX_BEHIND_SECONDS)
        elif self.behind.over and self.stopped_at == self.position and self.problem is None:
            self.fail(
                KafkaCallError(
                    f"a transaction is open since offset {self.position} of {topic}, and Kafka gives out nothing that follows until it "
                    "ends. End the application that began it, or let `kafka-transactions.sh find-hanging` find and abort it"
                )
            )

    def look_for_leader(self, topic: str, *, connected: bool) -> None:
        if connected:
            self.out_of_reach = None
        elif self.out_of_reach is None:
            self.out_of_reach = Deadline(MAX_OUT_OF_REACH_SECONDS)
        elif self.out_of_reach.over and self.problem is None:
            self.fail(
                KafkaUnreachable(
                    f"for {MAX_OUT_OF_REACH_SECONDS} s, {topic} has had no leader to which the client could connect. Let `kafka-topics.sh "
                    "--describe` show whether it has a leader, and check that the network lets clients connect to that broker"
                )
            )


class ControlReader(Closing):
    """Reads topics of one partition each, with one client for all of them. Belongs to one thread at a time."""

    def __init__(self, connection: Connection, *, client_id: str) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._stranded = Event()
        self._auth_errors: list[KafkaError] = []
        self._statistics: list[str] = []
        self._config = {
            **reader_config(
                connection,
                client_id,
                stranded=self._stranded,
                auth_errors=self._auth_errors,
                take_statistics=self._statistics.append,
            ),
            # retention and compaction may have removed the offset where reading continues
            "auto.offset.reset": "earliest",
        }
        self._progress: dict[str, _Progress] = {}
        self._looked = Deadline(LOOK_AGAIN_SECONDS)
        self._look_again_seconds = LOOK_AGAIN_SECONDS
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)

    @property
    def read(self) -> set[str]:
        """The topics that were read to their end. One is missing from it again while its later records can't be read."""
        return {topic for topic, progress in self._progress.items() if progress.is_read}

    @property
    def problems(self) -> dict[str, KafkaCallError]:
        """By topic, why it can't be read."""
        return {topic: of.problem for topic, of in self._progress.items() if of.problem is not None}

    def follow(self, topics: Collection[str]) -> None:
        """Reads these topics from now on, and no others."""
        fresh, over = set(topics) - self._progress.keys(), self._progress.keys() - set(topics)
        for topic in over:
            del self._progress[topic]
        if over:
            # a client that knew a topic which was deleted may never read the next one of that name (librdkafka 4898)
            self._replace_client()
        # not OFFSET_BEGINNING: the client library waits half a second before it looks that up
        self._progress.update((topic, _Progress()) for topic in fresh)
        self._assign(fresh)

    def poll(self, timeout_seconds: float) -> list[ControlRead]:
        """Returns the next records. Waits for the first one for at most `timeout_seconds`."""
        if self._stranded.is_set():
            self._replace_client()
            self._stranded.clear()
        first = self._consumer.poll(timeout_seconds)
        messages = [] if first is None else [first, *self._consumer.consume(MAX_AT_ONCE, 0)]
        reads = [read for message in messages if (read := self._take(message)) is not None]
        for topic, progress in self._progress.items():
            progress.look_for_hidden(topic, self._end(topic))
        self._look_for_leaders()
        self._look_again()
        if self._auth_errors:
            error = self._error(self._auth_errors.pop(), "control topics")
            for progress in self._progress.values():
                if not progress.is_read:
                    progress.fail(error)
            self._auth_errors.clear()
        return reads

    def close(self) -> None:
        self._consumer.close()

    def _end(self, topic: str) -> int:
        """Returns the end of a topic as of the last answer, with the records of open transactions. Less than 0: there was no answer yet."""
        low_and_high = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)
        return -1 if low_and_high is None else low_and_high[1]

    def _look_for_leaders(self) -> None:
        """The client library does not report that it can't connect to the leader of a topic."""
        if self._statistics:
            out_of_reach = topics_out_of_reach(self._statistics[-1])
            self._statistics.clear()
            for topic, progress in self._progress.items():
                progress.look_for_leader(topic, connected=topic not in out_of_reach)

    def _look_again(self) -> None:
        """Assigns the topics with a problem again, and so finds out whether it is over. The client library does not report that a topic
        can be read again until the topic has a new record."""
        problems = self.problems
        if not problems:
            self._look_again_seconds = LOOK_AGAIN_SECONDS
        elif self._looked.over:
            self._looked = Deadline(self._look_again_seconds)
            self._look_again_seconds = min(2 * self._look_again_seconds, MAX_LOOK_AGAIN_SECONDS)
            self._consumer.incremental_unassign([TopicPartition(topic, 0) for topic in problems])
            self._assign(problems)

    def _replace_client(self) -> None:
        former, self._consumer = self._consumer, Consumer(self._config)
        former.close()
        self._assign(self._progress)

    def _assign(self, topics: Iterable[str]) -> None:
        self._consumer.incremental_assign(
            [TopicPartition(topic, 0, self._progress[topic].position) for topic in topics]
        )

    def _take(self, message: Message) -> ControlRead | None:
        error, topic, offset = message.error(), message.topic(), message.offset()
        if topic is None or (progress := self._progress.get(topic)) is None:
            return None
        if error is None:
            assert offset is not None
            progress.reach(offset + 1, self._end(topic))
            return _read(topic, message)
        if error.code() == KafkaError._PARTITION_EOF:
            assert offset is not None
            progress.stop(offset, self._end(topic))
        elif error.code() not in IGNORED_ERRORS:
            progress.fail(self._error(error, topic))
        return None

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
