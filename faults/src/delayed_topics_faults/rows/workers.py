"""W: what happens to workers."""

import signal
import time
from random import Random

from delayed_topics_worker.clients import SESSION_TIMEOUT_MS
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_faults.row import Play, Row
from delayed_topics_faults.stage import Stage, now_ms

RECORDS = 10_000
PER_SECOND = 5_000


class Killed(Row):
    name = "W1"
    fault = "SIGKILL a worker at a random moment, also between acknowledgement and commit and in mid-commit"

    def open(self, stage: Stage) -> None:
        stage.declare(ladder_seconds=(1, 2))
        self._worker = stage.start()

    def trial(self, stage: Stage, rng: Random) -> Play:
        with stage.load(rng, records=RECORDS, per_second=PER_SECOND) as load:
            after_seconds = rng.uniform(0.05, load.seconds + 1.5)
            time.sleep(after_seconds)
            self._worker.kill()
            killed_ms = now_ms()
            self._worker = stage.start(ready=False)
        healed_ms = _ready(self._worker)
        terms = {"crashes_ms": (killed_ms,), "healed_at_ms": healed_ms}
        return Play(injected=f"SIGKILL after {after_seconds * 1000:.0f} ms", terms=terms)


class Rolled(Row):
    name = "W2"
    fault = "SIGTERM while busy, or a rolling update of two workers"

    def open(self, stage: Stage) -> None:
        stage.declare()
        self._workers = [stage.start(0), stage.start(1)]

    def trial(self, stage: Stage, rng: Random) -> Play:
        rolling = rng.random() < 0.5
        chosen = [0, 1] if rolling else [rng.randrange(2)]
        took: list[float] = []
        with stage.load(rng, records=RECORDS, per_second=PER_SECOND) as load:
            time.sleep(rng.uniform(0.05, load.seconds))
            for number in chosen:
                began = time.monotonic()
                code = self._workers[number].terminate()
                took.append(time.monotonic() - began)
                self._workers[number] = stage.start(number)
        play = Play(injected=f"SIGTERM to {', '.join(f'orders-{n}' for n in chosen)}, gone after {max(took):.1f} s")
        play.terms = {"healed_at_ms": now_ms()}
        play.expect(code == 0, "R", f"a worker's exit code after SIGTERM was {code}")
        return play


class Zombie(Row):
    name = "W3"
    fault = "SIGSTOP a worker for longer than its session, then SIGCONT"

    def open(self, stage: Stage) -> None:
        stage.declare(front_partitions=4, partitions=6)
        self._workers = [stage.start(0), stage.start(1)]

    def trial(self, stage: Stage, rng: Random) -> Play:
        frozen = rng.choice(self._workers)
        beyond_seconds = rng.uniform(0.5, 4)
        with stage.load(rng, records=RECORDS, per_second=1_000):
            time.sleep(rng.uniform(0.1, 3))
            stopped_ms = now_ms()
            frozen.signal(signal.SIGSTOP)
            time.sleep(SESSION_TIMEOUT_MS / 1000 + beyond_seconds)
            frozen.signal(signal.SIGCONT)
            resumed_ms = now_ms()
        terms = {"crashes_ms": (stopped_ms, resumed_ms), "healed_at_ms": resumed_ms}
        return Play(injected=f"{frozen.member} frozen for {(resumed_ms - stopped_ms) / 1000:.1f} s", terms=terms)


def _ready(worker: WorkerProcess) -> int:
    worker.ready()
    return now_ms()
