"""W4: a worker with the memory of a small pod, which then gets too little."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import Producer
from delayed_topics_devcluster.waiting import wait_until
from delayed_topics_worker_testing.process import Launch

from delayed_topics_faults.judge import Crash
from delayed_topics_faults.row import Row, Trial
from delayed_topics_faults.testbed import Testbed, now_ms

MEBIBYTE: Final = 1 << 20
HOUR_SECONDS: Final = 3600


class Cgroup:
    """A cgroup of version 1 or 2, which limits memory without a pod."""

    def __init__(self, name: str) -> None:
        self._v1 = Path("/sys/fs/cgroup/memory").is_dir()
        self._directory = (Path("/sys/fs/cgroup/memory") if self._v1 else Path("/sys/fs/cgroup")) / name
        self._directory.mkdir()

    @property
    def launch(self) -> Launch:
        """Starts a worker in the cgroup."""
        enter = f'echo $$ > {self._directory}/cgroup.procs && exec "$@"'
        return Launch(prefix=("sh", "-c", enter, "sh"))

    @property
    def used_bytes(self) -> int:
        name = "memory.usage_in_bytes" if self._v1 else "memory.current"
        return int((self._directory / name).read_text())

    @property
    def most_used_bytes(self) -> int:
        name = "memory.max_usage_in_bytes" if self._v1 else "memory.peak"
        return int((self._directory / name).read_text())

    def limit(self, limit_bytes: int) -> None:
        (self._directory / ("memory.limit_in_bytes" if self._v1 else "memory.max")).write_text(str(limit_bytes))

    def remove(self) -> None:
        self._directory.rmdir()


class OutOfMemory(Row):
    name = "W4"
    fault = "256 MiB with a million records pending; then too little, so that the kernel kills the worker"
    pending = 1_000_000
    limit_bytes = 256 * MEBIBYTE

    @contextmanager
    def testbed(self, directory: Path) -> Iterator[Testbed]:
        self._cgroup = Cgroup(f"dt-faults-{os.getpid()}")
        try:
            with super().testbed(directory) as testbed:
                yield testbed
        finally:
            wait_until(self._removed, what="the cgroup is empty", timeout_seconds=10)

    def _removed(self) -> bool:
        with suppress(OSError):
            self._cgroup.remove()
            return True
        return False

    def open(self, testbed: Testbed) -> None:
        orders = testbed.declare((0, 1, HOUR_SECONDS), partitions=4)
        lane = orders.record.layout.partition_for(HOUR_SECONDS, 0)
        producer = Producer({**testbed.harness.connection.client_config(), "linger.ms": 20, "compression.type": "lz4"})
        generation = b"%d" % orders.record.layout.generation
        for n in range(self.pending):
            while len(producer) > 50_000:
                producer.poll(0.05)
            producer.produce(
                orders.names.delays, b"pending %d" % n, partition=lane, headers=[("dt-generation", generation)]
            )
        producer.flush(60)
        self._lane = orders.names.delays, lane
        testbed.not_awaited.add(self._lane)
        testbed.skip(orders.names.delays)
        self._cgroup.limit(self.limit_bytes)
        self._worker = testbed.start(launch=self._cgroup.launch)

    def trial(self, testbed: Testbed, rng: Random) -> Trial:
        with testbed.load(rng, records=4000, per_second=2000, levels=(1, 2)) as load:
            time.sleep(rng.uniform(0.1, load.seconds))
            most_bytes = self._cgroup.most_used_bytes
            self._cgroup.limit(self._cgroup.used_bytes + MEBIBYTE)
            while self._worker.running:
                testbed.orders.produce(
                    rng.randbytes(100_000), headers=[testbed.expected(1)], partition=rng.randrange(2)
                )
                time.sleep(0.002)
            killed_ms = now_ms()
            code = self._worker.wait()
            self._cgroup.limit(self.limit_bytes)
            self._worker = testbed.start(launch=self._cgroup.launch)
        trial = Trial(injected=f"{most_bytes // MEBIBYTE} MiB used at most; then killed for lack of memory")
        trial.expect(code == -signal.SIGKILL, "R", f"the worker ended with {code}, the kernel kills with -9")
        trial.expect(most_bytes < self.limit_bytes, "R", f"{most_bytes} bytes used of {self.limit_bytes}")
        at = testbed.orders.committed()[self._lane]
        trial.expect(at.offset == 0, "L", f"records due in an hour are passed over: {at}")
        trial.terms = {"crashes": (Crash(at_ms=killed_ms),), "healed_at_ms": now_ms()}
        return trial
