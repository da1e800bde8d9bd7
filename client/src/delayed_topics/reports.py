"""What became of records that were sent. Each thread is told of the failures of its own records, and of those of threads that have
ended."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread

from confluent_kafka import KafkaError, Message

from delayed_topics.errors import FAILURES

log = logging.getLogger(__name__)

OnDelivery = Callable[[KafkaError | None, Message], object]
"""Is given the record, and why it did not arrive, or None if it did."""


class Reports:
    """From any thread: Kafka's answers are given to whichever one serves the producer's callbacks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may send, too
        self._waiting: set[object] = set()
        self._failures: dict[Thread | None, Counter[str]] = {}
        """By reason: many records may fail before anybody flushes. None: of threads that have ended."""
        self._here = threading.local()

    def check(self) -> None:
        """Raises RuntimeError in an `on_delivery`."""
        if getattr(self._here, "in_callback", False):
            raise RuntimeError(
                "on_delivery can't send or flush, because the Kafka client that calls it can't be used meanwhile. "
                "Keep the record, and send it again from elsewhere"
            )

    @contextmanager
    def sending(self, on_delivery: OnDelivery | None) -> Iterator[Callable[[KafkaError | None, Message], None]]:
        """The callback for a record that this thread sends in the block; none is awaited if the block raises."""
        record = object()
        with self._lock:
            self._waiting.add(record)
        try:
            yield partial(self._report, record, threading.current_thread(), on_delivery)
        except BaseException:
            with self._lock:
                self._waiting.discard(record)
            raise

    def waiting(self, among: set[object] | None = None) -> set[object]:
        """One for each record that Kafka has still to answer for. `among`: of those of an earlier call; None: of all."""
        with self._lock:
            return self._waiting.copy() if among is None else among & self._waiting

    def take_failures(self, sender: Thread | None) -> Counter[str]:
        """Those that no one was told of yet, of this thread and of those that have ended. `sender` None: of all threads."""
        with self._lock:
            self._gather_ended()
            senders = [*self._failures] if sender is None else [sender, None]
            return sum((self._failures.pop(one, Counter()) for one in senders), Counter[str]())

    def _report(
        self, record: object, sender: Thread, on_delivery: OnDelivery | None, error: KafkaError | None, message: Message
    ) -> None:
        with self._lock:
            self._waiting.discard(record)
            if error is not None:
                self._gather_ended()
                self._failures.setdefault(sender, Counter())[str(error)] += 1
        if on_delivery is not None:
            self._here.in_callback = True
            try:
                on_delivery(error, message)
            except FAILURES:  # it would come out of the call of another thread
                log.exception("on_delivery raised")
            finally:
                self._here.in_callback = False

    def _gather_ended(self) -> None:
        for ended in [thread for thread in self._failures if thread is not None and not thread.is_alive()]:
            self._failures.setdefault(None, Counter()).update(self._failures.pop(ended))
