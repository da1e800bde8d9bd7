"""Measures how late records are at a steady rate, from their due time to their receipt by a consumer of the ready topic."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from delayed_topics_devcluster.progress import say

from delayed_topics_bench.drain import Watch, unwatched
from delayed_topics_bench.overtaken import overtakings
from delayed_topics_bench.samples import Samples, Verdict, begun_late, due_under_load, judge, percentiles
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["Late", "floor", "judged", "lateness", "loading"]

MAX_REPORTED = 20
IDLE_SECONDS = 30
"""If nothing has come for the longest delay and this time, missing records are lost."""
PATIENCE_SECONDS = 180
"""Records that are missing after this time while others still come are unfinished: the system can't keep up with the rate."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """The lateness of the records that were due while the load went on, in milliseconds by percentile.

    `late`: from the broker's append time + delay. `by_delay`: the same, by delay in seconds. `from_send`: from sending + delay.
    `ack_p999_ms`: the time in which the broker acknowledges single records to a topic of their own. `unfinished`: records that had not
    come after the patience, while others still came. `rejected`: records that the broker didn't acknowledge. `problem`: why the run is
    not valid.
    """

    late: dict[str, float]
    by_delay: dict[int, dict[str, float]]
    from_send: dict[str, float]
    ack_p999_ms: float
    unfinished: int = 0
    rejected: int = 0
    problem: str | None = None
    verdict: Verdict


def lateness(
    testbed: Testbed,
    *,
    rate: int,
    warm_seconds: int,
    seconds: int,
    size: int,
    workers: int,
    delay_seconds: Sequence[int],
    patience_seconds: int | None = None,
    watch: Watch = unwatched,
) -> Late:
    """Measures workers. Records have the delays in turn; those due in the `warm_seconds` are checked, but their lateness doesn't count.

    `patience_seconds`: see `loading`.
    """
    kinds = len(delay_seconds)
    with ExitStack() as stack:
        topic = stack.enter_context(testbed.declared(delay_seconds, lanes=PARTITIONS // kinds))
        stack.enter_context(watch(stack.enter_context(testbed.workers(topic, workers))))
        load = loading(
            testbed,
            front=topic.names.front,
            ready=topic.names.ready,
            levels=",".join(str(n + 1) for n in range(kinds)),
            rate=rate,
            seconds=warm_seconds + seconds,
            size=size,
            longest_seconds=max(delay_seconds),
            patience_seconds=patience_seconds,
        )
        directory, unfinished = stack.enter_context(load)()
        late = judged(directory, warm_seconds=warm_seconds, delay_seconds=delay_seconds)
        if late.verdict.disordered and kinds == 1:
            late = replace(late, verdict=_explained(testbed, topic.names.ready, late.verdict))
    if not unfinished:
        return late
    return replace(late, unfinished=late.verdict.lost, verdict=replace(late.verdict, lost=0))


def _explained(testbed: Testbed, ready: str, verdict: Verdict) -> Verdict:
    """Prints which records were overtaken, and by which others, because this is too rare to reproduce. Counts the exempt ones."""
    found = list(overtakings(testbed.harness.read(ready, verdict.records - verdict.lost)))
    for overtaking in found[:MAX_REPORTED]:
        say(str(overtaking))
    return replace(verdict, order_exempt=sum(overtaking.exempt for overtaking in found))


def floor(testbed: Testbed, *, rate: int, warm_seconds: int, seconds: int, size: int) -> Late:
    """Sends the same load directly to the receiver, to measure what broker, sender and receiver take without a worker or a delay."""
    with (
        testbed.topic(f"floor-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS) as topic,
        loading(
            testbed, front=topic, ready=topic, rate=rate, seconds=warm_seconds + seconds, size=size, longest_seconds=0
        ) as done,
    ):
        directory, _ = done()
    return judged(directory, warm_seconds=warm_seconds, delay_seconds=(0,))


@contextmanager
def loading(
    testbed: Testbed,
    *,
    front: str,
    ready: str,
    rate: int,
    seconds: int,
    size: int,
    longest_seconds: int,
    levels: str | None = None,
    patience_seconds: int | None = None,
) -> Iterator[Callable[[], tuple[Path, bool]]]:
    """Starts the load. Yields a function that waits for its end.

    The function returns the folder with the samples, and whether records were still coming when the patience ended. `patience_seconds`:
    how long to wait after the last sending, however long nothing comes; None: see IDLE_SECONDS and PATIENCE_SECONDS.
    """
    patience = patience_seconds or longest_seconds + PATIENCE_SECONDS
    directory = testbed.new_directory()
    with (
        testbed.topic(f"acks-{uuid.uuid4().hex[:8]}", partitions=1) as acks,
        testbed.java(
            "Steady",
            topic=front,
            ready=ready,
            acks=acks,
            rate=rate,
            seconds=seconds,
            size=size,
            idle_seconds=patience_seconds or longest_seconds + IDLE_SECONDS,
            patience_seconds=patience,
            levels=levels,
            directory=directory,
        ) as program,
    ):
        most = 30.0 + seconds + patience
        yield lambda: (directory, "unfinished" in program.expect("done", timeout_seconds=most))


def judged(directory: Path, *, warm_seconds: int, delay_seconds: Sequence[int]) -> Late:
    """Judges the samples of a load whose records have these delays in turn."""
    samples, acks = Samples.read(directory), Samples.read(directory / "acks")
    kinds = len(delay_seconds)
    numbers = np.arange(len(samples.sent))
    delay_us = np.array(delay_seconds)[numbers % kinds] * 1_000_000
    due_us = samples.stamp_us + delay_us
    counted = due_under_load(samples, due_us=due_us, warm_seconds=warm_seconds)
    acked = acks.sent[acks.acked]
    acked = acked[acked["sent_us"] >= samples.sent["sent_us"].min() + warm_seconds * 1_000_000]
    return Late(
        late=percentiles(samples.late_us(due_us, numbers=counted)),
        by_delay={
            delay: percentiles(samples.late_us(due_us, numbers=counted & (numbers % kinds == n)))
            for n, delay in enumerate(delay_seconds)
        },
        from_send=percentiles(samples.late_us(samples.sent["sent_us"] + delay_us, numbers=counted)),
        ack_p999_ms=percentiles(acked["acked_us"] - acked["sent_us"]).get("p999", float("inf")),
        rejected=samples.rejected,
        problem=begun_late(samples, warm_seconds=warm_seconds),
        verdict=judge(samples, due_us=due_us, kinds=kinds),
    )
