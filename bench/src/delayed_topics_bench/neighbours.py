"""Measures what a noisy delayed topic does to a quiet one, from the same shared worker and from a worker of its own."""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Literal

from delayed_topics_worker_testing.harness import DeclaredTopic

from delayed_topics_bench.lateness import Late, judged, loading
from delayed_topics_bench.testbed import PARTITIONS, Testbed

__all__ = ["PLACEMENTS", "Placement", "beside"]

Placement = Literal["alone", "noisy topic on another worker", "noisy topic on the same worker"]
PLACEMENTS: tuple[Placement, ...] = ("alone", "noisy topic on another worker", "noisy topic on the same worker")
"""The second placement shows what the noisy topic does to broker and machine; only the third adds the effect of the shared worker."""
DELAY_SECONDS = (1,)


def beside(
    testbed: Testbed,
    placement: Placement,
    *,
    rate: int,
    noisy_rate: int,
    warm_seconds: int,
    seconds: int,
    size: int,
) -> Late:
    """Measures how late the records of the quiet topic are, with `rate` records a second beside `noisy_rate` of the noisy topic."""
    run = uuid.uuid4().hex[:8]
    groups = {"quiet": f"shared-{run}", "noisy": f"shared-{run}"}
    if placement == "noisy topic on another worker":
        groups["noisy"] += "-noisy"
    if placement == "alone":
        del groups["noisy"]
    topics = {
        name: testbed.harness.declare(
            DELAY_SECONDS, partitions=PARTITIONS, lanes_per_delay=PARTITIONS, front_partitions=PARTITIONS, group=group
        )
        for name, group in groups.items()
    }
    with ExitStack() as stack:
        _start_workers(testbed, topics, stack)
        rates = {"quiet": rate, "noisy": noisy_rate}
        running = {
            # the noisy topic comes first, so that its load lasts as long as that of the quiet one
            name: stack.enter_context(
                loading(
                    testbed,
                    front=topic.names.front,
                    ready=topic.names.ready,
                    levels="1",
                    rate=rates[name],
                    seconds=warm_seconds + seconds,
                    size=size,
                    longest_seconds=max(DELAY_SECONDS),
                )
            )
            for name, topic in reversed(topics.items())
        }
        directories = {name: done() for name, done in running.items()}
    directory, _ = directories["quiet"]
    late = judged(directory, warm_seconds=warm_seconds, delay_seconds=DELAY_SECONDS)
    for topic in topics.values():
        testbed.harness.admin.delete_topics(list(topic.names.topics))
    return late


def _start_workers(testbed: Testbed, topics: Mapping[str, DeclaredTopic], stack: ExitStack) -> None:
    """Starts one worker for each group."""
    wanted: dict[str, int] = {}
    for topic in topics.values():
        group = topic.record.group
        wanted[group] = wanted.get(group, 0) + topic.record.front_partitions + topic.record.layout.partition_count
    for group, partitions in wanted.items():
        for worker in testbed.shared_workers(group, 1, partitions=partitions):
            stack.callback(worker.terminate)
