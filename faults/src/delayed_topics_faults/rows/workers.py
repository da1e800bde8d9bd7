"""W1, W2, W3 and W7: workers that are killed, stopped or frozen."""

import signal
import time
from random import Random

from delayed_topics_core.layout import ladder
from delayed_topics_devcluster.progress import say
from delayed_topics_worker.clients import SESSION_TIMEOUT_MS
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.judge import Crash, Seen
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

RECORDS = 10_000
PER_SECOND = 5_000


class Killed(Row):
    name = "W1"
    fault = "SIGKILL a worker at a random moment, also between acknowledgement and commit and in mid-commit"

    def open(self, testbed: Testbed) -> None:
        testbed.declare(ladder_seconds=(1, 2))
        self._worker = testbed.start()

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        with testbed.load(rng, records=RECORDS, per_second=PER_SECOND) as load:
            after_seconds = rng.uniform(0.05, load.seconds + 1.5)
            time.sleep(after_seconds)
            self._worker.kill()
            killed_ms = now_ms()
            self._worker = testbed.start(ready=False)
        healed_ms = _ready(self._worker)
        terms = {"crashes": (Crash(at_ms=killed_ms),), "healed_at_ms": healed_ms}
        return Trial(injected=f"SIGKILL after {after_seconds * 1000:.0f} ms", terms=terms)


class Rolled(Row):
    name = "W2"
    fault = "SIGTERM while busy, or a rolling update of two workers"

    def open(self, testbed: Testbed) -> None:
        testbed.declare()
        self._workers = [testbed.start(0), testbed.start(1)]

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        rolling = rng.random() < 0.5
        chosen = [0, 1] if rolling else [rng.randrange(2)]
        took: list[float] = []
        with testbed.load(rng, records=RECORDS, per_second=PER_SECOND) as load:
            time.sleep(rng.uniform(0.05, load.seconds))
            for number in chosen:
                began = time.monotonic()
                code = self._workers[number].terminate()
                took.append(time.monotonic() - began)
                self._workers[number] = testbed.start(number)
        trial = Trial(injected=f"SIGTERM to {', '.join(f'orders-{n}' for n in chosen)}, gone after {max(took):.1f} s")
        trial.terms = {"healed_at_ms": now_ms()}
        trial.expect(code == 0, "R", f"a worker's exit code after SIGTERM was {code}")
        return trial


class Zombie(Row):
    name = "W3"
    fault = "SIGSTOP a worker for longer than its session, then SIGCONT"

    def open(self, testbed: Testbed) -> None:
        testbed.declare(front_partitions=4, partitions=6)
        self._workers = [testbed.start(0), testbed.start(1)]

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        frozen = rng.choice(self._workers)
        beyond_seconds = rng.uniform(0.5, 4)
        with testbed.load(rng, records=RECORDS, per_second=1_000):
            time.sleep(rng.uniform(0.1, 3))
            stopped_ms = now_ms()
            frozen.signal(signal.SIGSTOP)
            time.sleep(SESSION_TIMEOUT_MS / 1000 + beyond_seconds)
            frozen.signal(signal.SIGCONT)
            resumed_ms = now_ms()
        terms = {"crashes": (Crash(at_ms=resumed_ms, since_ms=stopped_ms),), "healed_at_ms": resumed_ms}
        return Trial(injected=f"{frozen.member} frozen for {(resumed_ms - stopped_ms) / 1000:.1f} s", terms=terms)


class DueTimes(Row):
    name = "W7"
    fault = (
        "a million records with due times of their own within ten minutes; one of two workers is killed every 5 to 40 s"
    )
    records = 1_000_000
    per_second = 5_000
    within_seconds = 600
    settle_seconds = 600

    def open(self, testbed: Testbed) -> None:
        longest_seconds = self.within_seconds // 2
        testbed.declare((0,), front_partitions=4, ladder_seconds=ladder(max_seconds=longest_seconds, base=2))
        self._workers = [testbed.start(0), testbed.start(1)]

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        crashes: list[Crash] = []
        until = time.monotonic() + self.records / self.per_second + self.within_seconds
        ahead_ms = self.within_seconds * 1000
        with testbed.load(rng, records=self.records, per_second=self.per_second, due_times=1, ahead_ms=ahead_ms):
            while (rest := until - time.monotonic()) > 0:
                time.sleep(min(rest, rng.uniform(5, 40)))
                number = rng.randrange(2)
                partitions = testbed.partitions_of(number)
                self._workers[number].kill()
                crashes.append(Crash(at_ms=now_ms(), partitions=partitions))
                self._workers[number] = testbed.start(number, ready=False)
                say(f"kill {len(crashes)}, {max(0, until - time.monotonic()):.0f} s to go")
        terms = {"crashes": tuple(crashes), "healed_at_ms": _ready(self._workers[number])}
        return Trial(injected=f"{len(crashes)} kills", terms=terms)

    def read(self, testbed: Testbed) -> Seen:
        return testbed.read_repeats()


def _ready(worker: WorkerProcess) -> int:
    worker.ready()
    return now_ms()
