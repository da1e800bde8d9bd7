"""W8 and W9: records are cancelled or rescheduled while their worker dies."""

import time
from abc import abstractmethod
from collections import deque
from itertools import count
from random import Random
from typing import Final

from delayed_topics_core.headers import Header
from delayed_topics_worker_testing.cancelling import make_control

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.judge import Crash
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

DELAYS_SECONDS: Final = (0, 1, 8)
SECONDS: Final = 4.0
REQUESTS: Final = 2_000
RACE_SECONDS: Final = 0.1
"""How long before or after its due time a record is at most cancelled or rescheduled, if it may have either end."""

Races = deque[tuple[float, bytes, bytes]]
"""Requests to send later: the time, the id of the record, and the value of the request."""


class Controlled(Row):
    """Sends requests about records to the control topic, and kills the worker once in each trial."""

    ladder_seconds: tuple[int, ...] = ()

    def open(self, testbed: Testbed) -> None:
        testbed.declare(DELAYS_SECONDS, front_partitions=4, ladder_seconds=self.ladder_seconds)
        make_control(testbed.orders)
        testbed.orders.change(control=True)
        self._worker = testbed.start()
        self._trials = count()

    @abstractmethod
    def produce(self, testbed: Testbed, rng: Random, record_id: bytes, races: Races) -> None:
        """Produces a record, sends a request about it now or appends one to `races`."""

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        trial, killed_at = next(self._trials), rng.randrange(REQUESTS)
        races: Races = deque()
        began = time.monotonic()
        with testbed.load(rng, records=10_000, per_second=2_500, due_times=0.0):
            for n in range(REQUESTS):
                self.produce(testbed, rng, b"c-%d-%d" % (trial, n), races)
                until = began + (n + 1) * SECONDS / REQUESTS
                self._request_due(testbed, races, until)
                if n == killed_at:
                    self._worker.kill()
                    killed_ms = now_ms()
                    self._worker = testbed.start(ready=False)
            self._request_due(testbed, races, races[-1][0] if races else began)
        self._worker.ready()
        terms = {"crashes": (Crash(at_ms=killed_ms),), "healed_at_ms": now_ms()}
        return Trial(injected=f"SIGKILL at request {killed_at} of {REQUESTS}", terms=terms)

    def _request_due(self, testbed: Testbed, races: Races, until: float) -> None:
        """Sends the requests whose time comes until then."""
        while races and races[0][0] <= until:
            at, record_id, value = races.popleft()
            time.sleep(max(0.0, at - time.monotonic()))
            self.request(testbed, record_id, value)
        time.sleep(max(0.0, until - time.monotonic()))

    def request(self, testbed: Testbed, record_id: bytes, value: bytes) -> None:
        testbed.orders.produce(value, key=record_id, topic=testbed.orders.names.control)

    def send(self, testbed: Testbed, rng: Random, record_id: bytes, level: int, expected: bytes) -> None:
        headers: list[Header] = [("dt-id", record_id), (EXPECT, expected), ("dt-delay-level", b"%d" % level)]
        partition = rng.randrange(testbed.orders.record.front_partitions)
        testbed.orders.produce(record_id, headers=headers, partition=partition)


class Cancelled(Controlled):
    name = "W8"
    fault = "records are cancelled before they arrive, in time, and about when they are due; their worker is killed"

    def produce(self, testbed: Testbed, rng: Random, record_id: bytes, races: Races) -> None:
        way = rng.choice(("before", "in time", "race"))
        if way == "race":
            races.append((_about(rng, DELAYS_SECONDS[1]), record_id, b"cancel"))
            self.send(testbed, rng, record_id, 2, b"race:%d" % (DELAYS_SECONDS[1] * 1000))
            return
        if way == "before":
            self.request(testbed, record_id, b"cancel")
        self.send(testbed, rng, record_id, 3, b"dead:Cancelled")
        if way == "in time":
            self.request(testbed, record_id, b"cancel")


class Rescheduled(Controlled):
    name = "W9"
    fault = "records get a later or an earlier due time, in time and about when they are due; their worker is killed"
    ladder_seconds = (1, 2, 4)

    def produce(self, testbed: Testbed, rng: Random, record_id: bytes, races: Races) -> None:
        way, ahead_ms = rng.choice(("later", "sooner", "race")), rng.randrange(2_000)
        listed_ms = [seconds * 1000 for seconds in DELAYS_SECONDS]
        match way:
            case "later":
                at_ms = now_ms() + listed_ms[2] + 100 + ahead_ms
                self.send(testbed, rng, record_id, 3, b"at:%d" % at_ms)
                self.request(testbed, record_id, b"deliver-at %d" % at_ms)
            case "sooner":
                at_ms = now_ms() + 2_000 + ahead_ms
                self.request(testbed, record_id, b"deliver-at %d" % at_ms)
                self.send(testbed, rng, record_id, 3, b"moved:%d:%d" % (listed_ms[2], at_ms))
            case _:
                at_ms = now_ms() + listed_ms[1] + 1_000 + ahead_ms
                races.append((_about(rng, DELAYS_SECONDS[1]), record_id, b"deliver-at %d" % at_ms))
                self.send(testbed, rng, record_id, 2, b"moved:%d:%d" % (listed_ms[1], at_ms))


def _about(rng: Random, seconds: float) -> float:
    return time.monotonic() + seconds + rng.uniform(-RACE_SECONDS, RACE_SECONDS)
