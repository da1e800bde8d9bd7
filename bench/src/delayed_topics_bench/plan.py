"""The sizes, rates and durations of a run of the benchmark."""

import os
from dataclasses import dataclass

__all__ = ["DEFAULT", "QUICK", "SIZE", "Plan"]

SIZE = 100
"""Bytes of a value, unless another size is given."""
MAX_BACKLOG_BYTES = 600_000_000
MAX_CEILING_BYTES = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one run of the benchmark does.

    `strict`: a run that is not valid is repeated, and is not kept if none is valid. `sizes`: bytes of a value. `records`: records of a
    backlog, fewer if values are large. `ceiling_records`: records for Kafka's own tools, which have to warm up first. `seconds`: how
    long each rate is kept. `replicated_rates`: those of three brokers. `warm_seconds`: the time before that, which doesn't count; until
    then, the broker's JVM compiles, for 36 s of both cores at 1,000/s. `peers`: empty for all. `members`, `shared_partitions`: of the
    groups that are rebalanced. `idle_topics`: topics that do nothing for `idle_seconds`, with one worker for each 250 of them.
    `quiet_rate`, `noisy_rates`: records a second of two topics that share a worker.
    """

    runs: int = 3
    strict: bool = True
    sizes: tuple[int, ...] = (100, 1000)
    records: int = 1_800_000
    ceiling_records: int = 8_000_000
    workers: tuple[int, ...] = (1, 2)
    rates: tuple[int, ...] = (1_000, 10_000, 50_000)
    replicated_rates: tuple[int, ...] = (100, 300)
    seconds: int = 30
    warm_seconds: int = 40
    burst_records: int = 1_000_000
    held_records: int = 1_000_000
    cpu_records: int = 1_800_000
    peers: tuple[str, ...] = ()
    peer_rates: tuple[int, ...] = (1_000, 10_000)
    peer_seconds: int = 20
    members: tuple[int, ...] = (2, 10)
    shared_partitions: int = 60
    idle_topics: tuple[int, ...] = (10, 250, 1_000)
    idle_seconds: int = 60
    quiet_rate: int = 200
    noisy_rates: tuple[int, ...] = (1_000, 10_000)

    @property
    def cores(self) -> int:
        """The number of worker processes unless another is given: one for each core."""
        return os.cpu_count() or 1

    def records_of(self, size: int) -> int:
        return min(self.records, MAX_BACKLOG_BYTES // size)

    def ceiling_records_of(self, size: int) -> int:
        return min(self.ceiling_records, MAX_CEILING_BYTES // size)


DEFAULT = Plan()
QUICK = Plan(
    runs=1,
    strict=False,
    sizes=(100,),
    records=100_000,
    ceiling_records=1_000_000,
    rates=(1_000, 10_000),
    seconds=5,
    warm_seconds=5,
    burst_records=100_000,
    held_records=50_000,
    cpu_records=50_000,
    peer_seconds=8,
    members=(2,),
    shared_partitions=12,
    idle_topics=(10,),
    idle_seconds=4,
    noisy_rates=(1_000,),
)
