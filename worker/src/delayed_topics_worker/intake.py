"""Records from Kafka into the windows of their partitions."""

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from delayed_topics_core.window import Window
from delayed_topics_kafka.messages import headers_of

from delayed_topics_worker.assignment import Assignment
from delayed_topics_worker.errors import ClientFatal
from delayed_topics_worker.owned import STALL_SECONDS, Held, Owned

log = logging.getLogger(__name__)

BATCH: Final = 500


class Intake:
    """Belongs to the worker's thread."""

    def __init__(self, assignment: Assignment, *, seconds: Callable[[], float]) -> None:
        self._assignment = assignment
        self._seconds = seconds
        self.polled_at = float("-inf")
        self.refused: str | None = None
        """Why Kafka refuses to give records of a topic at all; None once it gives some."""
        self._reported = ""

    def take_in(self, consumer: Consumer, timeout_seconds: float) -> set[Owned]:
        """The partitions that got records; waits for the first. Raises ClientFatal."""
        taken: set[Owned] = set()
        try:
            # consume(n, t) would wait for n records or for all of t
            first = consumer.poll(timeout_seconds)
            self.polled_at = self._seconds()
            if first is None:
                return taken
            generation = self._assignment.generation
            batch = [first, *consumer.consume(BATCH - 1, 0)]
        except (KafkaException, RuntimeError, SystemError) as e:
            # what was dequeued is gone, and the position has moved past it
            log.warning("taking in records failed, all partitions are read again from their windows: %r", e)
            for owned in self._assignment.owned.values():
                owned.rewinding = True
            return taken
        self._sort(consumer, batch, generation, taken)
        return taken

    def _sort(self, consumer: Consumer, batch: list[Message], generation: int, taken: set[Owned]) -> None:
        """Written for speed: records of a partition come in runs."""
        all_owned = self._assignment.owned
        topic: str | None = None
        partition: int | None = None
        owned: Owned | None = None
        window: Window | None = None
        for message in batch:
            error = message.error()
            if error is not None:
                self._fail(consumer, message, error, generation)
                continue
            if message.partition() != partition or message.topic() != topic:
                topic, partition = message.topic(), message.partition()
                owned = all_owned.get((topic, partition))  # type: ignore[arg-type]
                window = self._window_of(owned, generation)
                if owned is not None and window is not None:
                    taken.add(owned)
            offset = message.offset()
            if owned is None or window is None or offset is None or offset < window.position:
                continue
            if owned.unproven and not self._is_proven(owned, offset):
                window = None
                continue
            if window.take(offset):
                held = Held(owned, offset, message, headers_of(message))
                owned.arrived.append(held)
                owned.held_bytes += held.size
                owned.served.tally.taken_in += 1

    def _window_of(self, owned: Owned | None, generation: int) -> Window | None:
        if owned is None:
            return None
        if not owned.takes_in or owned.generation > generation:
            # the client has moved past it; or it was fetched before a revocation in between
            owned.rewinding = True
            return None
        self.refused = None
        return owned.window

    @staticmethod
    def _is_proven(owned: Owned, offset: int) -> bool:
        """The first record after a placement has to be the next one. A gap (transaction marks) is believed the second time."""
        if owned.window is not None and offset > owned.window.position and owned.gap_at != offset:
            owned.gap_at = offset
            owned.rewinding = True
            return False
        owned.unproven = False
        owned.gap_at = None
        owned.stall_seconds = STALL_SECONDS
        return True

    def _reach_end(self, owned: Owned, offset: int | None) -> None:
        """There is nothing to read below `offset`, where records are appended next: what lies between the last record and it,
        transaction marks and aborted records, is finished. Else it would never be committed, and be missing after retention
        has removed it."""
        if not owned.takes_in or owned.window is None or offset is None or offset < owned.window.position:
            return
        if owned.unproven and not self._is_proven(owned, offset):
            return
        owned.dirty |= owned.window.skip_to(offset)

    def _fail(self, consumer: Consumer, message: Message, error: KafkaError, generation: int) -> None:
        code = error.code()
        owned = self._assignment.owned.get((message.topic(), message.partition()))  # type: ignore[arg-type]
        if code == KafkaError._PARTITION_EOF:
            if owned is not None and owned.generation <= generation:
                self._reach_end(owned, message.offset())
            return
        if code == KafkaError._FATAL or error.fatal():
            raise ClientFatal(f"the consumer was shut out for good: {error.str()}")
        if code == KafkaError._AUTO_OFFSET_RESET:
            if owned is not None and owned.takes_in:
                self._assignment.stop_removed(consumer, owned, error)
        elif code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            self.refused = f"Kafka refuses to give records of {message.topic()}: {error.name()}: {error.str()}"
        elif str(error) != self._reported:  # of a batch that it can't decode, ten times a second
            self._reported = str(error)
            log.info("the consumer reports: %s", error)
