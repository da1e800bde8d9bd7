"""Learns from the offsets of the owned partitions how many records wait, which of them retention may remove unreleased, and which can't be
read."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from delayed_topics_core.reasons import Reason
from delayed_topics_core.settings import least_retention_seconds
from delayed_topics_kafka.admin import KafkaAdmin

from delayed_topics_worker.alarms import (
    Alarm,
    AtRisk,
    RefusedCommit,
    Unreadable,
    of_refused_commits,
    of_retention,
    of_unreadable,
)
from delayed_topics_worker.assigned import AssignedPartition
from delayed_topics_worker.known_offsets import KnownOffsets
from delayed_topics_worker.pending import Pending, PendingWatch, Unfinished
from delayed_topics_worker.retention import RetentionWatch, Unreleased
from delayed_topics_worker.unreadable import UNREADABLE_SECONDS, SilentPartitions, Span

LOOK_SECONDS: Final = 30.0
TIMELESS_SECONDS: Final = 10.0
"""If the broker's time is not fresh by then, the estimate from the last clock probe is used."""

Spans = Mapping[AssignedPartition, Span]


class OffsetWatch:
    """Belongs to the worker's thread. Other threads ask Kafka."""

    def __init__(self, admin: KafkaAdmin, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._retention = RetentionWatch(admin)
        self._pending = PendingWatch(admin)
        self._known = KnownOffsets(admin)
        self._silence = SilentPartitions()
        self._look_at = time.monotonic() + TIMELESS_SECONDS
        self._looked_at_generation: int | None = None

    def start(self) -> None:
        self._retention.start()
        self._pending.start()
        self._known.start()

    def close(self) -> None:
        self._retention.close()
        self._pending.close()
        self._known.close()

    @property
    def pending(self) -> Pending:
        """The latest counts."""
        return self._pending.found

    def alarms(self, spans: Spans, *, generation: int, now_ms: int, clock_fresh: bool) -> list[Alarm]:
        """`spans`: by owned partition, for all of them. `generation`: see `Assignment`. `now_ms`: the broker's time; an estimate unless
        `clock_fresh`."""
        now = time.monotonic()
        if (spans or self.pending) and (
            now >= self._look_at or (clock_fresh and generation != self._looked_at_generation)
        ):
            self._look_at = now + LOOK_SECONDS
            self._looked_at_generation = generation
            unreleased = [u for owned, span in spans.items() if (u := _unreleased(owned, span))]
            self._retention.look(unreleased, now_ms)
            self._pending.look([one for owned in spans if (one := _unfinished(owned))], now_ms)
        of_reading = of_retention(self._at_risk(spans), now_ms) + of_unreadable(self._unreadable(spans, now))
        return of_reading + of_refused_commits(_refused_commits(spans))

    def _at_risk(self, spans: Spans) -> list[AtRisk]:
        risks = self._retention.risks
        return [
            AtRisk(owned, max(offset, risk.first), risk)  # offsets below `first` were removed already
            for owned in spans
            if (risk := risks.get(owned.place))
            and (offset := _first_at_stake(owned)) is not None
            and offset < risk.below
        ]

    def _unreadable(self, spans: Spans, now: float) -> list[Unreadable]:
        by_place = {owned.place: owned for owned in spans}
        silent = self._silence.look(
            {owned.place: span for owned, span in spans.items() if _is_read(owned)},
            [owned.place for owned in spans if owned.seen and owned.seen.state == "settling" and owned.stop is None],
            now=now,
        )
        self._known.look([s.place for s in silent])
        found = self._known.found
        return [
            Unreadable(by_place[s.place], s.span, s.seconds, found.get(s.place), self._bootstrap_servers)
            for s in silent
            if s.seconds >= UNREADABLE_SECONDS
        ]


def _refused_commits(partitions: Iterable[AssignedPartition]) -> list[RefusedCommit]:
    errors = ((owned, owned.seen.commit_error) for owned in partitions if owned.seen)
    return [RefusedCommit(owned, error) for owned, error in errors if error is not None]


def _is_read(owned: AssignedPartition) -> bool:
    return (
        owned.seen is not None and owned.seen.state in ("placed", "serving", "unreadable") and not owned.seen.held_back
    )


def _first_unreleased(owned: AssignedPartition) -> int | None:
    """Returns None if it is not known."""
    if owned.begun:
        return owned.seen.lowest_unfinished if owned.seen and owned.seen.state != "unplaced" else None
    return owned.committed.offset if owned.committed is not None and owned.committed.offset >= 0 else None


def _first_at_stake(owned: AssignedPartition) -> int | None:
    """Returns the first offset that retention may remove unreleased. Without a commit no one knows what was released, so all offsets from
    the registered start on count."""
    if owned.stop is None or owned.stop.reason is not Reason.COMMIT_MISSING:
        return _first_unreleased(owned)
    starts = owned.served.topics.start_offsets.get(owned.topic, ()) if owned.served.topics else ()
    return starts[owned.partition] if owned.partition < len(starts) else None


def _unfinished(owned: AssignedPartition) -> Unfinished | None:
    """Returns None for a front partition, or if nothing is known."""
    offset, delay_seconds = _first_unreleased(owned), owned.delay_seconds
    if offset is None or delay_seconds is None:
        return None
    return Unfinished(owned.served.topic, owned.place, delay_seconds, offset)


def _unreleased(owned: AssignedPartition, span: Span) -> Unreleased | None:
    """Returns None if all records of the partition are released, or if nothing is known."""
    layout, offset = owned.served.layout, _first_at_stake(owned)
    if layout is None or offset is None or (_is_read(owned) and offset == span.position and 0 <= span.end <= offset):
        return None
    least_seconds = least_retention_seconds(tuple(kind.delay_seconds for kind in layout.layout.kinds))
    return Unreleased(owned.place, offset, (owned.delay_seconds or 0) * 1000, least_seconds * 1000)
