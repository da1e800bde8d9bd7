"""Reads a topic of one partition, from its beginning or from an offset, without a consumer group: the registry, events, answers of workers.

The records come in batches, so that a topic of a million records takes no more memory than one of a thousand.
"""

import logging
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from delayed_topics_kafka.closing import Closing
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.deadline import Deadline, until_true
from delayed_topics_kafka.errors import (
    TRANSIENT,
    KafkaCallError,
    KafkaUnreachable,
    TopicMissing,
    TopicTruncated,
    call_error,
    is_token_failure,
    kafka_error,
    making_client,
)
from delayed_topics_kafka.stranded import collect_auth_error, when_stranded

log = logging.getLogger(__name__)

MAX_AT_ONCE = 1000
"""The largest number of records in a batch."""
FETCHED_AHEAD: Final[dict[str, Any]] = {
    "queued.min.messages": MAX_AT_ONCE,
    "queued.max.messages.kbytes": 2048,
    "fetch.message.max.bytes": 1_048_576,
    "fetch.max.bytes": 2_097_152,
}
"""Limits what the client library fetches ahead, which is by default 100,000 records and 64 MiB. A larger record still arrives, alone."""

_ASK_AGAIN = TRANSIENT | {KafkaError._TIMED_OUT}
IGNORED_ERRORS = frozenset(
    {
        # librdkafka recovers from these by itself
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        # the client library requires a group id and looks for the group's coordinator, but this reader uses neither
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)


class Read(NamedTuple):
    """A record of the topic. `at_ms` is its timestamp in milliseconds."""

    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int


Take = Callable[[list[Read]], object]
"""Takes the records, batch after batch. The last batch may be empty."""


class PartitionReader(Closing):
    """Reads only while a method is called, and has no thread of its own. Belongs to one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        client_id: str,
        start: int = 0,
    ) -> None:
        """`start` is the first offset to read, which Kafka must not have removed. 0 means the first offset that the topic still has.

        Raises ConnectionInvalid.
        """
        self._bootstrap_servers = connection.bootstrap_servers
        self._topic = topic
        self._stranded = Event()
        self._auth_errors: list[KafkaError] = []
        self._all_down = Event()
        self._config = {
            **reader_config(connection, client_id, stranded=self._stranded, auth_errors=self._auth_errors),
            "auto.offset.reset": "error",
            "error_cb": partial(_note_error, self._auth_errors, self._all_down),
        }
        self.position = start
        """The next offset to read. Each record below it was returned, will be returned by the next call that succeeds, or was removed."""
        self.at_end = False
        """Whether reading has reached the end of the topic at least once."""
        self._reads: list[Read] = []
        self._assigned = False
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)

    def poll(self, timeout_seconds: float) -> list[Read]:
        """Returns the next batch. Waits for its first record for at most `timeout_seconds`. Raises KafkaCallError; the next call then
        returns the records that were read before the error."""
        self._assign()
        self._read(timeout_seconds)
        return self._hand_out()

    def catch_up(self, timeout_seconds: float, take: Take) -> None:
        """Reads to the present end of the topic. Otherwise as `read_to`."""
        deadline = Deadline(timeout_seconds)
        self.read_to(self._end(deadline), deadline, take)
        self.at_end = True

    def read_to(self, end: int, deadline: Deadline, take: Take) -> None:
        """Passes every record below the offset `end` to `take`. The topic must have reached that offset. Raises KafkaCallError, and what
        `take` raises.

        The deadline starts again with each batch, because a topic may be long although Kafka answers quickly.
        """
        while self.position < end:
            if deadline.over:
                raise KafkaUnreachable(
                    f"reading {self._topic} stopped at offset {self.position} of {end} because Kafka at {self._bootstrap_servers} "
                    f"sent no more for {deadline.seconds:g} s. Check the address, the network and the brokers"
                )
            before = self.position
            self._assign()
            self._read(min(0.1, deadline.remaining_seconds))
            if self.position > before:
                take(self._hand_out())
                deadline = Deadline(deadline.seconds)
        take(self._hand_out())

    def check_brokers(self) -> None:
        """Raises KafkaUnreachable if all brokers were away and nothing was read since. Without statistics, it is not known whether the
        client is stranded."""
        if self._all_down.is_set():
            raise KafkaUnreachable(
                f"reading {self._topic} was interrupted, because no broker of Kafka at {self._bootstrap_servers} could be reached"
            )

    def close(self) -> None:
        self._consumer.close()

    def _assign(self) -> None:
        # Not before the first read: by then `_end` has made the client learn the partition's leader. A client that does not know the
        # leader looks up the first offset 500 ms later (rd_kafka_toppar_offset_retry).
        if not self._assigned:
            self._consumer.assign([TopicPartition(self._topic, 0, self.position or OFFSET_BEGINNING)])
            self._assigned = True

    def _end(self, deadline: Deadline) -> int:
        """Returns the present end of the topic. Asks again while the partition has no leader or no broker answers."""
        answers: list[int | KafkaError] = []

        def answered() -> bool:
            answers.append(self._ask_end(deadline.remaining_seconds))
            return isinstance(answers[-1], int) or answers[-1].code() not in _ASK_AGAIN

        # keep token failures: the client library does not report the same failure of a token endpoint a second time
        self._auth_errors[:] = filter(is_token_failure, self._auth_errors)
        until_true(answered, deadline)
        if isinstance(error := answers[-1], KafkaError):
            self._read(0)  # calls `error_cb`: with a wrong password, the client keeps trying and calls only time out
            raise self._error(self._auth_errors[-1] if self._auth_errors and error.code() in _ASK_AGAIN else error)
        self._auth_errors.clear()
        return error

    def _ask_end(self, timeout_seconds: float) -> int | KafkaError:
        # get_watermark_offsets raises "unknown partition" also if no broker is up, so only the metadata say whether the topic exists
        try:
            self._read(0)  # otherwise a client that is stranded before the first read would never be replaced
            missing = self._consumer.list_topics(self._topic, timeout_seconds).topics[self._topic].error
            if isinstance(missing, KafkaError):
                return missing
            return self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout_seconds)[1]
        except KafkaException as e:
            error = kafka_error(e)
            return KafkaError(KafkaError._TRANSPORT) if error.code() == KafkaError._UNKNOWN_PARTITION else error

    def _read(self, timeout_seconds: float) -> None:
        if self._stranded.is_set():
            log.warning("the client that reads topic %s knows no broker any more. A new client continues", self._topic)
            former, self._consumer = self._consumer, Consumer(self._config)
            former.close()
            self._stranded.clear()
            self._assigned = False
        first = self._consumer.poll(timeout_seconds)
        if first is None:
            return
        refused = [error for m in (first, *self._consumer.consume(MAX_AT_ONCE, 0)) if (error := self._take(m))]
        if refused:
            raise self._error(refused[0])

    def _hand_out(self) -> list[Read]:
        reads, self._reads = self._reads, []
        return reads

    def _take(self, message: Message) -> KafkaError | None:
        """Takes in a message. Returns the error if reading can't continue after it, otherwise None."""
        error = message.error()
        offset = message.offset()
        if error is None:
            assert offset is not None
            self.position = offset + 1
            self._all_down.clear()  # if the first of several addresses is dead, the client reports that all brokers are down
            self._reads.append(Read(offset, message.key(), message.value(), message.timestamp()[1]))
        elif error.code() == KafkaError._PARTITION_EOF and offset is not None:
            self.position = max(self.position, offset)
            self._all_down.clear()
            self.at_end = True
        elif error.code() not in IGNORED_ERRORS:
            return error
        return None

    def _error(self, error: KafkaError) -> KafkaCallError:
        where = f"topic {self._topic} of Kafka at {self._bootstrap_servers}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return TopicTruncated(
                f"{where} does not continue at offset {self.position} because it was deleted or truncated ({error.str()})",
                code=error.name(),
            )
        found = call_error(error, doing=f"reading {self._topic}", bootstrap_servers=self._bootstrap_servers)
        if isinstance(found, TopicMissing):
            return TopicMissing(
                f"{where} does not exist. Check that the operator of delayed topics is connected to this Kafka",
                code=found.code,
            )
        return found


def _note_error(auth_errors: list[KafkaError], all_down: Event, error: KafkaError) -> None:
    """For why this is not a method, see `collect_auth_error`."""
    collect_auth_error(auth_errors, error)
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        all_down.set()


def reader_config(
    connection: Connection,
    client_id: str,
    *,
    stranded: Event,
    auth_errors: list[KafkaError],
    take_statistics: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Returns the properties of a consumer that reads whole topics without a group. The client sets `stranded` once it is stranded. If
    Kafka or a token endpoint refuses its credentials, it adds the errors to `auth_errors`: such errors belong to no topic, so polls do not
    return them."""
    return {
        **when_stranded(stranded.set, take_statistics),  # the properties of a connection can turn this off
        **FETCHED_AHEAD,
        **connection.client_config(),
        "client.id": client_id,
        "error_cb": partial(collect_auth_error, auth_errors),
        "group.id": "delayedtopics.readers",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 50,
    }
