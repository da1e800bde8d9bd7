"""Measures how fast worker processes drain a backlog that is due, on both paths that a record can take."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Self

import numpy as np
from delayed_topics_worker_testing.harness import DeclaredTopic
from delayed_topics_worker_testing.process import WorkerProcess

from delayed_topics_bench.samples import Samples, Verdict, judge
from delayed_topics_bench.testbed import Backlog, Testbed

__all__ = [
    "HOP_DELAY_SECONDS",
    "Drained",
    "Leg",
    "Watch",
    "drain_direct",
    "drain_hopped",
    "hop",
    "release",
    "show_and_await",
    "unwatched",
]

Watch = Callable[[Sequence[WorkerProcess]], AbstractContextManager[None]]
"""A context that is entered just before workers get the records, and left when all records are in their target topic."""

HOP_DELAY_SECONDS = 600
"""Nothing is due while records hop. Copies of them whose due times are earlier by this delay are drained afterwards."""

STARTED_SHARE = 0.1
"""The share of the records during which workers are still starting. Ceilings leave out a warm-up, too."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One copy of a backlog from topic to topic.

    `seconds`: how long all of it takes at the speed after the first tenth. `first_ms`: from the moment at which the backlog becomes
    visible to the first append in the target topic.
    """

    seconds: float
    first_ms: int
    cpu_seconds: float

    @classmethod
    def of(cls, samples: Samples, *, shown_at_ms: int, cpu_seconds: float) -> Self:
        came_ms = np.sort(samples.first["stamp_ms"])
        started_ms = came_ms[int(len(came_ms) * STARTED_SHARE)]
        return cls(
            seconds=float(came_ms[-1] - started_ms) / 1000 / (1 - STARTED_SHARE),
            first_ms=int(came_ms[0]) - shown_at_ms,
            cpu_seconds=cpu_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The figures of a whole drain, like those of a Leg. `cpu_us_per_record` is of all workers, and counts each record once."""

    records: int
    seconds: float
    first_ms: int
    cpu_us_per_record: float
    verdict: Verdict

    @property
    def per_second(self) -> float:
        return self.records / self.seconds


def unwatched(_: Sequence[WorkerProcess]) -> AbstractContextManager[None]:
    """Watches nothing."""
    return nullcontext()


def drain_direct(testbed: Testbed, *, workers: int, records: int, size: int, watch: Watch = unwatched) -> Drained:
    """Drains front → ready, without a delay, so that all of the backlog is due."""
    with ExitStack() as stack:
        topic = stack.enter_context(testbed.declared((0,)))
        backlog = stack.enter_context(testbed.filled(topic, records=records, size=size))
        running = stack.enter_context(testbed.workers(topic, workers))
        shown_at_ms, used = show_and_await(testbed, backlog, running, topic.names.ready, records, watch)
        samples = backlog.samples(testbed.read(topic.names.ready))
    leg = Leg.of(samples, shown_at_ms=shown_at_ms, cpu_seconds=used)
    return Drained(
        records=records,
        seconds=leg.seconds,
        first_ms=leg.first_ms,
        cpu_us_per_record=used / records * 1e6,
        verdict=judge(samples, due_us=samples.stamp_us),
    )


def drain_hopped(
    testbed: Testbed, *, workers: int, records: int, size: int, watch: Watch = unwatched
) -> tuple[Drained, Leg, Leg]:
    """Drains front → hop → delays → ready. Each leg starts with new workers, and the time of a record is that of both legs."""
    with testbed.declared((HOP_DELAY_SECONDS,)) as topic:
        filled, hopping = hop(testbed, topic, workers=workers, records=records, size=size, watch=watch)
        samples, releasing = release(testbed, topic, filled, workers=workers, records=records, watch=watch)
    drained = Drained(
        records=records,
        seconds=hopping.seconds + releasing.seconds,
        first_ms=max(hopping.first_ms, releasing.first_ms),
        cpu_us_per_record=(hopping.cpu_seconds + releasing.cpu_seconds) / records * 1e6,
        verdict=judge(samples, due_us=samples.stamp_us),
    )
    return drained, hopping, releasing


def release(
    testbed: Testbed, hopped: DeclaredTopic, filled: Backlog, *, workers: int, records: int, watch: Watch = unwatched
) -> tuple[Samples, Leg]:
    """Drains delays → ready: the copies that hopped, with due times that are earlier by the delay.

    The records were due when they were appended to the front topic, and thus before they become visible.
    """
    with (
        testbed.declared((HOP_DELAY_SECONDS,)) as topic,
        testbed.copied(hopped, topic, records=records, shift_due_ms=-HOP_DELAY_SECONDS * 1000) as copied,
    ):
        with testbed.workers(topic, workers) as running:
            shown_at_ms, used = show_and_await(testbed, copied, running, topic.names.ready, records, watch)
        samples = filled.samples(testbed.read(topic.names.ready))
    return samples, Leg.of(samples, shown_at_ms=shown_at_ms, cpu_seconds=used)


def hop(
    testbed: Testbed, topic: DeclaredTopic, *, workers: int, records: int, size: int, watch: Watch = unwatched
) -> tuple[Backlog, Leg]:
    """Fills the front topic, lets workers hop all of it, and ends the workers."""
    with (
        testbed.filled(topic, records=records, size=size) as backlog,
        testbed.workers(topic, workers) as running,
    ):
        shown_at_ms, used = show_and_await(testbed, backlog, running, topic.names.delays, records, watch)
    hopped = backlog.samples(testbed.read(topic.names.delays))
    return backlog, Leg.of(hopped, shown_at_ms=shown_at_ms, cpu_seconds=used)


def show_and_await(
    testbed: Testbed, backlog: Backlog, workers: Sequence[WorkerProcess], target: str, records: int, watch: Watch
) -> tuple[int, float]:
    """Shows the backlog and waits for it in `target`. Returns when it was shown, in milliseconds, and the workers' CPU seconds since."""
    with watch(workers):
        before = sum(worker.cpu_seconds() for worker in workers)
        shown_at_ms = backlog.show()
        testbed.await_records(target, records)
        return shown_at_ms, sum(worker.cpu_seconds() for worker in workers) - before
