"""B1 and B8: brokers that die, restart, hand over, or are away for long."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from delayed_topics_devcluster.broker import Broker, Brokers

from delayed_topics_faults.judge import Seen
from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.stage import LATE_MS, Stage, now_ms


class OnThreeBrokers(Row):
    """A row whose topics have three replicas."""

    @contextmanager
    def stage(self, directory: Path) -> Iterator[Stage]:
        with Brokers() as brokers, Stage(directory, brokers.bootstrap, replication_factor=3) as stage:
            self.brokers = brokers
            yield stage


class BrokerDies(OnThreeBrokers):
    name = "B1"
    fault = "SIGKILL a broker of three, restart one cleanly, or move leaders"

    def open(self, stage: Stage) -> None:
        stage.declare()
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        broker = rng.choice(self.brokers.members)
        how = rng.choice(("SIGKILL", "clean restart", "leader move"))
        lost_before, began_ms = self._lost(), now_ms()
        with stage.load(rng, records=4000, per_second=1000) as load:
            time.sleep(rng.uniform(0.1, load.seconds / 2))
            match how:
                case "SIGKILL":
                    broker.kill()
                    time.sleep(rng.uniform(0, 3))
                    broker.start()
                case "clean restart":
                    broker.restart()
                case _:
                    stage.elect()
            stage.in_sync()
        return Play(
            injected=f"{how} of broker {broker.node_id}",
            terms={"healed_at_ms": now_ms(), "late_ms": LATE_MS},
            told=(lost_before, began_ms),
        )

    def finish(self, stage: Stage, play: Play) -> tuple[Seen, list[str]]:
        finished = super().finish(stage, play)
        lost_before, began_ms = play.told
        if self._lost() > lost_before:
            # as in B8: its group may be without a coordinator for longer than its session
            play.injected += ", no coordinator for a session"
            play.terms["crashes_ms"] = (began_ms,)
        return finished

    def _lost(self) -> float:
        """How often the worker has given its partitions up without being asked to."""
        return self._worker.metric("delayedtopics_rebalances_total", change="lost")


class Away(Row):
    name = "B8"
    fault = "Kafka is away for ten minutes"
    away_seconds: float = 600

    @contextmanager
    def stage(self, directory: Path) -> Iterator[Stage]:
        with Broker() as broker, Stage(directory, broker.bootstrap) as stage:
            self._broker = broker
            yield stage

    def open(self, stage: Stage) -> None:
        stage.declare()
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        with stage.load(rng, records=5000, per_second=5000):
            pass
        time.sleep(rng.uniform(0, 1))
        self._broker.kill()
        killed_ms = now_ms()
        play = Play(injected=f"SIGKILL of the only broker, back after {self.away_seconds:g} s")
        until = time.monotonic() + self.away_seconds
        while time.monotonic() < until:
            code, text = self._worker.get("/livez")
            play.expect(code == 200, "R", f"/livez said {code} {text.strip()} while Kafka was away")
            time.sleep(1)
        self._broker.start()
        # away for longer than its session, the worker gives its partitions up: what isn't committed is as after a crash
        play.terms = {"crashes_ms": (killed_ms,), "healed_at_ms": now_ms(), "late_ms": LATE_MS}
        play.expect(self._worker.running, "R", "the worker has ended while Kafka was away")
        return play
