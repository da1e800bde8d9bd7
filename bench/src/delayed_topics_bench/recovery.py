"""Measures a crash with many records pending: how soon a system serves again, what it loses, and what a pending record takes."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from delayed_topics_devcluster.processes import resident_bytes
from delayed_topics_devcluster.progress import say, step

from delayed_topics_bench.java import JavaProgram
from delayed_topics_bench.peer_servers import Server
from delayed_topics_bench.plan import SIZE
from delayed_topics_bench.samples import Samples, Verdict, judge, percentiles
from delayed_topics_bench.testbed import Testbed

__all__ = ["DELAY_SECONDS", "Recovered", "System", "ours", "recovery", "theirs"]

DELAY_SECONDS = 120
"""The delay of all records; RocketMQ has a level for it. The crash and the recovery take place before the first record is due."""
MAX_PER_SECOND = 100_000
IN_FLIGHT = 2_000
"""The bound of unacknowledged messages. RocketMQ's producer has none, and its broker rejects what it can't accept in time."""
IDLE_SECONDS, LATE_SECONDS = 60, 300
"""Once the last record is due, missing records are lost when none has come for IDLE_SECONDS, or after LATE_SECONDS."""
SENT_SECONDS = 300.0
BLOCK_BYTES = 512
"""The size of the blocks that stat(2) counts."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A system that stores pending records.

    `load`: starts a program that sends records and receives them; the arguments are a folder for the samples, the number of records,
    and the records per second. `crash`: kills all servers with SIGKILL. `recover`: starts the servers, and returns when they serve.
    `stored_bytes`: the bytes on the disk. `resident_bytes`: the memory of all servers.
    """

    load: Callable[[Path, int, int], JavaProgram]
    crash: Callable[[], None]
    recover: Callable[[], None]
    stored_bytes: Callable[[], int]
    resident_bytes: Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The figures of a crash.

    `sent_per_s`: acknowledged records a second. `disk_bytes`: bytes on the disk per pending record. `resident_mib`: the memory of all
    servers while all records are pending. `serving_s`: from the start of the servers after the crash until they serve. `received_per_s`:
    records a second from the first receipt to the last. `late`: milliseconds by percentile, from sending + delay to the receipt.
    `rejected`: records that were not acknowledged.
    """

    records: int
    sent_per_s: int
    disk_bytes: float
    resident_mib: float
    serving_s: float
    received_per_s: int
    late: dict[str, float]
    rejected: int
    verdict: Verdict

    def figures(self) -> dict[str, Any]:
        """Returns the figures as they are stored, with three counts of the verdict."""
        verdict = self.verdict
        counts = {"early": verdict.early, "lost": verdict.lost, "doubled": verdict.doubled}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "verdict"} | counts


def recovery(testbed: Testbed, system: System, *, records: int) -> Recovered:
    """Sends all records, kills all servers, and starts them again before the records become due."""
    directory = testbed.new_directory()
    before_bytes = system.stored_bytes()
    with system.load(directory, records, min(MAX_PER_SECOND, records)) as program:
        program.expect("sent", timeout_seconds=SENT_SECONDS)
        disk_bytes, memory_bytes = system.stored_bytes() - before_bytes, system.resident_bytes()
        with step("SIGKILL, and a new start"):
            system.crash()
            began = time.monotonic()
            system.recover()
            serving_s = time.monotonic() - began
        say(f"serves after {serving_s:.1f} s")
        program.expect("done", timeout_seconds=DELAY_SECONDS + LATE_SECONDS + 60.0)
    samples = Samples.read(directory)
    due_us = samples.sent["sent_us"] + DELAY_SECONDS * 1_000_000
    acked_us = samples.sent["acked_us"][samples.acked]
    came_us = samples.first["at_us"]
    return Recovered(
        records=records,
        sent_per_s=_per_second(len(acked_us), int(acked_us.max() - samples.sent["sent_us"].min())),
        disk_bytes=disk_bytes / records,
        resident_mib=memory_bytes / 2**20,
        serving_s=serving_s,
        received_per_s=_per_second(len(came_us), int(came_us.max() - came_us.min())) if len(came_us) else 0,
        late=percentiles(samples.late_us(due_us)),
        rejected=samples.rejected,
        verdict=judge(samples, due_us=due_us),
    )


@contextmanager
def ours(testbed: Testbed, *, workers: int) -> Iterator[System]:
    """Yields delayed topics as a system. The broker and all workers crash."""
    with ExitStack() as stack:
        topic = stack.enter_context(testbed.declared((DELAY_SECONDS,)))
        started = stack.enter_context(testbed.workers(topic, workers))
        acks = stack.enter_context(testbed.topic(f"acks-{uuid.uuid4().hex[:8]}", partitions=1))

        def load(directory: Path, records: int, rate: int) -> JavaProgram:
            return testbed.java(
                "Steady",
                topic=topic.names.front,
                ready=topic.names.ready,
                acks=acks,
                directory=directory,
                **_load(records, rate),
            )

        def crash() -> None:
            for worker in started:
                worker.kill()
            testbed.broker.kill()

        def recover() -> None:
            testbed.broker.start()
            started[:] = stack.enter_context(testbed.workers(topic, workers))

        yield System(
            load=load,
            crash=crash,
            recover=recover,
            stored_bytes=lambda: _on_disk(testbed.broker.directory / "data"),
            resident_bytes=lambda: sum(map(resident_bytes, (testbed.broker.pid, *(worker.pid for worker in started)))),
        )


def theirs(testbed: Testbed, server: Server) -> System:
    """Returns a peer as a system. The peer has to have a store of its own."""
    stored = server.stored
    assert stored is not None, "only peers with a store of their own are measured here"

    def load(directory: Path, records: int, rate: int) -> JavaProgram:
        return server.load(
            directory, testbed.log, delay_seconds=DELAY_SECONDS, in_flight=IN_FLIGHT, **_load(records, rate)
        )

    return System(
        load=load,
        crash=stored.program.kill,
        recover=stored.program.start,
        stored_bytes=lambda: _on_disk(stored.directory),
        resident_bytes=stored.program.resident_bytes,
    )


def _load(records: int, rate: int) -> dict[str, int]:
    return {
        "rate": rate,
        "seconds": records // rate,
        "size": SIZE,
        "idle_seconds": DELAY_SECONDS + IDLE_SECONDS,
        "patience_seconds": DELAY_SECONDS + LATE_SECONDS,
    }


def _on_disk(directory: Path) -> int:
    """Returns the bytes of the blocks of all files below a directory. The lengths of memory-mapped files would be larger."""
    found = 0
    for file in directory.rglob("*"):
        with suppress(FileNotFoundError):  # the file has been deleted meanwhile
            found += file.stat().st_blocks * BLOCK_BYTES
    return found


def _per_second(records: int, passed_us: int) -> int:
    return round(records / max(1, passed_us) * 1e6)
