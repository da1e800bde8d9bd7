"""What a rebalance does to those who wait for records: by the append times in the ready topic, whatever workers say of themselves."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from delayed_topics_worker_testing.generations import Generation
from numpy import percentile

__all__ = ["CALM_SECONDS", "LATE_MS", "Interruption", "Owners", "Timeline", "interruption", "moved_since", "timeline"]

LATE_MS = 100
"""From sending to the append in the ready topic: what takes longer counts as late."""
CALM_SECONDS = 3.0
"""Nothing happened for so long before the event."""
BEGIN_MS, BIN_MS = -1000, 100
"""Of a timeline."""

Owners = Mapping[tuple[str, int], str]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """How late records came, for each `bin_ms` in which they were sent: the latest of each, in ms, or None where there was none. The
    first begins `begin_ms` after the event, which is before it. `moved`, `others`: of the partitions that moved, and of the others.
    What came again does not count."""

    begin_ms: int
    bin_ms: int
    moved: Sequence[int | None]
    others: Sequence[int | None]


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """`convergence_s`: from the event until the last partition that was interrupted gave records again: one whose pause was longer than
    `floor_ms`, the longest of any partition while nothing happened, for CALM_SECONDS before the event. The pauses are the longest
    of each partition, beyond what the load itself makes: of those that had another owner, if only in between, the median and the
    longest, of the others p99. Those of a member that was started again count as moved, and so do new ones, whose pause is from the
    event to their first record. There may be none: the broker assigns the topics in turn, and what the member had may be of the
    delays topic alone.
    `late`: records that came over LATE_MS after they were sent.
    `process_up_s`: from the event until the process that it started was up. `served_after_up_s`: from then until the last of the
    partitions of this process that were interrupted gave records again; None if none was."""

    convergence_s: float
    moved: int
    moved_pause_ms: float | None
    moved_pause_most_ms: float | None
    undisturbed_pause_p99_ms: float
    floor_ms: float
    late: int
    process_up_s: float | None
    served_after_up_s: float | None
    timeline: Timeline


def moved_since(before: Owners, generations: Sequence[Generation], *, event_ms: int) -> frozenset[tuple[str, int]]:
    """Those that somebody got in a generation since the event who did not have them then. `generations`: as Kafka has noted them."""
    owners = dict(before)
    moved: set[tuple[str, int]] = set()
    for generation in generations:
        if generation.at_ms >= event_ms:
            moved |= {place for place, owner in generation.owners.items() if owners.get(place) != owner}
            owners |= generation.owners
    return frozenset(moved)


def interruption(
    appends_ms: Mapping[int, Sequence[int]],
    sent_ms: Mapping[int, Sequence[int]],
    *,
    event_ms: int,
    moved: frozenset[int],
    interval_ms: float,
    own: frozenset[int] = frozenset(),
    up_ms: int | None = None,
) -> Interruption:
    """`appends_ms`, `sent_ms`: of the records of each partition of the ready topic, in their order, from before the event to long after.
    `own`: the partitions of the process that the event started. `up_ms`: when that was up."""
    floor_ms = interval_ms
    for times in appends_ms.values():
        calm = times[bisect_left(times, event_ms - CALM_SECONDS * 1000) : bisect_left(times, event_ms)]
        floor_ms = max(floor_ms, *(after - before for before, after in pairwise(calm)), 0)
    longest = {p: _longest_pause(times, event_ms, ended_ms=event_ms) for p, times in appends_ms.items()}
    pauses = {partition: max(0.0, pause - interval_ms) for partition, (pause, _) in longest.items()}
    resumed_ms = _resumed_ms(longest.values(), floor_ms)
    up_s = served_s = None
    if up_ms is not None:
        up_s = (up_ms - event_ms) / 1000
        # one that ended before was not for want of the process
        waited = [_longest_pause(appends_ms[partition], event_ms, ended_ms=up_ms) for partition in own]
        own_resumed_ms = _resumed_ms(waited, floor_ms)
        served_s = None if own_resumed_ms is None else (own_resumed_ms - up_ms) / 1000
    of_moved = sorted(pauses[p] for p in pauses if p in moved)
    others = sorted(pauses[p] for p in pauses if p not in moved)
    late = sum(
        append - sent > LATE_MS
        for partition, times in appends_ms.items()
        for append, sent in zip(times, sent_ms[partition], strict=True)
        if append >= event_ms
    )
    return Interruption(
        convergence_s=((resumed_ms or event_ms) - event_ms) / 1000,
        moved=len(moved),
        moved_pause_ms=median(of_moved) if of_moved else None,
        moved_pause_most_ms=max(of_moved, default=None),
        undisturbed_pause_p99_ms=float(percentile(others, 99)) if others else 0.0,
        floor_ms=floor_ms - interval_ms,
        late=late,
        process_up_s=up_s,
        served_after_up_s=served_s,
        timeline=timeline(appends_ms, sent_ms, event_ms=event_ms, moved=moved),
    )


def _longest_pause(times: Sequence[int], event_ms: int, *, ended_ms: int) -> tuple[int, int]:
    """Of those since the event that ended at that time or later: how long it was, and when it ended."""
    begin = bisect_left(times, event_ms) - 1
    since = times[begin:] if begin >= 0 else [event_ms, *times]
    ended = ((after - before, after) for before, after in pairwise(since) if after >= ended_ms)
    return max(ended, default=(0, event_ms))


def _resumed_ms(pauses: Iterable[tuple[int, int]], floor_ms: float) -> int | None:
    """When the last of those that are longer than the floor ended."""
    return max((ended for pause, ended in pauses if pause > floor_ms), default=None)


def timeline(
    appends_ms: Mapping[int, Sequence[int]],
    sent_ms: Mapping[int, Sequence[int]],
    *,
    event_ms: int,
    moved: frozenset[int],
) -> Timeline:
    """Of the same as `interruption`, until the last record was sent."""
    begin_ms = event_ms + BEGIN_MS
    latest: dict[bool, dict[int, int]] = {True: {}, False: {}}
    for partition, appends in appends_ms.items():
        bins = latest[partition in moved]
        first = dict(zip(reversed(sent_ms[partition]), reversed(appends), strict=True))
        for sent, append in first.items():
            n = (sent - begin_ms) // BIN_MS
            bins[n] = max(bins.get(n, 0), append - sent)
    numbers = range(1 + max((n for bins in latest.values() for n in bins), default=-1))
    moved_line, others_line = ([latest[has].get(n) for n in numbers] for has in (True, False))
    return Timeline(begin_ms=BEGIN_MS, bin_ms=BIN_MS, moved=moved_line, others=others_line)
