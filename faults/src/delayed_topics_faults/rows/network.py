"""B2: the network between a worker and the broker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

from delayed_topics_devcluster.broker import Broker
from delayed_topics_worker_testing.process import Launch

from delayed_topics_faults.judge import Crash
from delayed_topics_faults.link import HOST, INSIDE, Link
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import LATE_MS, Testbed, now_ms


class BadNetwork(Row):
    name = "B2"
    fault = "a worker is cut off from the broker for 60 s, or has 100 ms of delay and 5 % of loss each way (in turns)"
    cut_seconds: float = 60
    bad_seconds: float = 20

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        with (
            Link(Random(1)) as self._link,
            Broker(host=HOST) as broker,
            Testbed(directory, broker.bootstrap) as testbed,
        ):
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._worker = testbed.start(launch=Launch(prefix=self._link.prefix, address=INSIDE))
        self._turns = count()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        if next(self._turns) % 2 == 0:
            with testbed.load(rng, records=5000, per_second=1000) as load:
                time.sleep(rng.uniform(0, load.seconds))
                cut_ms = now_ms()
                self._link.cut = True
                time.sleep(self.cut_seconds)
                self._link.cut = False
            # the worker may have lost its partitions; what it sent after its last commit then comes out again
            healed_ms = now_ms()
            shut_out = Crash(at_ms=healed_ms + LATE_MS, since_ms=cut_ms)
            terms = {"crashes": (shut_out,), "healed_at_ms": healed_ms, "late_ms": LATE_MS}
            return Trial(injected=f"cut off for {self.cut_seconds:g} s", terms=terms)
        self._link.delay_seconds, self._link.loss = 0.1, 0.05
        with testbed.load(rng, records=int(self.bad_seconds * 200), per_second=200):
            pass
        self._link.delay_seconds = self._link.loss = 0.0
        return Trial(
            injected=f"100 ms and 5 % loss for {self.bad_seconds:g} s",
            terms={"healed_at_ms": now_ms(), "late_ms": LATE_MS},
        )
