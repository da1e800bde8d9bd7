"""A delayed topic, as an application uses it: to send records, and to handle those that come out."""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_core.headers import CREATED_AT, DELAY_LEVEL, DELIVER_AT, ID, TARGET, Header
from delayed_topics_core.names import TopicNames
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.words import counted
from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import RAISED, kafka_error, making_client
from delayed_topics_kafka.registry import RegistryFollower

from delayed_topics.arguments import (
    check_ready_topic,
    due_time_ms,
    foreign_headers,
    level,
    record_id,
    target_header,
    time_ms,
)
from delayed_topics.control import ChangeOutcome, ControlTopic
from delayed_topics.errors import FAILURES, NotDelayedTopic, Reject, SendFailed
from delayed_topics.followed import FollowedLayout, not_there, registry_follower
from delayed_topics.handlers import FailureLog, Handler, check_handler, check_result
from delayed_topics.process import ProcessOf
from delayed_topics.producers import producer_properties
from delayed_topics.records import Records
from delayed_topics.reports import OnDelivery, Reports

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 1.0
FLUSH_SECONDS = 60.0
SERVE_SECONDS = 0.1
"""The longest call that serves callbacks. In a call of 0.2 s or more, the client library (2.16) serves callbacks several times, and goes on
after the exception for a fatal error of the producer. A callback then fails midway, and does not release its lock."""


class DelayedTopic(Closing):
    """A delayed topic to send to and to consume. Create it with `connect`, and use it as a context manager, which closes it. `send`,
    `flush`, `cancel`, `reschedule` and `withdraw` may be called from many threads.

    It belongs to the process that connected. In a process that is forked from it, everything but `close` raises ClientForked.
    """

    def __init__(
        self, connection: Connection, names: TopicNames, follower: RegistryFollower, layout: LayoutRecord
    ) -> None:
        self._process = ProcessOf(self, f"the client of topic {names.front}")
        self._connection = connection
        self._names = names
        self._followed = FollowedLayout(connection, follower, layout)
        self._control = ControlTopic(connection, names.control)
        self._reports = Reports()
        self._closed = False
        self._fatal_error: KafkaError | None = None
        """The fatal error of the producer. The delivery reports of its records say only that they were purged."""
        with making_client(connection.bootstrap_servers):
            # without the reports of records that arrived, it would not be known what `flush` has to wait for
            needed = {"delivery.report.only.error": False}
            self._producer = Producer(producer_properties(connection, needed))

    @classmethod
    def connect(
        cls, bootstrap: str | Mapping[str, Any] | Connection, topic: str, *, timeout_seconds: float = 30
    ) -> "DelayedTopic":
        """Connects to a delayed topic, and returns when the topic is served. `bootstrap` is "host:port,…", or librdkafka properties, or a
        Connection.

        Raises IllegalTopicName, KafkaCallError, and NotDelayedTopic if this Kafka cluster has no such delayed topic.
        """
        names = TopicNames.of(topic)
        connection = _connection(bootstrap)
        deadline = Deadline(timeout_seconds)
        follower = registry_follower(connection)
        try:
            follower.catch_up(deadline.remaining_seconds)
            while (record := follower.state.layouts.get(topic)) is not None:
                if record.served is not None:
                    return cls(connection, names, follower, record.served)
                if deadline.over:
                    raise NotDelayedTopic(
                        f"topic {topic} is not served after {timeout_seconds:g} s, because its layout is {record.state}. "
                        f"See `kubectl describe dtopic {record.owner.name} -n {record.owner.namespace}`"
                    )
                follower.poll(0.1)
            raise not_there(topic, connection)
        except BaseException:
            follower.close()
            raise

    @property
    def names(self) -> TopicNames:
        return self._names

    @property
    def layout(self) -> LayoutRecord:
        """Delays, retry cap and partitions, as the registry has them now, or had them last if it can't be read. Raises NotDelayedTopic once
        the topic was removed."""
        self._process.check()
        return self._followed.get()

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
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Sends a record to the front topic, without waiting for Kafka. `flush` waits, and raises SendFailed for records that failed.

        value, key    the value and the key of the record; records with the same key go to the same partition
        headers       further headers, which stay with the record for all attempts
        delay_level   the entry of the delay list that the record waits, counted from 1, by default the first. A number above the last
                      entry means the last
        deliver_at_ms the due time, in milliseconds since the epoch, instead of a delay. A time in the past means at once
        target        the topic in which the record comes out, also when it is retried, or topic:partition; by default the ready topic
        id            stays the same for all attempts. A worker gives the record an id unless you do
        created_at_ms when the record was made, in milliseconds since the epoch, for its handler. Stays the same for all attempts
        on_delivery   is called as by confluent_kafka: with (None, Message) when Kafka has the record, or with (KafkaError, Message) when
                      it failed. Any thread that sends or flushes may call it. It can't send or flush itself. What it raises is logged

        Raises ValueError for reserved headers, for a due time if the DelayedTopic has no ladder or the time is further ahead than it
        allows, and for a target that it does not allow; SendFailed for a record that no broker would accept, and after `close`;
        NotDelayedTopic once the topic was removed. Errors of the registry are logged.
        """
        self._check()
        if self._closed:
            raise SendFailed(f"a record for {self._names.front} was not sent, because the client is closed", failed=1)
        layout = self._followed.get(age_seconds=FOLLOW_SECONDS)
        all_headers = foreign_headers(headers)
        if delay_level is not None:
            all_headers.append((DELAY_LEVEL, b"%d" % level(delay_level)))
        if deliver_at_ms is not None:
            if delay_level is not None:
                raise ValueError(
                    "delay_level and deliver_at_ms can't be given together, because a record has one due time"
                )
            all_headers.append((DELIVER_AT, b"%d" % due_time_ms(layout, deliver_at_ms)))
        if target is not None:
            all_headers.append((TARGET, target_header(layout, target)))
        if id is not None:
            all_headers.append((ID, record_id(id)))
        if created_at_ms is not None:
            all_headers.append((CREATED_AT, b"%d" % time_ms("created_at_ms", created_at_ms)))
        with self._reports.sending(on_delivery) as report:
            while True:
                try:
                    self._producer.produce(self._names.front, value, key, headers=[*all_headers], on_delivery=report)
                    break
                except BufferError:
                    # the queue is full: wait for room, as Java's producer does
                    self._serve(self._producer.poll, SERVE_SECONDS)
                except KafkaException as e:
                    why = self._fatal_error or kafka_error(e)
                    raise SendFailed(f"a record for {self._names.front} was not sent: {why}", failed=1) from e
        self._serve(self._producer.poll, 0)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> None:
        """Waits until Kafka has acknowledged all records that any thread sent before this call. Raises SendFailed if that takes longer
        than `timeout_seconds`, or if a record did not arrive that was sent by this thread, or by a thread that has ended. `flush` in
        another thread that still runs raises the failures of that thread, or else `close` does."""
        self._flush(threading.current_thread(), timeout_seconds)

    def _flush(self, sender: threading.Thread | None, timeout_seconds: float) -> None:
        """As `flush`. If `sender` is None, also waits for records that are sent meanwhile, and raises the failures of all threads."""
        self._check()
        deadline = Deadline(timeout_seconds)
        awaited = self._reports.waiting()
        while True:
            self._serve(self._producer.flush, min(SERVE_SECONDS, deadline.remaining_seconds))
            awaited = self._reports.waiting(None if sender is None else awaited)
            waiting = min(len(self._producer), len(awaited))
            if not waiting or deadline.over:
                break
        if failures := self._reports.take_failures(sender):
            why = self._fatal_error or next(iter(failures))
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
        """Cancels the records with this id. From the moment when workers have read the request until `withdraw`, they make dead letters of
        these records instead of releasing them. A record that was sent without an id has its root as its id, such as
        "f:3:7:<topic id>".

        Writes the request into Kafka, and then waits up to `wait_seconds` for the answer of a worker. A worker answers when a record with
        the id would be released or hop, or when it is known that there is no such record: see ChangeOutcome.

        Raises ValueError for an id that no record can have, and if the DelayedTopic has no control topic; SendFailed if Kafka did not
        acknowledge the request; KafkaCallError if the request was written but the answer can't be read; NotDelayedTopic once the
        topic was removed.
        """
        return self._control_topic().request(record_id(id), Control(ControlKind.CANCEL), wait_seconds=wait_seconds)

    def reschedule(self, id: str, deliver_at_ms: int, *, wait_seconds: float = 0) -> ChangeOutcome:  # noqa: A002
        """Gives the records with this id a new due time, `deliver_at_ms`, in milliseconds since the epoch. The request applies only to
        records that come in before that time. If the time has passed when a worker reads the request, these records come out as soon as
        their turn comes. To release a record now, therefore request the present time, and not 0: no record came in before 0.

        Returns, waits and raises as `cancel`, and raises ValueError for a time as `send` does.
        """
        control = self._control_topic()
        wanted = Control(ControlKind.DELIVER_AT, due_time_ms(self.layout, deliver_at_ms))
        return control.request(record_id(id), wanted, wait_seconds=wait_seconds)

    def withdraw(self, id: str) -> None:  # noqa: A002  the header's name
        """Withdraws what `cancel` or `reschedule` requested: the records with this id are released when they are due. Returns when Kafka
        has the withdrawal. Raises what `cancel` raises."""
        self._control_topic().withdraw(record_id(id))

    def records(self, group: str, *, member: str | None = None, ready_topic: str | None = None) -> Records:
        """Joins a consumer group that reads the ready topic.

        member        a name of this consumer that stays the same when it restarts and that no other consumer has, such as the name of its
                      pod. After a SIGKILL, the next consumer with this name ends at once the transaction that was left open and would
                      hold back readers for up to twenty seconds
        ready_topic   another topic to read, into which records are released. Retried records come back there

        Raises GroupInvalid for a group that a header can't hold, ConnectionInvalid for a property of the connection that conflicts with
        what this client needs, and, with a `ready_topic`, ValueError for one that the delayed topic does not allow and never did, and
        NotDelayedTopic once the delayed topic was removed.
        """
        self._process.check()
        if ready_topic is not None:
            check_ready_topic(self.layout, ready_topic)
        return Records(self._connection, self._names, group, member=member, ready_topic=ready_topic)

    def consumer(
        self, group: str, handler: Handler, *, member: str | None = None, ready_topic: str | None = None
    ) -> "Consumer":
        """Returns a Consumer with a handler, whose exceptions decide what becomes of a record. The other arguments and errors are those of
        `records`. Raises TypeError for a handler that is a coroutine function or a generator."""
        check_handler(handler)  # before the consumer joins its group
        return Consumer(self.records(group, member=member, ready_topic=ready_topic), handler)

    def consume(
        self, group: str, handler: Handler, *, member: str | None = None, ready_topic: str | None = None
    ) -> None:
        """Runs a `consumer` until SIGTERM or SIGINT. Call this in the main thread. Raises what `consumer` and Consumer.run raise."""
        self.consumer(group, handler, member=member, ready_topic=ready_topic).run_until_signal()

    def close(self, timeout_seconds: float = FLUSH_SECONDS) -> None:
        """Flushes what all threads have sent, as `flush`. Raises SendFailed, also for earlier failures that no `flush` has raised. Does
        nothing in a process that was forked from the one that connected."""
        if not self._process.is_here:
            return
        self._closed = True  # before the last flush, because nothing would wait for a record that is sent after it
        try:
            self._flush(None, timeout_seconds)
        finally:
            self._followed.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the client. An exception of the block goes on, and records that did not arrive are then only logged."""
        try:
            self.close()
        except SendFailed as e:
            if error is None:
                raise
            log.error("%s", e)

    def _check(self) -> None:
        self._process.check()
        self._reports.check()

    def _control_topic(self) -> ControlTopic:
        if not self.layout.control:
            raise ValueError(f"{self._names.front} has no control topic. Set spec.control of its DelayedTopic")
        return self._control

    def _serve(self, call: Callable[[float], int], timeout_seconds: float) -> None:
        """Makes a call that serves delivery callbacks, and keeps the fatal error that it may raise."""
        try:
            call(timeout_seconds)
        except RAISED as e:
            self._fatal_error = kafka_error(e)


class Consumer:
    """Runs a handler for each record. If the handler returns, the record is done; if it raises `Reject`, the record becomes a dead letter;
    after any other exception, the record is retried."""

    def __init__(self, records: Records, handler: Handler) -> None:
        """Raises TypeError for a coroutine function or a generator, because no one would run it."""
        check_handler(handler)
        self._records = records
        self._handler = handler
        self._failures = FailureLog()

    def run(self) -> None:
        """Handles records until `stop`, and then settles their outcomes and leaves the group. Raises KafkaCallError, as Records does, and
        TypeError if the handler returns something that would have to be awaited. That record is handed out again."""
        with self._records as records:
            for record in records:
                try:
                    result = self._handler(record)
                except Reject as e:
                    self._failures.log(record, "becomes a dead letter", e)
                    records.reject(record, getattr(e, "reason", e))  # a subclass may not call Reject.__init__
                except FAILURES as e:
                    self._failures.log(record, "is retried", e)
                    records.retry(record, e)
                else:
                    check_result(self._handler, result)

    def run_until_signal(self) -> None:
        """As `run`, until `stop`, SIGTERM or SIGINT. Call this in the main thread."""
        with on_signal(self.stop):
            self.run()

    def stop(self) -> None:
        """Ends `run` after the current record. May be called from handlers, signal handlers and other threads."""
        self._records.stop()


@contextmanager
def on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call `stop` until the block ends. Enter this in the main thread."""

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
