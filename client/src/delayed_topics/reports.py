"""Collects the delivery reports of sent records. Each thread learns of the failures of its own records, and of those of threads that have
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
"""Gets the error, None if the record arrived, and the record."""


class Reports:
    """May be used by many threads. Each thread that serves the producer's callbacks may get the reports of records of other threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may send, too
        self._waiting: set[object] = set()
        self._failures: dict[Thread | None, Counter[str]] = {}
        """Failures counted by reason, because many records may fail before a flush. The key None has those of threads that have ended."""
        self._here = threading.local()

    def check(self) -> None:
        """Raises RuntimeError if this thread is in a call of `on_delivery`."""
        if getattr(self._here, "in_callback", False):
            raise RuntimeError(
                "on_delivery can't send or flush, because the Kafka client that calls it can't be used meanwhile. "
                "Keep the record, and send it again from elsewhere"
            )

    @contextmanager
    def sending(self, on_delivery: OnDelivery | None) -> Iterator[Callable[[KafkaError | None, Message], None]]:
        """Yields the delivery callback for a record that this thread sends in the block. If the block raises, no report is expected."""
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
        """Returns a token for each record without a report. `among` limits this to tokens of an earlier call; None means all."""
        with self._lock:
            return self._waiting.copy() if among is None else among & self._waiting

    def take_failures(self, sender: Thread | None) -> Counter[str]:
        """Returns, once, the failures of the thread `sender` and of threads that have ended. None means all threads."""
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
            except FAILURES:  # the call that serves callbacks, perhaps in another thread, would raise it
                log.exception("on_delivery raised")
            finally:
                self._here.in_callback = False

    def _gather_ended(self) -> None:
        for ended in [thread for thread in self._failures if thread is not None and not thread.is_alive()]:
            self._failures.setdefault(None, Counter()).update(self._failures.pop(ended))
