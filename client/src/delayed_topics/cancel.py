"""Cancels records by their ids: requests in the control topic of a delayed topic, and what workers answer there."""

import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer
from delayed_topics_core.control import Control
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline
from delayed_topics_kafka.errors import RAISED, door_error, kafka_error, making_client
from delayed_topics_kafka.idempotence import IDEMPOTENT
from delayed_topics_kafka.reader import PartitionReader

from delayed_topics.errors import SendFailed

CLIENT_ID: Final = "delayed-topics-client"
WRITE_SECONDS: Final = 30


class CancelOutcome(StrEnum):
    """What is known of a request to cancel a record. All but the first two are answers of workers.

    requested       it is in the control topic, and no worker has answered yet
    withdrawn       it was withdrawn before a worker answered
    cancelled       a record of that id is a dead letter with the reason Cancelled
    too-late        a record of that id was released lately; the request stays in force for its retries
    not-found       no record of that id came within the longest delay of the topic and a minute; the request stays in force
    not-understood  another value was written over the request, and is not in force
    no-room         workers hold no more requests; this one is not in force
    """

    REQUESTED = "requested"
    WITHDRAWN = "withdrawn"
    CANCELLED = Control.CANCELLED
    TOO_LATE = Control.TOO_LATE
    NOT_FOUND = Control.NOT_FOUND
    NOT_UNDERSTOOD = Control.NOT_UNDERSTOOD
    NO_ROOM = Control.NO_ROOM


_BY_VALUE: Final[Mapping[bytes | None, CancelOutcome]] = {
    None: CancelOutcome.WITHDRAWN,
    Control.CANCEL.encode(): CancelOutcome.REQUESTED,
    **{control.encode(): CancelOutcome(control) for control in Control if control is not Control.CANCEL},
}
"""What the last value of a key says. What is missing here is nothing that a client or a worker writes."""
_OPEN: Final = (CancelOutcome.REQUESTED, CancelOutcome.WITHDRAWN)


class ControlTopic:
    """As a client uses it, from any number of threads."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._making = threading.Lock()
        self._producer: Producer | None = None

    def cancel(self, key: bytes, *, wait_seconds: float) -> CancelOutcome:
        """See DelayedTopic."""
        offset = self._write(key, Control.CANCEL.encode())
        return self._answer(key, offset, wait_seconds) if wait_seconds > 0 else CancelOutcome.REQUESTED

    def withdraw(self, key: bytes) -> None:
        """See DelayedTopic."""
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> int:
        """Its offset. Raises SendFailed, ConnectionInvalid."""
        reports: list[KafkaError | int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            reports.append(message.offset() or 0 if error is None else error)

        with self._making:
            producer = self._producer = self._producer or self._new_producer()
        try:
            producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
            while not reports:
                producer.poll(0.1)  # another thread's call may be the one that takes the report
        except RAISED as e:
            reports = [kafka_error(e)]
        (report,) = reports
        if isinstance(report, int):
            return report
        self._producer = None  # one that failed once is not used again
        servers = self._connection.bootstrap_servers
        why = door_error(report, doing=f"writing to {self._topic}", bootstrap_servers=servers)
        raise SendFailed(str(why), failed=1) from why

    def _new_producer(self) -> Producer:
        config: dict[str, Any] = {
            **self._connection.client_config(),
            **IDEMPOTENT,
            "client.id": CLIENT_ID,
            "linger.ms": 0,
            "message.timeout.ms": WRITE_SECONDS * 1000,
            "topic.metadata.propagation.max.ms": 3000,  # a missing topic is said after that
        }
        with making_client(self._connection.bootstrap_servers):
            return Producer(config)

    def _answer(self, key: bytes, offset: int, wait_seconds: float) -> CancelOutcome:
        """The first answer behind the request at `offset`. It may be meant for an earlier request of the id, or for a later one: what
        became of the record is the same. Raises KafkaDoorError."""
        deadline = Deadline(wait_seconds)
        outcome = CancelOutcome.REQUESTED
        with PartitionReader(self._connection, self._topic, client_id=CLIENT_ID, start=offset + 1) as reader:
            while not deadline.over:
                for read in reader.poll(min(0.5, deadline.remaining_seconds)):
                    if read.key == key:
                        outcome = _BY_VALUE.get(read.value, outcome)
                    if outcome not in _OPEN:
                        return outcome
        return outcome
