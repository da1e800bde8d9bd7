"""W8: records are cancelled while their worker dies."""

import time
from collections import deque
from itertools import count
from random import Random
from typing import Final

from delayed_topics_core.headers import Header
from delayed_topics_worker_testing.cancelling import make_control

from delayed_topics_faults.copies import EXPECT
from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.stage import Stage, now_ms

DELAYS_SECONDS: Final = (0, 1, 8)
SECONDS: Final = 4.0
REQUESTS: Final = 2_000
RACE_SECONDS: Final = 0.1
"""At most so long before or after its due time a record is cancelled that may have either end."""


class Cancelled(Row):
    name = "W8"
    fault = "records are cancelled before they come in, in time, and when they are just due, and their worker is killed"

    def open(self, stage: Stage) -> None:
        stage.declare(DELAYS_SECONDS, front_partitions=4)
        make_control(stage.orders)
        stage.orders.change(control=True)
        self._worker = stage.start()
        self._trials = count()

    def trial(self, stage: Stage, rng: Random) -> Play:
        trial, killed_at = next(self._trials), rng.randrange(REQUESTS)
        races: deque[tuple[float, bytes]] = deque()
        began = time.monotonic()
        with stage.load(rng, records=10_000, per_second=2_500):
            for n in range(REQUESTS):
                self._produce(stage, rng, b"c-%d-%d" % (trial, n), races)
                until = began + (n + 1) * SECONDS / REQUESTS
                self._cancel_due(stage, races, until)
                if n == killed_at:
                    self._worker.kill()
                    killed_ms = now_ms()
                    self._worker = stage.start(ready=False)
            self._cancel_due(stage, races, races[-1][0] if races else began)
        self._worker.ready()
        terms = {"crashes_ms": (killed_ms,), "healed_at_ms": now_ms()}
        return Play(injected=f"SIGKILL at request {killed_at} of {REQUESTS}", terms=terms)

    def _produce(self, stage: Stage, rng: Random, record_id: bytes, races: deque[tuple[float, bytes]]) -> None:
        orders, way = stage.orders, rng.choice(("before", "in time", "race"))
        if way == "race":
            level, expected = 2, b"race:%d" % (DELAYS_SECONDS[1] * 1000)
            races.append((time.monotonic() + DELAYS_SECONDS[1] + rng.uniform(-RACE_SECONDS, RACE_SECONDS), record_id))
        else:
            level, expected = 3, b"dead:Cancelled"
        headers: list[Header] = [("dt-id", record_id), (EXPECT, expected), ("dt-delay-level", b"%d" % level)]
        if way == "before":
            orders.produce(b"cancel", key=record_id, topic=orders.names.control)
        orders.produce(record_id, headers=headers, partition=rng.randrange(orders.record.front_partitions))
        if way == "in time":
            orders.produce(b"cancel", key=record_id, topic=orders.names.control)

    def _cancel_due(self, stage: Stage, races: deque[tuple[float, bytes]], until: float) -> None:
        """Cancel what is to be cancelled until then."""
        while races and races[0][0] <= until:
            at, record_id = races.popleft()
            time.sleep(max(0.0, at - time.monotonic()))
            stage.orders.produce(b"cancel", key=record_id, topic=stage.orders.names.control)
        time.sleep(max(0.0, until - time.monotonic()))
