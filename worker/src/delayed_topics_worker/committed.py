"""Asks for committed offsets that Kafka did not report at once, on a thread with a client of its own.

Kafka withholds an offset while the transaction that writes it is open. The transaction of a worker that was killed stays open for up to
20 s. One such partition holds up the answer for all partitions of a request, so each partition has a request of its own.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from delayed_topics_core.offsets import OffsetAndMetadata, TopicPartitionKey
from delayed_topics_kafka.commits import OffsetsReader
from delayed_topics_kafka.errors import KafkaCallError

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 0.05
"""The timeout of the first request for a partition, doubled for each further one. An answer takes 2 to 5 ms when all is well."""
MAX_ANSWER_SECONDS: Final = 5.0
SLOW_SECONDS: Final = 1.0
"""A reader is replaced if it did not answer within so long, because the request stays on its connection, ahead of the next requests."""
PAUSE_SECONDS: Final = 1.0


class CommittedReader:
    """Asks for committed offsets in the background. Only `close` waits for Kafka, until the current request is over."""

    def __init__(self, new_reader: Callable[[], OffsetsReader]) -> None:
        self._new_reader = new_reader
        self._changed = threading.Condition()
        self._wanted: dict[TopicPartitionKey, int] = {}
        self._attempts: dict[tuple[TopicPartitionKey, int], int] = {}
        self._found: list[tuple[TopicPartitionKey, int, OffsetAndMetadata | None]] = []
        self._ended = False
        self._problem = ""
        self._thread: threading.Thread | None = None

    def want(self, wanted: Mapping[TopicPartitionKey, int]) -> None:
        """Asks for these partitions from now on, and for no others. `wanted`: by partition, the generation of its assignment, which comes
        back with the answer."""
        with self._changed:
            self._wanted = dict(wanted)
            self._changed.notify()
        if self._thread is None and wanted:
            self._thread = threading.Thread(target=self._run, name="committed-reader", daemon=True)
            self._thread.start()

    def take(self) -> list[tuple[TopicPartitionKey, int, OffsetAndMetadata | None]]:
        """Returns the answers since the last call: partition, generation, and what is committed; None: nothing is committed."""
        with self._changed:
            found, self._found = self._found, []
        return found

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._some_wanted():
            try:
                with self._new_reader() as reader:
                    while self._ask_next(reader):
                        pass
            except Exception as e:  # noqa: BLE001 - without this thread, the wanted partitions would never begin
                self._log_problem(repr(e))
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, PAUSE_SECONDS)

    def _some_wanted(self) -> bool:
        """Waits until a partition is wanted. Returns False once `close` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._ended)
            return not self._ended

    def _ask_next(self, reader: OffsetsReader) -> bool:
        """Asks for the partition that was asked for least often. Returns False if the reader is not needed or has to be replaced."""
        with self._changed:
            if self._ended or not self._wanted:
                return False
            wanted = self._wanted.items()
            self._attempts = {key: attempts for key, attempts in self._attempts.items() if key in wanted}
            place, generation = min(wanted, key=lambda key: self._attempts.get(key, 0))
            attempts = self._attempts.get((place, generation), 0)
            self._attempts[place, generation] = attempts + 1
        timeout_seconds = min(ANSWER_SECONDS * 2.0 ** min(attempts, 10), MAX_ANSWER_SECONDS)
        try:
            answer = reader.read([place], timeout_seconds).get(place)
        except KafkaCallError as e:
            self._log_problem(str(e))
            return timeout_seconds < SLOW_SECONDS
        with self._changed:
            if self._wanted.get(place) == generation:
                del self._wanted[place]
                self._found.append((place, generation, answer))
        return True

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("could not read committed offsets yet, and will try again: %s", problem)
        self._problem = problem
