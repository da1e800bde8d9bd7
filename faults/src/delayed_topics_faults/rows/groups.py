"""G1 and G2: rebalances with each protocol and assignor."""

import time
from collections.abc import Mapping, Sequence, Set
from itertools import count
from random import Random
from typing import Any, Final

from delayed_topics_core.rebalances import Rebalance
from delayed_topics_devcluster.errors import NotInTimeError
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.generations import (
    Generation,
    events_of,
    moves,
    must_have_learned,
    recorded_generations,
    reported_rebalances,
)
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.judge import Crash
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

Setup = Mapping[str, Any]
"""The protocol and the assignor of a worker."""

RANGE: Final[Setup] = {"protocol": "classic", "assignor": "Range"}
ROUND_ROBIN: Final[Setup] = {"protocol": "classic", "assignor": "RoundRobin"}
STICKY: Final[Setup] = {"protocol": "classic", "assignor": "Sticky"}
UNIFORM: Final[Setup] = {"protocol": "consumer", "assignor": "Uniform"}
CONSUMER_RANGE: Final[Setup] = {"protocol": "consumer", "assignor": "Range"}
MAX_WORKERS: Final = 4
MAX_FRONT_PARTITIONS: Final = 6
RECORDS, PER_SECOND = 10_000, 1_000
SERVED_SECONDS: Final = 60.0


class Rebalanced(Row):
    name = "G1"
    fault = (
        "workers come, go and are killed, and topics grow, with each assignor in turn; each rebalance is reported once"
    )
    setups: tuple[Setup, ...] = (RANGE, STICKY, UNIFORM, ROUND_ROBIN, CONSUMER_RANGE)

    def open(self, testbed: Testbed) -> None:
        self._turns = count()
        self._workers: dict[int, WorkerProcess] = {}

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        """Uses a new group, because the members of an old one count for 10 s or 45 s after their end."""
        setup = self.setups[next(self._turns) % len(self.setups)]
        for worker in self._workers.values():
            worker.terminate()
        testbed.declare(front_partitions=4, partitions=6)
        self._processes: list[WorkerProcess] = []
        self._workers = {0: self._start(testbed, 0, **setup)}
        done: list[str] = []
        crashes: list[Crash] = []
        changed_ms = now_ms()
        with testbed.load(rng, records=RECORDS, per_second=PER_SECOND) as load:
            until = time.monotonic() + load.seconds
            while time.monotonic() < until:
                since_ms, changed_ms = changed_ms, now_ms()
                done.append(self._change(testbed, rng, setup, since_ms, crashes))
                time.sleep(rng.uniform(0.2, 3))
        trial = Trial(injected=f"{' '.join(setup.values())}: {' '.join(done)}")
        trial.terms = {"crashes": tuple(crashes), "healed_at_ms": now_ms()}
        self._count(testbed, trial, setup["protocol"])
        return trial

    def _start(self, testbed: Testbed, number: int, **further: Any) -> WorkerProcess:
        self._processes.append(testbed.start(number, **further))
        return self._processes[-1]

    def _change(self, testbed: Testbed, rng: Random, setup: Setup, since_ms: int, crashes: list[Crash]) -> str:
        """Starts, ends or kills a worker, or grows the front topic. Returns +n, -n, xn or g. One worker always stays.

        `since_ms`: the time of the change before. Since then, the group may be between two generations, and Kafka accepts no commits.
        """
        partitions = testbed.orders.record.front_partitions
        if partitions < MAX_FRONT_PARTITIONS and rng.random() < 0.2:
            testbed.orders.grow_front(partitions + 1)
            return "g"
        missing = [number for number in range(MAX_WORKERS) if number not in self._workers]
        if missing and (len(self._workers) == 1 or rng.random() < 0.5):
            number = rng.choice(missing)
            self._workers[number] = self._start(testbed, number, ready=rng.random() < 0.5, **setup)
            return f"+{number}"
        number = rng.choice(sorted(self._workers))
        if rng.random() < 0.5:
            self._workers.pop(number).terminate()
            return f"-{number}"
        self._workers[number].kill()
        crashes.append(Crash(at_ms=now_ms(), since_ms=since_ms))
        self._workers[number] = self._start(testbed, number, ready=False, **setup)
        return f"x{number}"

    def _count(self, testbed: Testbed, trial: Trial, protocol: str) -> None:
        """Waits until all partitions are served, and checks that workers reported the rebalances that Kafka's log has."""

        def served() -> bool:
            return all(one.ended_at_ms for one in reported_rebalances(testbed.orders)) and testbed.settled()

        try:
            wait_until(served, what="all moved partitions are served", timeout_seconds=SERVED_SECONDS)
        except NotInTimeError as e:
            trial.expect(False, "R", str(e))
        recorded = recorded_generations(testbed.orders, protocol)
        # read after Kafka's log, since the report of a generation is complete once Kafka has the next one
        rebalances = reported_rebalances(testbed.orders)
        trial.counts[f"{protocol} rebalances"] = len(rebalances)
        trial.injected += f": {len(rebalances)} rebalances"
        self._compare(testbed, trial, recorded, rebalances, must_have_learned(recorded, self._processes, protocol))

    def _compare(
        self,
        testbed: Testbed,
        trial: Trial,
        recorded: list[Generation],
        rebalances: Sequence[Rebalance],
        must_have_learned: Set[tuple[int, str]],
    ) -> None:
        assignments = [event for event in events_of(testbed.orders) if event.kind == "assignment"]
        heard = {(event.detail["generation"], event.member) for event in assignments} | must_have_learned
        expected = list(moves(recorded, lambda generation, member: (generation, member) in heard))
        found = [(r.generation, r.moved_partitions) for r in rebalances if r.generation <= recorded[-1].number]
        trial.expect(found == expected, "R", f"workers reported {found}, Kafka recorded {expected}")


class Switched(Row):
    name = "G2"
    fault = "the workers are replaced one by one by ones of another assignor or protocol, and back"
    ways: tuple[Setup, ...] = (RANGE, UNIFORM, RANGE, CONSUMER_RANGE, ROUND_ROBIN, UNIFORM, ROUND_ROBIN)

    def open(self, testbed: Testbed) -> None:
        testbed.declare(front_partitions=4, partitions=6)
        self._at = 0
        self._workers = [testbed.start(number, **self.ways[0]) for number in range(3)]

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        before, setup = (self.ways[at % len(self.ways)] for at in (self._at, self._at + 1))
        self._at += 1
        with testbed.load(rng, records=RECORDS, per_second=PER_SECOND):
            for number in rng.sample(range(3), 3):
                time.sleep(rng.uniform(0, 2))
                ending_ms = now_ms()
                self._workers[number].terminate()
                self._workers[number] = testbed.start(number, **setup)
        trial = Trial(injected=f"from {' '.join(before.values())} to {' '.join(setup.values())}")
        if before["protocol"] != setup["protocol"]:
            trial.counts[f"switches to {setup['protocol']}"] = 1
        # Kafka converts the group to a classic one when the last member of the newer protocol leaves, and removes its other members
        converts = (before["protocol"], setup["protocol"]) == ("consumer", "classic")
        shut_out = Crash(at_ms=now_ms(), since_ms=ending_ms)
        trial.terms = {"healed_at_ms": now_ms(), "crashes": (shut_out,) if converts else ()}
        return trial
