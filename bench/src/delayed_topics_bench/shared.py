"""Measures what many idle topics cost the workers that share them, and how soon a new topic is served."""

import time
import uuid
from dataclasses import dataclass

from delayed_topics_devcluster.waiting import wait_until

from delayed_topics_bench.testbed import Testbed

__all__ = ["Idle", "idle_topics"]

NEW_TOPICS = 5


@dataclass(frozen=True, kw_only=True)
class Idle:
    """The cost of idle topics.

    `served_s`: from the start of the workers until each partition has one. `cores`: the processor time of a worker while nothing
    happens, as a share of one core; `resident_mib`: the memory of a worker; both are of the worker that uses most. `new_topic_ms`: from
    the entry of a new topic in the registry until its first record has come out, the median of NEW_TOPICS.
    """

    topics: int
    partitions: int
    workers: int
    served_s: float
    cores: float
    resident_mib: float
    new_topic_ms: float


def idle_topics(testbed: Testbed, *, topics: int, workers: int, seconds: int) -> Idle:
    """Measures workers with the protocol and assignor that the operator gives shared workers."""
    harness, group = testbed.harness, f"shared-{uuid.uuid4().hex[:8]}"
    harness.declare_many(topics, (0, 10, 60), partitions=3, front_partitions=1, group=group)
    partitions = topics * 4
    began = time.monotonic()
    processes = testbed.shared_workers(group, workers, partitions=partitions)
    served_s = time.monotonic() - began
    time.sleep(seconds / 4)  # leaves out the requests that workers make once after an assignment
    before = [worker.cpu_seconds() for worker in processes]
    time.sleep(seconds)
    used = [worker.cpu_seconds() - spent for worker, spent in zip(processes, before, strict=True)]
    resident = max(worker.resident_bytes() for worker in processes)
    new_ms = sorted(_new_topic_ms(testbed, group) for _ in range(NEW_TOPICS))
    for worker in processes:
        worker.terminate()
    return Idle(
        topics=topics,
        partitions=partitions,
        workers=workers,
        served_s=round(served_s, 1),
        cores=round(max(used) / seconds, 3),
        resident_mib=round(resident / 2**20, 1),
        new_topic_ms=new_ms[len(new_ms) // 2],
    )


def _new_topic_ms(testbed: Testbed, group: str) -> float:
    topic = testbed.harness.declare((0, 10, 60), partitions=3, front_partitions=1, group=group, begun=False)
    began = time.monotonic()
    topic.produce(b"first")
    topic.flush()
    wait_until(lambda: topic.released() == 1, what="the first record is out", poll_seconds=0.02)
    return round((time.monotonic() - began) * 1000)
