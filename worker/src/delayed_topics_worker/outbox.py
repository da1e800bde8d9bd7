"""Copies on their way to Kafka, in order, and those that it refused."""

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import product
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from delayed_topics_core.headers import Header
from delayed_topics_core.routing import DeadLetter, Wait
from delayed_topics_kafka.errors import kafka_error

from delayed_topics_worker.copies import copy_of
from delayed_topics_worker.owned import MAX_UNCOMMITTED, Held, Owned, Refusal

log = logging.getLogger(__name__)

Produce = Callable[..., None]
"""`Producer.produce`."""

MOST_OUTSTANDING = 50_000
"""Half of the client's queue."""
MOST_OUTSTANDING_BYTES = 16 << 20
LEARN_SECONDS = 1.0


class Outbox:
    """One producer for each compression in use. Belongs to the worker's thread."""

    def __init__(self, new_producer: Callable[[str], Producer]) -> None:
        """`new_producer` makes one that compresses with the given codec."""
        self._new_producer = new_producer
        self._producers: dict[str, Producer] = {}
        self._touched: dict[Owned, None] = {}
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.hurried = False
        """A partition has used half of what it may send between two commits."""
        self.failure: KafkaError | None = None
        """Why a producer can't go on; None again once they are replaced."""

    @property
    def full(self) -> bool:
        return self.outstanding >= MOST_OUTSTANDING or self.outstanding_bytes >= MOST_OUTSTANDING_BYTES

    @property
    def touched(self) -> list[Owned]:
        """Partitions with copies that are not accounted for."""
        return list(self._touched)

    def send(self, held: Held, now_ms: int) -> None:
        """Never raises: what can't even be queued is refused like anything else."""
        owned = held.owned
        assert held.decision is not None
        assert not isinstance(held.decision, Wait) or held.decision.due_at_ms <= now_ms, "early"
        copy = copy_of(held, held.decision, now_ms)
        owned.outstanding.append(held)
        self.sent(owned, 1, held.size)
        if isinstance(held.decision, DeadLetter) and not owned.served.dead_letter_partitions:
            missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{copy.topic} doesn't exist, or was made again")
            held.target = copy.topic
            owned.refused.append(Refusal(held, missing))
            return
        self.produce(self.produce_of(owned), held, *copy)

    @staticmethod
    def produce(
        produce: Produce,
        held: Held,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
    ) -> None:
        """Never raises. `produce`: of the partition's producer."""
        held.target = topic
        try:
            produce(topic, value, key, partition, held, None, 0, headers)  # by position is a third faster than by name
        except KafkaException as e:
            held.owned.refused.append(Refusal(held, kafka_error(e)))
        except BufferError:
            held.owned.refused.append(Refusal(held, KafkaError(KafkaError._QUEUE_FULL)))

    def sent(self, owned: Owned, count: int, size: int) -> None:
        """Note copies that were handed to its producer, of records that count for `size` bytes."""
        self._touched[owned] = None
        owned.uncommitted += count
        self.outstanding += count
        self.outstanding_bytes += size
        if owned.uncommitted >= MAX_UNCOMMITTED // 2:
            self.hurried = True

    def produce_of(self, owned: Owned) -> Produce:
        assert owned.served.layout is not None
        produce = self.producer(owned.served.layout.compression).produce
        return _sparing(produce, owned.alone) if owned.alone else produce

    def learn(self, topics: Iterable[str]) -> None:
        """Look at the topics' partitions now: a copy for one that the client doesn't know is refused, and the client itself
        looks every 5 s. Waits for the answers, some milliseconds each."""
        for topic, producer in product(topics, self._producers.values()):
            try:
                producer.list_topics(topic, LEARN_SECONDS)
            except KafkaException as e:
                log.info("the partitions of %s can't be looked at now: %s", topic, kafka_error(e))
                return

    def poll(self) -> None:
        """Takes in what has been refused."""
        for producer in self._producers.values():
            self._serve(producer.poll, 0)

    def flush(self, timeout_seconds: float) -> bool:
        """True: nothing is on its way. Only then it is known that all but the refused copies are acknowledged."""
        return sum([self._serve(producer.flush, timeout_seconds) for producer in self._producers.values()]) == 0

    def taken(self) -> Iterator[Owned]:
        """Partitions with copies that are not accounted for; the caller accounts for them now."""
        touched, self._touched = self._touched, {}
        self.outstanding = self.outstanding_bytes = 0
        self.hurried = False
        yield from touched

    def abandon(self) -> None:
        """Give up what is on its way: whether it arrives is not known. The next copy gets a new producer."""
        if self.outstanding or self.failure:
            log.warning("%d copies on their way are given up", self.outstanding)
            self.replace_producers()

    def replace_producers(self) -> None:
        for producer in self._producers.values():
            producer.purge()
            self._serve(producer.flush, 1)  # what is purged is told a moment later, and is kept until it is
        self._producers.clear()
        self.failure = None

    def _serve(self, call: Callable[[float], int], timeout_seconds: float) -> int:
        """What is left. Callbacks are served, and the client library raises there what ends a producer for good."""
        try:
            return call(timeout_seconds)
        except (KafkaException, SystemError) as e:
            self.failure = kafka_error(e)
            return 1

    def producer(self, compression: str) -> Producer:
        """Made when it is asked for first."""
        producer = self._producers.get(compression)
        if producer is None:
            producer = self._producers[compression] = self._new_producer(compression)
        return producer


def _sparing(produce: Produce, alone: Container[int]) -> Produce:
    """Queues none of the offsets that have to go alone: the barrier does, once all before them is settled."""

    def spared(topic: str, value: bytes | None, key: bytes | None, partition: int, held: Held, *further: Any) -> None:
        if held.offset in alone:
            raise BufferError
        produce(topic, value, key, partition, held, *further)

    return spared
