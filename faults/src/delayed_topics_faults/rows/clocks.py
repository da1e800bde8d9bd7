"""T1, T2 and B6: clocks that jump or disagree, and too many records at once."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from delayed_topics_devcluster.broker import Brokers
from delayed_topics_worker_testing.process import Launch

from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import LATE_MS, Testbed, now_ms
from delayed_topics_faults.wrong_clock import WrongClock

HOUR_SECONDS: Final = 3600


class Jumps(Row):
    name = "T1"
    fault = "the worker's clock jumps by an hour, back or forth; the worker is suspended and resumes with a jump"

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._clock = WrongClock(testbed.directory / "clock")
        self._worker = testbed.start(launch=Launch(environment=self._clock.environment))

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        jump_seconds = rng.choice((-HOUR_SECONDS, HOUR_SECONDS))
        suspended_seconds = rng.choice((0.0, rng.uniform(1, 6)))
        with testbed.load(rng, records=5000, per_second=2500) as load:
            time.sleep(rng.uniform(0, load.seconds))
            if suspended_seconds:
                self._worker.signal(signal.SIGSTOP)
                time.sleep(suspended_seconds)
            self._clock.shift(jump_seconds)
            if suspended_seconds:
                self._worker.signal(signal.SIGCONT)
        injected = f"clock {jump_seconds:+d} s, suspended for {suspended_seconds:.1f} s"
        trial = Trial(injected=injected, terms={"healed_at_ms": now_ms(), "late_ms": LATE_MS})
        trial.expect(self._worker.running, "T", "the worker has ended")
        return trial

    settle_seconds = 30


class Burst(Row):
    name = "T2"
    fault = "all records fall due at the same moment"
    records = 300_000
    lanes = 4

    def open(self, testbed: Testbed) -> None:
        testbed.declare((0, 1), front_partitions=4, partitions=2 * self.lanes)
        testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Pauses the topic, so that the records hop and then wait until all of them are due."""
        testbed.orders.change(paused=True)
        with testbed.load(rng, records=self.records, per_second=60_000, levels=[2]):
            pass
        time.sleep(2)
        testbed.orders.change(paused=False)
        began_ms = now_ms()
        testbed.settled(self.settle_seconds)
        took_seconds = (now_ms() - began_ms) / 1000
        injected = f"{self.records} records due at once, drained in {took_seconds:.1f} s"
        return Trial(injected=injected, terms={"healed_at_ms": began_ms})


class Overload(Row):
    name = "T2-overload"
    fault = "for ten minutes, records arrive at least four times as fast as Kafka's quota lets them out"
    overload_seconds = 600
    per_second = 2000
    quota_bytes = 25
    """The quota for each record that arrives. Most records are copied twice on their way out."""
    times = 4
    settle_seconds = 300

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Slows the worker down with Kafka's quota, so that several times its throughput is still few enough records to read and judge."""
        records = self.overload_seconds * self.per_second
        testbed.limit_copies(self.per_second * self.quota_bytes)
        with testbed.load(rng, records=records, per_second=self.per_second):
            pass
        released = testbed.released()
        testbed.limit_copies(None)
        healed_at_ms = now_ms()
        testbed.settled(self.settle_seconds)
        drained_per_second = (records - released) * 1000 // (now_ms() - healed_at_ms)
        injected = f"{released} of {records} released meanwhile, the others at {drained_per_second}/s afterwards"
        trial = Trial(injected=injected, terms={"healed_at_ms": healed_at_ms})
        faster = f"records arrived only {records / max(1, released):.1f} times as fast as they came out"
        trial.expect(records >= self.times * released, "R", faster)
        return trial


class Disagreeing(Row):
    name = "B6"
    fault = "brokers' clocks 5 s ahead and behind, with leader moves; a worker started on a clock that is an hour wrong"
    skew_seconds = 5

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        clocks = [WrongClock(directory / f"broker-{n}", s * self.skew_seconds) for n, s in enumerate((-1, 0, 1))]
        with (
            Brokers(environments=[clock.environment for clock in clocks]) as brokers,
            Testbed(directory, brokers.bootstrap, replication_factor=3) as testbed,
        ):
            self._brokers = brokers
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        testbed.orders.change(broker_skew_ms=2 * self.skew_seconds * 1000)
        self._clock = WrongClock(testbed.directory / "clock")
        self._worker = testbed.start(launch=Launch(environment=self._clock.environment))

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        terms = {"order": False, "late_ms": 4 * self.skew_seconds * 1000 + LATE_MS}
        with testbed.load(rng, records=2000, per_second=1000):
            if rng.random() < 0.5:
                wrong_seconds = rng.choice((-HOUR_SECONDS, HOUR_SECONDS))
                self._worker.terminate()
                self._clock.shift(wrong_seconds)
                self._worker = testbed.start(launch=Launch(environment=self._clock.environment))
                injected = f"a worker started on a clock {wrong_seconds:+d} s wrong"
            else:
                moved = rng.choice(self._brokers.members)
                moved.restart()
                testbed.wait_in_sync()
                testbed.elect()
                injected = f"broker {moved.node_id} restarted, and leaders moved back to it"
        return Trial(injected=injected, terms={**terms, "healed_at_ms": now_ms()})
