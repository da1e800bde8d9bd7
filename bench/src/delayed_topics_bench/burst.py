"""Measures a backlog whose records are all due in the same millisecond."""

import time
from dataclasses import dataclass

import numpy as np
from delayed_topics_devcluster.errors import DevclusterError

from delayed_topics_bench.drain import HOP_DELAY_SECONDS, hop, release
from delayed_topics_bench.samples import Verdict, judge
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Burst", "burst"]

LEAD_SECONDS = 5
TIMELINE_POINTS = 60


@dataclass(frozen=True, kw_only=True)
class Burst:
    """The figures of a burst.

    `first_ms`, `last_ms`: from the due time to the first and the last append in the ready topic. `top_per_second`: the speed at which
    the same workers drain the same records if they have been due all along. `timeline`: milliseconds, and the number of records by then.
    """

    records: int
    lanes: int
    first_ms: int
    last_ms: int
    top_per_second: float
    timeline: list[tuple[int, int]]
    verdict: Verdict

    @property
    def per_second(self) -> float:
        return self.records / (self.last_ms / 1000)


def burst(testbed: Testbed, *, records: int, size: int, workers: int) -> Burst:
    """Measures workers that wait for the due time with full windows."""
    with testbed.declared((HOP_DELAY_SECONDS,)) as hopped:
        filled, _ = hop(testbed, hopped, workers=workers, records=records, size=size)
        began = time.monotonic()
        top_samples, top = release(testbed, hopped, filled, workers=workers, records=records)
        # the next copying and starting take no longer than the first together with everything else
        due_at_ms = int((time.time() + LEAD_SECONDS + time.monotonic() - began) * 1000)
        with (
            testbed.declared((HOP_DELAY_SECONDS,)) as topic,
            testbed.copied(hopped, topic, records=records, due_at_ms=due_at_ms) as copied,
        ):
            with testbed.workers(topic, workers):
                if copied.show() > due_at_ms - 2000:
                    raise DevclusterError(
                        "the burst was due before all of its records were written, because this machine is too busy"
                    )
                testbed.await_records(topic.names.ready, records)
            samples = filled.samples(testbed.read(topic.names.ready))
    came_ms = np.sort(samples.first["stamp_ms"]) - due_at_ms
    shown = np.linspace(0, len(came_ms) - 1, TIMELINE_POINTS).astype(int)
    return Burst(
        records=records,
        lanes=PARTITIONS,
        first_ms=int(came_ms[0]),
        last_ms=int(came_ms[-1]),
        top_per_second=records / top.seconds,
        timeline=[(int(came_ms[n]), int(n) + 1) for n in shown],
        verdict=judge(samples, due_us=np.full(records, due_at_ms * 1000))
        + judge(top_samples, due_us=top_samples.stamp_us),
    )
