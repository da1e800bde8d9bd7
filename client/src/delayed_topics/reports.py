"""What became of records that were sent, kept for the thread that sent them: each is told of its own, and of no other's."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from threading import Thread

from confluent_kafka import KafkaError, Message

log = logging.getLogger(__name__)

OnDelivery = Callable[[KafkaError | None, Message], object]
"""Is given the record, and why it did not arrive, or None if it did."""


class Reports:
    """From any thread: Kafka's answers are given to whichever one serves the producer's callbacks."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may send, too
        self._waiting: Counter[Thread] = Counter()
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

    def callback(self, on_delivery: OnDelivery | None) -> Callable[[KafkaError | None, Message], None]:
        """For a record that this thread is about to send."""
        return partial(self._report, threading.current_thread(), on_delivery)

    def sent(self) -> None:
        """By this thread, with such a callback."""
        with self._lock:
            self._count(threading.current_thread(), 1)

    def waiting(self, sender: Thread | None) -> int:
        """How many records Kafka has still to answer for. `sender` None: of all threads."""
        with self._lock:
            return self._waiting.total() if sender is None else self._waiting[sender]

    def take_failures(self, sender: Thread | None) -> Counter[str]:
        """Those that nobody was told of yet. `sender` None: of all threads."""
        with self._lock:
            if sender is not None:
                return self._failures.pop(sender, Counter())
            taken = sum(self._failures.values(), Counter[str]())
            self._failures.clear()
            return taken

    def _report(
        self, sender: Thread, on_delivery: OnDelivery | None, error: KafkaError | None, message: Message
    ) -> None:
        with self._lock:
            self._count(sender, -1)
            if error is not None:
                self._failed(sender, str(error))
        if on_delivery is not None:
            self._here.in_callback = True
            try:
                on_delivery(error, message)
            except Exception:  # it would come out of the call of another thread
                log.exception("on_delivery raised")
            finally:
                self._here.in_callback = False

    def _count(self, sender: Thread, by: int) -> None:
        self._waiting[sender] += by
        if not self._waiting[sender]:
            del self._waiting[sender]

    def _failed(self, sender: Thread, why: str) -> None:
        self._failures.setdefault(sender, Counter())[why] += 1
        for ended in [thread for thread in self._failures if thread is not None and not thread.is_alive()]:
            self._failures.setdefault(None, Counter()).update(self._failures.pop(ended))
