"""The broker's time, which no broker tells: measured by small probe records, as bounds that never run ahead.

A probe is appended between the moments at which it was sent and at which its acknowledgement was seen. So at any moment
later than the latter the broker's clock shows at least the append time plus what has passed since, and at any moment at
most the append time plus what has passed since the former.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, Final, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from delayed_topics_core.names import CLOCK_TOPIC

from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import KafkaDoorError, KafkaRefused, door_error, kafka_error
from delayed_topics_kafka.stranded import when_stranded

FRESH_SECONDS: Final = 1.0
"""A probe older than this says nothing any more."""
RATE_ERROR: Final = 200e-6
"""By how much two machines' clocks may differ in speed."""


class Sample(NamedTuple):
    """A probe. The `_ns` are of the own clock."""

    sent_ns: int
    seen_ns: int
    appended_ms: int

    def lowest_ms(self, now_ns: int) -> float:
        """What the broker's clock shows at least."""
        return self.appended_ms + (now_ns - self.seen_ns) * (1 - RATE_ERROR) / 1e6

    def highest_ms(self, now_ns: int) -> float:
        """What it shows at most; the append time has lost its fraction of a millisecond."""
        return self.appended_ms + 1 + (now_ns - self.sent_ns) * (1 + RATE_ERROR) / 1e6


def boottime_ns() -> int:
    """Goes on while the machine is suspended, and nobody can set it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def boot_seconds() -> float:
    """As boottime_ns."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BrokerClock:
    """Bounds of the broker's clock. Wants `probe` every 250 ms while somebody needs the time, and `poll` in the same loop."""

    def __init__(
        self,
        connection: Connection,
        *,
        client_id: str = "delayed-topics-clock",
        monotonic_ns: Callable[[], int] = boottime_ns,
    ) -> None:
        self._bootstrap_servers = connection.bootstrap_servers
        self._monotonic_ns = monotonic_ns
        self._samples: deque[Sample] = deque()
        self.problem: KafkaDoorError | None = None
        """Why the last probe failed; None once one has succeeded."""
        # delivery reports of successes are what a probe is for, so it has a producer of its own; a probe that could not
        # be sent within its freshness is worth nothing
        self._stranded = Event()
        self._config: dict[str, Any] = {
            **connection.client_config(),
            "client.id": client_id,
            "acks": 1,
            "linger.ms": 0,
            "message.timeout.ms": int(FRESH_SECONDS * 1000),
            "topic.metadata.propagation.max.ms": int(FRESH_SECONDS * 1000),  # a missing topic is said after that
            **when_stranded(self._stranded.set),
        }
        self._producer = Producer(self._config)

    def probe(self) -> None:
        """Sends one and returns at once. Never raises: a topic that is gone is refused right here, not by a report."""
        seen = partial(self._seen, self._monotonic_ns())
        try:
            self._producer.produce(CLOCK_TOPIC, value=b"", partition=0, on_delivery=seen)
        except KafkaException as e:
            self._fail(kafka_error(e))
        except BufferError:
            self._fail(KafkaError(KafkaError._QUEUE_FULL))

    def poll(self) -> None:
        """Takes in the acknowledgements that have come."""
        self._producer.poll(0)
        if self._stranded.is_set():
            self._stranded.clear()
            self.close()
            self._producer = Producer(self._config)

    @property
    def awaiting(self) -> bool:
        """A probe is on its way. The later `poll` sees its acknowledgement, the further the bound lags behind."""
        return len(self._producer) > 0

    def now_lower_bound_ms(self) -> int | None:
        """The broker's clock shows at least this, in milliseconds since the epoch; None without a fresh probe.

        The best bound of the fresh probes counts, except those that the newest proves wrong: the broker's clock was set back.
        """
        now_ns = self._monotonic_ns()
        while self._samples and now_ns - self._samples[0].seen_ns > FRESH_SECONDS * 1e9:
            self._samples.popleft()
        if not self._samples:
            return None
        highest_ms = self._samples[-1].highest_ms(now_ns)
        return int(max(low for sample in self._samples if (low := sample.lowest_ms(now_ns)) <= highest_ms))

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)  # what is purged is told a moment later, and keeps this object until it is

    def _seen(self, sent_ns: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._fail(error)
            return
        kind, appended_ms = message.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            self.problem = KafkaRefused(
                f"topic {CLOCK_TOPIC} of Kafka at {self._bootstrap_servers} doesn't give its broker's time: "
                "set its message.timestamp.type to LogAppendTime",
                code="INVALID_TIMESTAMP",
            )
            return
        self.problem = None
        self._samples.append(Sample(sent_ns, self._monotonic_ns(), appended_ms))

    def _fail(self, error: KafkaError) -> None:
        doing = f"asking for the broker's time with a record to {CLOCK_TOPIC}"
        self.problem = door_error(error, doing=doing, bootstrap_servers=self._bootstrap_servers)
