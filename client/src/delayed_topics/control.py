"""Cancels and reschedules records by their ids: writes requests into the control topic, and reads the answers of workers there."""

import threading
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from delayed_topics_core.control import Control, ControlKind
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import RAISED, call_error, kafka_error, making_client
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.reader import PartitionReader

from delayed_topics.errors import SendFailed
from delayed_topics.producers import WITHOUT_STATISTICS

CLIENT_ID: Final = "delayed-topics-client"
WRITE_SECONDS: Final = 30


class ChangeOutcome(StrEnum):
    """What is known about a request to cancel or to reschedule a record. All but the first two are answers of workers.

    requested       the request is in the control topic, and no worker has answered yet
    replaced        the request was withdrawn or replaced by another one for the same id, before a worker answered
    cancelled       a record with this id is a dead letter with the reason Cancelled
    rescheduled     a record with this id has come out at that time, or waits for it
    too-late        a record with this id was released shortly before; the request stays in force for its retries
    too-deep        a record with this id came out at its former due time, because its turn came no sooner
    not-found       no record with this id came within the longest delay of the topic and a minute; the request stays in force
    no-ladder       the DelayedTopic has no ladder, so its records can't have due times of their own; the request is not in force
    too-far         the time is further ahead than maxDelaySeconds of the DelayedTopic; the request is not in force
    not-understood  an invalid value has overwritten the request, which is not in force any more
    no-room         workers hold no more requests; this one is not in force
    """

    REQUESTED = "requested"
    REPLACED = "replaced"
    CANCELLED = ControlKind.CANCELLED
    RESCHEDULED = ControlKind.RESCHEDULED
    TOO_LATE = ControlKind.TOO_LATE
    TOO_DEEP = ControlKind.TOO_DEEP
    NOT_FOUND = ControlKind.NOT_FOUND
    NO_LADDER = ControlKind.NO_LADDER
    TOO_FAR = ControlKind.TOO_FAR
    NOT_UNDERSTOOD = ControlKind.NOT_UNDERSTOOD
    NO_ROOM = ControlKind.NO_ROOM


class ControlTopic:
    """The control topic of one delayed topic, for its clients. May be used by many threads."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._making = threading.Lock()
        self._producer: Producer | None = None

    def request(self, key: bytes, wanted: Control, *, wait_seconds: float) -> ChangeOutcome:
        """Writes a request, and waits up to `wait_seconds` for an answer. See `DelayedTopic.cancel` and `DelayedTopic.reschedule`."""
        offset = self._write(key, wanted.encode())
        return self._answer(key, wanted, offset, wait_seconds) if wait_seconds > 0 else ChangeOutcome.REQUESTED

    def withdraw(self, key: bytes) -> None:
        """See `DelayedTopic.withdraw`."""
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> int:
        """Writes a record, and returns its offset when Kafka has it. Raises SendFailed, ConnectionInvalid."""
        reports: list[KafkaError | int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            reports.append(message.offset() or 0 if error is None else error)

        with self._making:
            producer = self._producer = self._producer or self._new_producer()
        try:
            producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
            while not reports:
                producer.poll(0.1)  # the report may also arrive in the call of another thread
        except RAISED as e:
            reports = [kafka_error(e)]
        (report,) = reports
        if isinstance(report, int):
            return report
        self._producer = None  # a producer that has failed once is not used again
        servers = self._connection.bootstrap_servers
        why = call_error(report, doing=f"writing to {self._topic}", bootstrap_servers=servers)
        raise SendFailed(str(why), failed=1) from why

    def _new_producer(self) -> Producer:
        config: dict[str, Any] = {
            **self._connection.client_config(),
            **IDEMPOTENT,
            **WITHOUT_STATISTICS,
            "delivery.report.only.error": False,  # `_write` waits for the report
            "client.id": CLIENT_ID,
            "linger.ms": 0,
            "message.timeout.ms": WRITE_SECONDS * 1000,
            "topic.metadata.propagation.max.ms": 3000,  # after that, the client reports a missing topic
        }
        with making_client(self._connection.bootstrap_servers):
            return Producer(config)

    def _answer(self, key: bytes, wanted: Control, offset: int, wait_seconds: float) -> ChangeOutcome:
        """Returns the first answer after the request at `offset`. The answer may belong to an earlier or later request for the same change
        of the same id, which makes no difference to the record. Raises KafkaCallError."""
        deadline = Deadline(wait_seconds)
        outcome = ChangeOutcome.REQUESTED
        with PartitionReader(self._connection, self._topic, client_id=CLIENT_ID, start=offset + 1) as reader:
            while not deadline.over:
                for read in reader.poll(min(0.5, deadline.remaining_seconds)):
                    if read.key != key:
                        continue
                    outcome = _outcome(read.value, wanted, outcome)
                    if outcome not in (ChangeOutcome.REQUESTED, ChangeOutcome.REPLACED):
                        return outcome
        return outcome


def _outcome(value: bytes | None, wanted: Control, before: ChangeOutcome) -> ChangeOutcome:
    """Returns what is known about the request `wanted` after `value` was written with its key. `before` is what was known until then."""
    if value is None:
        return ChangeOutcome.REPLACED
    try:
        control = Control.decode(value)
    except ValueError:
        return before  # workers will answer that they do not understand the value
    if control.kind is ControlKind.NOT_UNDERSTOOD:
        return ChangeOutcome.NOT_UNDERSTOOD
    if control.is_request:
        return ChangeOutcome.REQUESTED if control == wanted else ChangeOutcome.REPLACED
    return ChangeOutcome(control.kind) if control.deliver_at_ms == wanted.deliver_at_ms else before
