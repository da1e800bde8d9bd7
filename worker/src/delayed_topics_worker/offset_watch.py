"""What the offsets of the owned partitions tell: records that retention may remove unreleased, and ones that can't be read."""

import time
from collections.abc import Mapping
from typing import Final

from delayed_topics_core.settings import least_retention_seconds
from delayed_topics_kafka.admin import KafkaAdmin
from delayed_topics_kafka.model import TopicPartitionKey

from delayed_topics_worker.alarms import Alarm, AtRisk, Unreadable, of_retention, of_unreadable
from delayed_topics_worker.owned import Owned
from delayed_topics_worker.retention import LOOK_SECONDS, RetentionWatch, Unreleased
from delayed_topics_worker.unreadable import UNREADABLE_SECONDS, Silence, Span, StableEnds

TIMELESS_SECONDS: Final = 10.0
"""When the broker's time isn't known by then, the worker's own has to do."""

Spans = Mapping[Owned, Span]


class OffsetWatch:
    """Belongs to the worker's thread; Kafka is asked on others."""

    def __init__(self, admin: KafkaAdmin, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._retention = RetentionWatch(admin)
        self._stable_ends = StableEnds(admin)
        self._silence = Silence()
        self._look_at = time.monotonic() + TIMELESS_SECONDS
        self._looked_at_generation: int | None = None

    def start(self) -> None:
        self._retention.start()
        self._stable_ends.start()

    def close(self) -> None:
        self._retention.close()
        self._stable_ends.close()

    def alarms(self, spans: Spans, *, generation: int, now_ms: int, clock_fresh: bool) -> list[Alarm]:
        """`spans`: of all owned partitions. `generation`: of the assignment. `now_ms`: the broker's time, an estimate of it
        unless `clock_fresh`."""
        now = time.monotonic()
        if spans and (now >= self._look_at or (clock_fresh and generation != self._looked_at_generation)):
            self._look_at = now + LOOK_SECONDS
            self._looked_at_generation = generation
            unreleased = [u for owned, span in spans.items() if (u := _unreleased(owned, span))]
            self._retention.look(unreleased, now_ms)
        return of_retention(self._at_risk(spans), now_ms) + of_unreadable(self._unreadable(spans, now))

    def _at_risk(self, spans: Spans) -> list[AtRisk]:
        risks = self._retention.risks
        found = ((owned, risks[place]) for owned in spans if (place := _place(owned)) in risks) if risks else ()
        return [
            AtRisk(owned, offset, risk)
            for owned, risk in found
            if (offset := _first_unreleased(owned)) is not None and offset < risk.below
        ]

    def _unreadable(self, spans: Spans, now: float) -> list[Unreadable]:
        by_place = {_place(owned): owned for owned in spans}
        silent = self._silence.look(
            {_place(owned): span for owned, span in spans.items() if owned.takes_in and not owned.paused},
            [place for place, owned in by_place.items() if owned.rewinding and owned.stop is None],
            now=now,
        )
        self._stable_ends.look([s.place for s in silent])
        ends = self._stable_ends.ends
        return [
            Unreadable(by_place[s.place], s.span, s.seconds, ends.get(s.place), self._bootstrap_servers)
            for s in silent
            if s.seconds >= UNREADABLE_SECONDS
        ]


def _place(owned: Owned) -> TopicPartitionKey:
    return owned.topic, owned.partition


def _first_unreleased(owned: Owned) -> int | None:
    """None: it isn't known."""
    if owned.window is not None:
        return None if owned.void else owned.window.lowest_unfinished
    return owned.committed.offset if owned.committed is not None and owned.committed.offset >= 0 else None


def _unreleased(owned: Owned, span: Span) -> Unreleased | None:
    """None: everything that the partition has is released, or nothing is known."""
    layout, offset = owned.served.layout, _first_unreleased(owned)
    if layout is None or offset is None:
        return None
    if (
        owned.takes_in
        and owned.window is not None
        and offset == owned.window.position
        and 0 <= span.end <= span.position
    ):
        return None
    delays = layout.layout.partition_delays
    delay_seconds = delays[owned.partition] if owned.door == "d" and owned.partition < len(delays) else 0
    least_seconds = least_retention_seconds(tuple(kind.delay_seconds for kind in layout.layout.kinds))
    return Unreleased(_place(owned), offset, delay_seconds * 1000, least_seconds * 1000)
