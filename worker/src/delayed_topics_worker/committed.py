"""Committed offsets that Kafka didn't tell at once, asked for by a thread with a client of its own.

Kafka keeps an offset back while the transaction that writes it is open, and that of a worker that was killed stays open for
up to 20 s. One such partition holds up the answer for all that are asked for with it, so each is asked for alone.
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
"""For a partition's first answer, twice as long for each further one: 2 to 5 ms when all is well."""
MOST_ANSWER_SECONDS: Final = 5.0
SLOW_SECONDS: Final = 1.0
"""A reader that gave no answer for that long is replaced: what it was asked stays on its connection, ahead of what it is asked next."""
PAUSE_SECONDS: Final = 1.0


class CommittedReader:
    """Nothing here waits for Kafka, but for `close`, which waits for the question at hand."""

    def __init__(self, new_reader: Callable[[], OffsetsReader]) -> None:
        self._new_reader = new_reader
        self._changed = threading.Condition()
        self._wanted: dict[TopicPartitionKey, int] = {}
        self._asks: dict[tuple[TopicPartitionKey, int], int] = {}
        self._found: list[tuple[TopicPartitionKey, int, OffsetAndMetadata | None]] = []
        self._ended = False
        self._problem = ""
        self._thread: threading.Thread | None = None

    def want(self, wanted: Mapping[TopicPartitionKey, int]) -> None:
        """These, with the generations of their assignments, which come back with the answers; and nothing else any more."""
        with self._changed:
            self._wanted = dict(wanted)
            self._changed.notify()
        if self._thread is None and wanted:
            self._thread = threading.Thread(target=self._run, name="committed-reader", daemon=True)
            self._thread.start()

    def take(self) -> list[tuple[TopicPartitionKey, int, OffsetAndMetadata | None]]:
        """What has been answered since; None: nothing is committed."""
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
            except Exception as e:  # noqa: BLE001 - partitions that are waited for would never begin
                self._tell(repr(e))
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, PAUSE_SECONDS)

    def _some_wanted(self) -> bool:
        """Waits for it; False: it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._ended)
            return not self._ended

    def _ask_next(self, reader: OffsetsReader) -> bool:
        """For the one that was asked for least often. False: the reader is of no more use."""
        with self._changed:
            if self._ended or not self._wanted:
                return False
            wanted = self._wanted.items()
            self._asks = {key: asks for key, asks in self._asks.items() if key in wanted}
            place, generation = min(wanted, key=lambda key: self._asks.get(key, 0))
            asks = self._asks.get((place, generation), 0)
            self._asks[place, generation] = asks + 1
        timeout_seconds = min(ANSWER_SECONDS * 2.0 ** min(asks, 10), MOST_ANSWER_SECONDS)
        try:
            answer = reader.read([place], timeout_seconds).get(place)
        except KafkaCallError as e:
            self._tell(str(e))
            return timeout_seconds < SLOW_SECONDS
        with self._changed:
            if self._wanted.get(place) == generation:
                del self._wanted[place]
                self._found.append((place, generation, answer))
        return True

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("could not read committed offsets yet, and will try again: %s", problem)
        self._problem = problem
