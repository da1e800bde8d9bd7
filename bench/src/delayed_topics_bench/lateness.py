"""How late records are at a steady rate: from their due time to their receipt by a consumer of the ready topic."""

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from delayed_topics_kafka.model import NewTopicSpec

from delayed_topics_bench.samples import Samples, Verdict, judge, percentiles
from delayed_topics_bench.stand import PARTITIONS, Stand

__all__ = ["Late", "lateness", "warm"]

IDLE_SECONDS = 30
"""Beyond the longest delay. What has not come when nothing has come for so long is lost."""
PATIENCE_SECONDS = 180
"""What has not come by then, while others still come, is unfinished: a rate that can't be kept up with."""
VALID_ACK_MS = 15.0


@dataclass(frozen=True, kw_only=True)
class Late:
    """Milliseconds by percentile. `late`: from the broker's append time + delay; `by_delay`: the same, by delay in seconds;
    `from_send`: from the sending + delay. `ack_p999_ms`: the broker's own, of single records to a topic of their own.
    `unfinished`: had not come when patience ended, while others still came."""

    late: dict[str, float]
    by_delay: dict[int, dict[str, float]]
    from_send: dict[str, float]
    ack_p999_ms: float
    unfinished: int = 0
    verdict: Verdict

    @property
    def valid(self) -> bool:
        return self.ack_p999_ms <= VALID_ACK_MS


def lateness(
    stand: Stand, *, rate: int, warm_seconds: int, seconds: int, size: int, workers: int, delay_seconds: Sequence[int]
) -> Late:
    """The delays in turn, record by record. What is sent in the `warm_seconds` is checked and not counted."""
    acks = f"acks-{uuid.uuid4().hex[:8]}"
    stand.world.admin.create_topics([NewTopicSpec(name=acks, partitions=1, replication_factor=1, config={})])
    kinds = len(delay_seconds)
    with ExitStack() as stack:
        topic = stack.enter_context(stand.declared(delay_seconds, lanes=PARTITIONS // kinds))
        stack.enter_context(stand.workers(topic, workers))
        directory = stand.new_directory()
        program = stack.enter_context(
            stand.java(
                "Steady",
                topic=topic.names.front,
                ready=topic.names.ready,
                acks=acks,
                rate=rate,
                seconds=warm_seconds + seconds,
                size=size,
                idle_seconds=max(delay_seconds) + IDLE_SECONDS,
                patience_seconds=max(delay_seconds) + PATIENCE_SECONDS,
                levels=",".join(str(n + 1) for n in range(kinds)),
                directory=directory,
            )
        )
        most = warm_seconds + seconds + max(delay_seconds) + PATIENCE_SECONDS
        unfinished = "unfinished" in program.expect("done", timeout_seconds=30.0 + most)
    stand.world.admin.delete_topics([acks])
    late = _judged(
        Samples.read(directory),
        Samples.read(directory / "acks"),
        sent_before=warm_seconds * rate,
        delay_seconds=delay_seconds,
    )
    if not unfinished:
        return late
    return replace(late, unfinished=late.verdict.lost, verdict=replace(late.verdict, lost=0))


def warm(samples: Samples, *, sent_before: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """By number: whether it counts."""
    return np.arange(len(samples.sent)) >= sent_before


def _judged(samples: Samples, acks: Samples, *, sent_before: int, delay_seconds: Sequence[int]) -> Late:
    kinds = len(delay_seconds)
    numbers = np.arange(len(samples.sent))
    counted = warm(samples, sent_before=sent_before)
    delay_us = np.array(delay_seconds)[numbers % kinds] * 1_000_000
    due_us = samples.stamp_us + delay_us
    late = {
        delay: percentiles(samples.late_us(due_us, numbers=counted & (numbers % kinds == n)))
        for n, delay in enumerate(delay_seconds)
    }
    acked = acks.sent[acks.acked]
    acked = acked[acked["sent_us"] >= samples.sent["sent_us"][counted].min()]
    return Late(
        late=percentiles(samples.late_us(due_us, numbers=counted)),
        by_delay=late,
        from_send=percentiles(samples.late_us(samples.sent["sent_us"] + delay_us, numbers=counted)),
        ack_p999_ms=percentiles(acked["acked_us"] - acked["sent_us"]).get("p999", float("inf")),
        verdict=judge(samples, due_us=due_us, kinds=kinds),
    )
