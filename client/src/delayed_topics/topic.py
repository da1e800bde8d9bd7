"""A delayed topic, as an application uses it: send to it, and handle what comes out."""

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.headers import (
    CREATED_AT,
    DELAY_LEVEL,
    DELIVER_AT,
    ID,
    TARGET,
    Header,
    Target,
)
from delayed_topics_core.names import REGISTRY_TOPIC, TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.words import counted
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import RAISED, kafka_error
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.registry import RegistryFollower

from delayed_topics.arguments import foreign_headers, level, record_id, time_ms
from delayed_topics.control import ChangeOutcome, ControlTopic
from delayed_topics.errors import NotDelayedTopic, Reject, SendFailed
from delayed_topics.process import ProcessOf
from delayed_topics.record import Record
from delayed_topics.records import Records

log = logging.getLogger(__name__)

Handler = Callable[[Record], object]
FOLLOW_SECONDS = 1.0
LARGEST_RECORD_BYTES = 100_000_000
SERVE_SECONDS = 0.1
"""At most for one call that serves callbacks. From 0.2 s on the client library (2.16) serves them several times in one call, also
when the exception is due already that says that the producer has ended for good. A callback then fails in the middle, and leaves its
lock taken."""


class DelayedTopic(Closing):
    """Made by `connect`; use it as a context. `send`, `cancel` and `withdraw` may be called from many threads.

    Belongs to the process that connected: in one that is forked from it, everything but `close` raises ClientForked.
    """

    def __init__(
        self, connection: Connection, names: TopicNames, follower: RegistryFollower, layout: LayoutRecord
    ) -> None:
        self._process = ProcessOf(f"the client of topic {names.front}")
        self._connection = connection
        self._names = names
        self._follower = follower
        self._following = threading.Lock()
        self._followed_at = time.monotonic()
        self._layout = layout
        self._control = ControlTopic(connection, names.control)
        self._failing = threading.Lock()
        self._failures: Counter[str] = Counter()
        """By reason: many records may fail before anybody flushes."""
        self._ended: KafkaError | None = None
        """Why the producer sends nothing any more; for the records it is said to have been purged."""
        self._producer = Producer(
            {
                "compression.type": "lz4",
                **connection.client_config(),
                **IDEMPOTENT,
                # Java's default partitioner, so that a key finds the same partition from either language
                "partitioner": "murmur2_random",
                "message.max.bytes": LARGEST_RECORD_BYTES,
                "delivery.report.only.error": True,
                "on_delivery": self._undelivered,
            }
        )

    @classmethod
    def connect(
        cls, bootstrap: str | Mapping[str, Any] | Connection, topic: str, *, timeout_seconds: float = 30
    ) -> "DelayedTopic":
        """`bootstrap`: "host:port,…", or librdkafka properties, or a Connection. Returns when the topic is served.

        Raises IllegalTopicName, KafkaCallError, and NotDelayedTopic if this Kafka cluster has no such delayed topic.
        """
        names = TopicNames.of(topic)
        connection = _connection(bootstrap)
        deadline = Deadline(timeout_seconds)
        # polled only by who sends: nobody would take the statistics of an application that doesn't
        seldom_asked = replace(connection, further={**connection.further, "statistics.interval.ms": "0"})
        follower = RegistryFollower(seldom_asked, client_id="delayed-topics-client")
        try:
            follower.catch_up(deadline.remaining_seconds)
            while (record := follower.state.layouts.get(topic)) is not None and record.served is None:
                if deadline.over:
                    raise NotDelayedTopic(
                        f"topic {topic} is not served after {timeout_seconds:g} s, because its layout is {record.state}. "
                        f"See `kubectl describe dtopic {record.owner.name} -n {record.owner.namespace}`"
                    )
                follower.poll(0.1)
            layout = record.served if record is not None else None
            if layout is None:
                raise _not_there(topic, connection)
        except BaseException:
            follower.close()
            raise
        return cls(connection, names, follower, layout)

    @property
    def names(self) -> TopicNames:
        return self._names

    @property
    def layout(self) -> LayoutRecord:
        """What the registry says now: delays, retry cap, partitions. Raises NotDelayedTopic once the topic was removed."""
        self._follow()
        return self._layout

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        delay_level: int | None = None,
        deliver_at_ms: int | None = None,
        target: str | None = None,
        id: str | None = None,  # noqa: A002  the header's name
        created_at_ms: int | None = None,
    ) -> None:
        """To the front topic, without waiting: `flush` waits, and says what failed.

        delay_level   the 1-based entry of the delay list that the record waits; above the last: the last; without: the first
        deliver_at_ms when it is due, in milliseconds since the epoch, instead of a delay; in the past: at once
        target        the topic that it comes out in, or topic:partition, also when it is retried; without: the ready topic
        id            stays with the record over all attempts; the worker gives it one if you don't
        created_at_ms when it was made, for whoever handles it to read; stays over all attempts, too

        Raises ValueError for headers that are not yours to give, for a due time where the DelayedTopic has no ladder or that is
        further ahead than it allows, and for a target that it does not allow; SendFailed for a record that no broker would take.
        """
        self._process.check()
        if time.monotonic() > self._followed_at + FOLLOW_SECONDS:
            self._follow()
        all_headers = foreign_headers(headers)
        if delay_level is not None:
            all_headers.append((DELAY_LEVEL, b"%d" % level(delay_level)))
        if deliver_at_ms is not None:
            if delay_level is not None:
                raise ValueError(
                    "delay_level and deliver_at_ms can't be given together, because a record has one due time"
                )
            all_headers.append((DELIVER_AT, b"%d" % self._due_time(deliver_at_ms)))
        if target is not None:
            all_headers.append((TARGET, self._target(target)))
        if id is not None:
            all_headers.append((ID, record_id(id)))
        if created_at_ms is not None:
            all_headers.append((CREATED_AT, b"%d" % time_ms("created_at_ms", created_at_ms)))
        while True:
            try:
                self._producer.produce(self._names.front, value, key, headers=[*all_headers])
                break
            except BufferError:
                # the queue is full: wait for room, as Java's producer does
                self._serve(self._producer.poll, SERVE_SECONDS)
            except KafkaException as e:
                why = self._ended or kafka_error(e)
                raise SendFailed(f"a record for {self._names.front} was not sent: {why}", failed=1) from e
        self._serve(self._producer.poll, 0)

    def flush(self, timeout_seconds: float = 60) -> None:
        """Returns when all that was sent has arrived. Raises SendFailed if something did not, or not yet."""
        self._process.check()
        deadline = Deadline(timeout_seconds)
        while True:
            self._serve(self._producer.flush, min(SERVE_SECONDS, deadline.remaining_seconds))
            waiting = len(self._producer)
            if not waiting or deadline.over:
                break
        with self._failing:
            failures, self._failures = self._failures, Counter()
        if failures:
            why = self._ended or next(iter(failures))
            raise SendFailed(
                f"{counted(failures.total(), 'record')} did not arrive in {self._names.front}. The first failed with: {why}",
                failed=failures.total(),
            )
        if waiting:
            raise SendFailed(
                f"Kafka has not acknowledged {counted(waiting, 'record')} for {self._names.front} after {timeout_seconds:g} s",
                failed=waiting,
            )

    def cancel(self, id: str, *, wait_seconds: float = 0) -> ChangeOutcome:  # noqa: A002  the header's name
        """Has workers make dead letters of the records with this id, instead of releasing them, from the moment they have read the
        request until it is withdrawn. A record that was sent without an id has its root as one, as "f:3:7:<topic id>".

        Returns when the request is in Kafka; then waits up to that long for a worker's answer. It comes when a record of the id
        would be released or hop on, or when it is known that none does: see ChangeOutcome.

        Raises ValueError for an id that no record can have, and where the DelayedTopic has no control topic; SendFailed if Kafka
        did not say that it has the request; KafkaCallError if it has, and the answer can't be read; NotDelayedTopic once the topic
        was removed.
        """
        return self._controlled().request(record_id(id), Control(ControlKind.CANCEL), wait_seconds=wait_seconds)

    def reschedule(self, id: str, deliver_at_ms: int, *, wait_seconds: float = 0) -> ChangeOutcome:  # noqa: A002
        """Has records with this id that have come in before that time come out then, in milliseconds since the epoch, instead of when
        they are due; a time in the past: as soon as their turn comes. Attempts that come in after that time are not meant.

        Returns, waits and raises as `cancel`, and ValueError for a time as `send` does.
        """
        control = self._controlled()
        wanted = Control(ControlKind.DELIVER_AT, self._due_time(deliver_at_ms))
        return control.request(record_id(id), wanted, wait_seconds=wait_seconds)

    def withdraw(self, id: str) -> None:  # noqa: A002  the header's name
        """Takes `cancel` or `reschedule` back: records with this id are released when they are due. Returns when Kafka has it. Raises as
        `cancel`."""
        self._controlled().withdraw(record_id(id))

    def records(self, group: str, *, member: str | None = None, ready_topic: str | None = None) -> Records:
        """Joins a consumer group of the ready topic, or of another `ready_topic` into which records are released; see Records for
        `member`."""
        self._process.check()
        return Records(self._connection, self._names, group, member=member, ready_topic=ready_topic)

    def consumer(
        self, group: str, handler: Handler, *, member: str | None = None, ready_topic: str | None = None
    ) -> "Consumer":
        """As `records`, with a handler whose exceptions decide what becomes of a record."""
        return Consumer(self.records(group, member=member, ready_topic=ready_topic), handler)

    def consume(
        self, group: str, handler: Handler, *, member: str | None = None, ready_topic: str | None = None
    ) -> None:
        """Runs a consumer until SIGTERM or SIGINT; to be called in the main thread."""
        self.consumer(group, handler, member=member, ready_topic=ready_topic).run_until_signal()

    def close(self) -> None:
        """Flushes. Raises SendFailed. Does nothing in a process that was forked from the one that connected."""
        if not self._process.is_here:
            return
        try:
            self.flush()
        finally:
            self._follower.close()

    def _follow(self) -> None:
        self._process.check()
        if not self._following.acquire(blocking=False):
            return  # another thread does
        try:
            self._follower.poll(0)
            self._followed_at = time.monotonic()
            record = self._follower.state.layouts.get(self._names.front)
            if record is None:
                raise _not_there(self._names.front, self._connection)
            self._layout = record.served or self._layout
        finally:
            self._following.release()

    def _controlled(self) -> ControlTopic:
        if not self.layout.control:
            raise ValueError(f"{self._names.front} has no control topic. Set spec.control of its DelayedTopic")
        return self._control

    def _serve(self, call: Callable[[float], int], timeout_seconds: float) -> None:
        """Takes in what was not delivered."""
        try:
            call(timeout_seconds)
        except RAISED as e:
            self._ended = kafka_error(e)

    def _due_time(self, deliver_at_ms: int) -> int:
        """Checks the time by the clock of this machine. The worker may still find it too far ahead by the broker's clock."""
        layout = self._layout
        if not layout.layout.ladder_seconds:
            raise ValueError(
                f"{layout.topic} does not take records with their own due time. Set spec.ladder of its DelayedTopic"
            )
        ahead_seconds = (time_ms("deliver_at_ms", deliver_at_ms) - time.time() * 1000) / 1000
        if ahead_seconds > layout.max_delay_seconds:
            raise ValueError(
                f"deliver_at_ms must be at most {layout.max_delay_seconds} s ahead (spec.maxDelaySeconds), "
                f"but it is {ahead_seconds:.0f} s ahead"
            )
        return deliver_at_ms

    def _target(self, target: str) -> bytes:
        try:
            topic = Target.decode(target.encode()).topic
        except ValueError:
            raise ValueError(f"target must be a topic or topic:partition, but it is {target!r}") from None
        layout = self._layout
        if topic not in layout.targets:
            allowed_by = f"allowed by spec.ready.allowedTopics of the DelayedTopic {layout.topic}"
            which = f". The allowed topics are {', '.join(layout.targets)}" if layout.targets else ""
            raise ValueError(f"target must be {allowed_by}, but it is {topic!r}{which}")
        return target.encode()

    def _undelivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            with self._failing:
                self._failures[str(error)] += 1


class Consumer:
    """A handler at work. A handler that returns is done with the record; `Reject` makes a dead letter; any other exception a retry."""

    def __init__(self, records: Records, handler: Handler) -> None:
        self._records = records
        self._handler = handler

    def run(self) -> None:
        """Until `stop`; then what is done is settled and the group left. Raises KafkaCallError, as Records does."""
        with self._records as records:
            for record in records:
                try:
                    self._handler(record)
                except Reject as e:
                    records.reject(record, e.reason)
                except Exception as e:  # noqa: BLE001  whatever a handler raises means: not this time
                    log.info("%s [%d] offset %d is retried: %r", record.topic, record.partition, record.offset, e)
                    records.retry(record, e)

    def run_until_signal(self) -> None:
        """As `run`, and SIGTERM and SIGINT stop it; to be called in the main thread."""
        with on_signal(self.stop):
            self.run()

    def stop(self) -> None:
        """Ends `run` after the record at hand. To be called from handlers, signal handlers and other threads."""
        self._records.stop()


@contextmanager
def on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` until the block ends; to be entered in the main thread."""

    def called(number: int, frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, called) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _connection(bootstrap: str | Mapping[str, Any] | Connection) -> Connection:
    match bootstrap:
        case Connection():
            return bootstrap
        case str():
            return Connection(bootstrap_servers=bootstrap)
        case _:
            return Connection.from_properties(bootstrap)


def _not_there(topic: str, connection: Connection) -> NotDelayedTopic:
    return NotDelayedTopic(
        f"topic {topic} is not in {REGISTRY_TOPIC} of Kafka at {connection.bootstrap_servers}. "
        "Either create a DelayedTopic resource for it, or connect to the Kafka cluster that has it"
    )
