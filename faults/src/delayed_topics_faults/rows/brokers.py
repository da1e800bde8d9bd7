"""B1 and B8: brokers that die, restart, lose leaderships, or are away for a long time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from delayed_topics_devcluster.broker import Broker

from delayed_topics_faults.judge import Crash, Seen
from delayed_topics_faults.row import OnThreeBrokers, Row, Trial
from delayed_topics_faults.testbed import LATE_MS, Testbed, now_ms


class BrokerDies(OnThreeBrokers):
    name = "B1"
    fault = "SIGKILL a broker of three, restart one cleanly, or move leaders"

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        broker = rng.choice(self.brokers.members)
        how = rng.choice(("SIGKILL", "clean restart", "leader move"))
        lost_before = self._lost()
        with testbed.load(rng, records=4000, per_second=1000) as load:
            time.sleep(rng.uniform(0.1, load.seconds / 2))
            began_ms = now_ms()
            match how:
                case "SIGKILL":
                    broker.kill()
                    time.sleep(rng.uniform(0, 3))
                    broker.start()
                case "clean restart":
                    broker.restart()
                case _:
                    testbed.elect()
            testbed.wait_in_sync()
        healed_ms = now_ms()
        return Trial(
            injected=f"{how} of broker {broker.node_id}",
            terms={"healed_at_ms": healed_ms, "late_ms": LATE_MS},
            context=(lost_before, Crash(at_ms=healed_ms + LATE_MS, since_ms=began_ms)),
        )

    def finish(self, testbed: Testbed, trial: Trial) -> tuple[Seen, list[str]]:
        finished = super().finish(testbed, trial)
        lost_before, shut_out = trial.context
        if self._lost() > lost_before:
            # as in B8: the group may be without a coordinator for longer than a session
            trial.injected += ", no coordinator for a session"
            trial.terms["crashes"] = (shut_out,)
        return finished

    def _lost(self) -> float:
        """Returns how many times the worker has lost its partitions without being asked to give them up."""
        return self._worker.metric("delayedtopics_partition_changes_total", change="lost")


class Away(Row):
    name = "B8"
    fault = "Kafka is away for ten minutes"
    away_seconds: float = 600

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        with Broker() as broker, Testbed(directory, broker.bootstrap) as testbed:
            self._broker = broker
            yield testbed

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        with testbed.load(rng, records=5000, per_second=5000):
            pass
        time.sleep(rng.uniform(0, 1))
        self._broker.kill()
        killed_ms = now_ms()
        trial = Trial(injected=f"SIGKILL of the only broker, back after {self.away_seconds:g} s")
        until = time.monotonic() + self.away_seconds
        while time.monotonic() < until:
            code, text = self._worker.get("/livez")
            trial.expect(code == 200, "R", f"/livez said {code} {text.strip()} while Kafka was away")
            time.sleep(1)
        self._broker.start()
        # without Kafka for a session, the worker gives its partitions up; what isn't committed is repeated, as after a crash
        healed_ms = now_ms()
        shut_out = Crash(at_ms=healed_ms + LATE_MS, since_ms=killed_ms)
        trial.terms = {"crashes": (shut_out,), "healed_at_ms": healed_ms, "late_ms": LATE_MS}
        trial.expect(self._worker.running, "R", "the worker has ended while Kafka was away")
        return trial
