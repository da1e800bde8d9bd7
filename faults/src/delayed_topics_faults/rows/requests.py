"""B12: Kafka answers some kinds of requests slowly."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from delayed_topics_kafka_testing.slow_wire import Api, slow_broker

from delayed_topics_faults.judge import Crash
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import LATE_MS, Testbed, member_name, now_ms

PER_SECOND: Final = 300
SECONDS: Final = (0.1, 0.3, 1, 2, 4, 8, 14)
"""How long a request waits; some waits exceed the timeout of a transaction, a session or a call."""
COMPRESSIONS: Final = ("none", "gzip", "lz4", "zstd")


class SlowRequests(Row):
    name = "B12"
    fault = "requests of some kinds wait for up to 14 s, while workers are killed, stopped, or get another compression"
    records: int = 3_000

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        with slow_broker() as self._wire, Testbed(directory, self._wire.bootstrap) as testbed:
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._workers = [testbed.start(number) for number in range(2)]

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        done: list[str] = []
        began_ms = now_ms()
        with testbed.load(rng, records=self.records, per_second=PER_SECOND) as load:
            end = time.monotonic() + load.seconds
            while time.monotonic() < end:
                done += self._hold_back(rng)
                time.sleep(rng.uniform(0.2, 2.5))
                done += self._disturb(testbed, rng)
                if rng.random() < 0.7:
                    self._let_go()
        self._let_go()
        for worker in self._workers:
            worker.ready()
        # Kafka removes a member whose heartbeat is late, as if it had died, and some request is held back at any time
        healed_ms = now_ms()
        crash = Crash(at_ms=healed_ms + LATE_MS, since_ms=began_ms)
        terms = {"crashes": (crash,), "healed_at_ms": healed_ms, "late_ms": LATE_MS}
        return Trial(injected=", ".join(done), terms=terms)

    def _hold_back(self, rng: Random) -> Iterator[str]:
        for api in rng.sample(list(Api), rng.choice((1, 1, 2, 3))):
            number, seconds = rng.randrange(len(self._workers)), rng.choice(SECONDS)
            self._wire.hold_back_requests(api, seconds, client_id=member_name(number))
            yield f"{api.name} of {number} + {seconds:g} s"

    def _disturb(self, testbed: Testbed, rng: Random) -> Iterator[str]:
        number = rng.randrange(len(self._workers))
        match rng.choice(("nothing", "kill", "terminate", "compression")):
            case "kill":
                self._workers[number].kill()
                self._workers[number] = testbed.start(number, ready=False)
                yield f"SIGKILL {number}"
            case "terminate":
                self._workers[number].terminate()
                self._workers[number] = testbed.start(number, ready=False)
                yield f"SIGTERM {number}"
            case "compression":
                compression = rng.choice(COMPRESSIONS)
                testbed.orders.change(compression=compression)
                yield compression

    def _let_go(self) -> None:
        for api in Api:
            for number in range(len(self._workers)):
                self._wire.hold_back_requests(api, 0, client_id=member_name(number))
