"""Reads a topic of one partition from its beginning, or from an offset, without a consumer group: the registry, the events, answers.

It does so in pieces, so that a topic of a million records takes no more memory than one of a thousand.
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
    PASSING,
    KafkaCallError,
    KafkaUnreachable,
    TopicMissing,
    TopicTruncated,
    call_error,
    is_token_failure,
    kafka_error,
    making_client,
)
from delayed_topics_kafka.stranded import note_shut_out, when_stranded

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
"""Records of a piece."""
FETCHED_AHEAD: Final[dict[str, Any]] = {
    "queued.min.messages": MOST_AT_ONCE,
    "queued.max.messages.kbytes": 2048,
    "fetch.message.max.bytes": 1_048_576,
    "fetch.max.bytes": 2_097_152,
}
"""What the client library holds of what nobody has asked for yet: by default 100,000 records and 64 MiB. A larger record comes all
the same, by itself."""

_ASK_AGAIN = PASSING | {KafkaError._TIMED_OUT}
PASSED_OVER = frozenset(
    {
        # librdkafka goes on by itself
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        # the client library insists on a group id and looks for its coordinator; nothing here uses either
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)


class Read(NamedTuple):
    """A record of the topic. `at_ms`: its timestamp."""

    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int


Take = Callable[[list[Read]], object]
"""Is given what was read, piece after piece; the last may be empty."""


class PartitionReader(Closing):
    """Poll-driven, without threads of its own; belongs to one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        client_id: str,
        start: int = 0,
    ) -> None:
        """`start`: the first offset to read, which must not be removed yet; 0: the first that is there."""
        self._bootstrap_servers = connection.bootstrap_servers
        self._topic = topic
        self._stranded = Event()
        self._shut_out: list[KafkaError] = []
        self._config = {
            **reader_config(connection, client_id, stranded=self._stranded, shut_out=self._shut_out),
            "auto.offset.reset": "error",
        }
        self.position = start
        """The next offset: everything below was returned, will be with the next call that succeeds, or isn't there any more."""
        self.at_end = False
        """All was read once that was there then."""
        self._reads: list[Read] = []
        self._assigned = False
        with making_client(connection.bootstrap_servers):
            self._consumer = Consumer(self._config)

    def poll(self, timeout_seconds: float) -> list[Read]:
        """The next piece, waiting for the first of it. Raises KafkaCallError; what was read by then comes with the next call."""
        self._assign()
        self._read(timeout_seconds)
        return self._hand_out()

    def catch_up(self, timeout_seconds: float, take: Take) -> None:
        """Everything up to the end as it is now. Raises KafkaCallError; see read_to."""
        deadline = Deadline(timeout_seconds)
        self.read_to(self._end(deadline), deadline, take)
        self.at_end = True

    def read_to(self, end: int, deadline: Deadline, take: Take) -> None:
        """Everything below the offset `end`, which has to be there already. Raises KafkaCallError, and what `take` raises.

        The deadline begins anew with each piece: how much there is says nothing about Kafka.
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

    def close(self) -> None:
        self._consumer.close()

    def _assign(self) -> None:
        # Only once records are asked for, when `_end` has made the client know the partition's leader: without it, the client asks for
        # the beginning 500 ms later (rd_kafka_toppar_offset_retry)
        if not self._assigned:
            self._consumer.assign([TopicPartition(self._topic, 0, self.position or OFFSET_BEGINNING)])
            self._assigned = True

    def _end(self, deadline: Deadline) -> int:
        """The end as it is now; asked again while there is no leader, or nobody answers."""
        answers: list[int | KafkaError] = []

        def answered() -> bool:
            answers.append(self._ask_end(deadline.remaining_seconds))
            return isinstance(answers[-1], int) or answers[-1].code() not in _ASK_AGAIN

        # of a token endpoint that fails the client library tells once, until it fails in other words
        self._shut_out[:] = filter(is_token_failure, self._shut_out)
        until_true(answered, deadline)
        if isinstance(error := answers[-1], KafkaError):
            self._read(0)  # the client tells only then that it was shut out: with a wrong password it just tries on
            raise self._error(self._shut_out[-1] if self._shut_out and error.code() in _ASK_AGAIN else error)
        self._shut_out.clear()
        return error

    def _ask_end(self, timeout_seconds: float) -> int | KafkaError:
        # the question for the end answers "unknown partition" also when no broker is there: whether the topic exists is
        # for the metadata to say
        try:
            self._read(0)  # else a client that is stranded before anything was read would never be replaced
            missing = self._consumer.list_topics(self._topic, timeout_seconds).topics[self._topic].error
            if isinstance(missing, KafkaError):
                return missing
            return self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout_seconds)[1]
        except KafkaException as e:
            error = kafka_error(e)
            return KafkaError(KafkaError._TRANSPORT) if error.code() == KafkaError._UNKNOWN_PARTITION else error

    def _read(self, timeout_seconds: float) -> None:
        if self._stranded.is_set():
            self._stranded.clear()
            log.warning("the client that reads topic %s knows no broker any more. A new client continues", self._topic)
            self._consumer.close()
            self._consumer = Consumer(self._config)
            self._assigned = False
        first = self._consumer.poll(timeout_seconds)
        if first is None:
            return
        refused = [error for m in (first, *self._consumer.consume(MOST_AT_ONCE, 0)) if (error := self._take(m))]
        if refused:
            raise self._error(refused[0])

    def _hand_out(self) -> list[Read]:
        reads, self._reads = self._reads, []
        return reads

    def _take(self, message: Message) -> KafkaError | None:
        """An error that reading can't go on with, None for all else."""
        error = message.error()
        offset = message.offset()
        if error is None:
            assert offset is not None
            self.position = offset + 1
            self._reads.append(Read(offset, message.key(), message.value(), message.timestamp()[1]))
        elif error.code() == KafkaError._PARTITION_EOF and offset is not None:
            self.position = max(self.position, offset)
            self.at_end = True
        elif error.code() not in PASSED_OVER:
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


def reader_config(
    connection: Connection, client_id: str, *, stranded: Event, shut_out: list[KafkaError]
) -> dict[str, Any]:
    """Of a consumer of whole topics, without a group. `stranded` is set once the client is, and `shut_out` gets why Kafka, or a token
    endpoint, does not let it in: that is told of no topic, and so not where errors of reading are."""
    return {
        **when_stranded(stranded.set),  # which a connection can turn off
        **FETCHED_AHEAD,
        **connection.client_config(),
        "client.id": client_id,
        "error_cb": partial(note_shut_out, shut_out),
        "group.id": "delayedtopics.readers",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 50,
    }
