"""How late records are at a steady rate: from their due time to their receipt by a consumer of the ready topic."""

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

MAX_TOLD = 20
IDLE_SECONDS = 30
"""Beyond the longest delay. What has not come when nothing has come for so long is lost."""
PATIENCE_SECONDS = 180
"""What has not come by then, while others still come, is unfinished: a rate that can't be kept up with."""


@dataclass(frozen=True, kw_only=True)
class Late:
    """Milliseconds by percentile, of records that were due while the load went on. `late`: from the broker's append time + delay;
    `by_delay`: the same, by delay in seconds; `from_send`: from the sending + delay. `ack_p999_ms`: the broker's own, of single
    records to a topic of their own. `unfinished`: had not come when patience ended, while others still came. `rejected`: the broker has
    not taken them. `problem`: why it is no valid run."""

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
    """The delays in turn, record by record. What is due in the `warm_seconds` is checked and not counted. `patience_seconds`: see
    `loading`."""
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
    """Says which were overtaken, and by what: it is too rare to be had again at will."""
    found = list(overtakings(testbed.harness.read(ready, verdict.records - verdict.lost)))
    for overtaking in found[:MAX_TOLD]:
        say(str(overtaking))
    return replace(verdict, order_exempt=sum(overtaking.exempt for overtaking in found))


def floor(testbed: Testbed, *, rate: int, warm_seconds: int, seconds: int, size: int) -> Late:
    """The same load straight to the receiver, without worker or delay: what broker, sender and receiver take by themselves."""
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
    """Starts the load. Yields a function that waits for its end, and returns the folder with the samples, and whether records were still
    coming when patience ended. `patience_seconds`: after the last sending, however long nothing comes; None: see IDLE_SECONDS and
    PATIENCE_SECONDS."""
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
    """What the samples of a load with these delays in turn say."""
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
