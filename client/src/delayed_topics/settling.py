"""Settles the outcomes of handled records: writes their copies and commits the consumer's offsets, in one transaction.

Copies stay in memory until they are settled, however long a handler takes. If it is unknown whether a transaction was committed, a new
producer with the same transactional id ends the transaction, and the group's committed offsets then show its result.
"""

import logging
from collections.abc import Iterable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import RAISED, ConnectionInvalid, NotAuthorized, call_error, kafka_error

from delayed_topics.copies import Outcome
from delayed_topics.producers import producer_properties
from delayed_topics.transacting import CopyTransactions

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0


class Settling:
    """Holds the outcomes of one consumer until they are settled. Belongs to the thread that has the consumer's turn, see membership.py."""

    def __init__(self, connection: Connection, consumer: Consumer, ready: str, *, transactional_id: str) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._transactional_id = transactional_id
        self._consumer = consumer
        self._ready = ready
        self._done: list[Outcome] = []
        """Each entry has a record with its outcome, so that a signal handler that raises in between can't leave one without the other."""
        self.refusal: NotAuthorized | ConnectionInvalid | None = None
        """Why the last attempt failed, if no attempt can succeed before a right is granted or the properties are corrected."""
        self._in_doubt = False
        """Whether it is unknown if the last transaction was committed."""
        self._transactions = CopyTransactions(
            {"client.id": transactional_id, **producer_properties(connection), "linger.ms": 0},
            transactional_id,
            bootstrap_servers=connection.bootstrap_servers,
            timeout_seconds=TIMEOUT_SECONDS,
        )

    @property
    def clean(self) -> bool:
        return not self._done

    def done(self, outcome: Outcome) -> None:
        """Adds the outcome of a record that is done."""
        self._done.append(outcome)

    def forget(self, partitions: Iterable[int]) -> None:
        """Drops the outcomes of partitions that another consumer has now. That consumer gets the records again."""
        gone = set(partitions)
        self._done = [outcome for outcome in self._done if outcome.record.partition not in gone]
        self.refusal = None

    def rejoined(self, consumer: Consumer) -> None:
        """Drops all outcomes that are not settled, because the consumer has joined the group as a new member."""
        self._consumer = consumer
        self._done.clear()
        self.refusal = None

    def settle(self) -> bool:
        """Makes one attempt to settle all outcomes, which takes a few seconds at most. Returns whether it succeeded. If not, try again
        unless `refusal` says why that is useless. Raises nothing for an answer of Kafka."""
        self.refusal = None
        try:
            if self._in_doubt:
                self._resolve_doubt()
            outcomes = self._outcomes
            if not outcomes:
                self._commit(self._next_offsets)
            elif not self._transact(outcomes, self._next_offsets):
                # Kafka refuses a whole batch if one of its records is too large
                self._settle_one_by_one()
        except ConnectionInvalid as e:
            self.refusal = e
            return False
        except RAISED as e:
            error = kafka_error(e)
            found = call_error(error, doing=self._doing, bootstrap_servers=self._bootstrap_servers)
            if isinstance(found, NotAuthorized):
                self.refusal = found
                log.warning("%s", found)
            else:
                log.warning("could not commit offsets of %s yet, and will try again: %s", self._ready, error)
            return False
        return self.clean

    @property
    def _outcomes(self) -> list[Outcome]:
        return [outcome for outcome in self._done if outcome.copies]

    @property
    def _next_offsets(self) -> dict[int, int]:
        return {record.partition: record.offset + 1 for record, _ in self._done}

    @property
    def _doing(self) -> str:
        topics = sorted({copy.topic for outcome in self._done for copy in outcome.copies[:1]})
        copies = (
            f" and writing to {' and '.join(topics)} as transactional id {self._transactional_id}" if topics else ""
        )
        return f"committing offsets of {self._ready}{copies}"

    def _commit(self, offsets: dict[int, int]) -> None:
        if offsets:
            committed = self._consumer.commit(offsets=self._positions(offsets), asynchronous=False)
            self._drop_settled({tp.partition: tp.offset for tp in committed if tp.error is None})

    def _settle_one_by_one(self) -> None:
        for record, copies in self._outcomes:
            offsets = {record.partition: record.offset + 1}
            if not any(self._transact([Outcome(record, (copy,))], offsets) for copy in copies):
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self._commit(self._next_offsets)

    def _transact(self, outcomes: Sequence[Outcome], offsets: dict[int, int]) -> bool:
        """Writes the first copy of each outcome and commits the offsets, in one transaction. Returns False if a copy is too large. Raises
        KafkaException for any other failure."""
        copies = [outcome.copies[0] for outcome in outcomes]
        points = self._positions(offsets)
        if self._transactions.write(copies, points, self._consumer, before_commit=self._doubt) == "too large":
            return False
        self._drop_settled(offsets)
        self._in_doubt = False
        return True

    def _doubt(self) -> None:
        self._in_doubt = True

    def _resolve_doubt(self) -> None:
        self._transactions.take_over()
        committed: list[TopicPartition] = []
        if self._done:  # while the consumer leaves its group, even a request for no partitions gets no answer
            committed = self._consumer.committed(self._positions(self._next_offsets), TIMEOUT_SECONDS)
        self._drop_settled({tp.partition: tp.offset for tp in committed if tp.error is None and tp.offset >= 0})
        self._in_doubt = False

    def _drop_settled(self, offsets: dict[int, int]) -> None:
        """Drops the outcomes below these offsets, which are committed."""
        self._done = [
            outcome for outcome in self._done if outcome.record.offset >= offsets.get(outcome.record.partition, -1)
        ]

    def _positions(self, offsets: dict[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._ready, partition, offset) for partition, offset in offsets.items()]
