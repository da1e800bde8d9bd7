"""Computes what a rebalance does to consumers, from the append times in the ready topic and not from what workers report."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from delayed_topics_worker_testing.generations import Generation
from numpy import percentile

__all__ = ["CALM_SECONDS", "LATE_MS", "Interruption", "Owners", "Timeline", "interruption", "moved_since", "timeline"]

LATE_MS = 100
"""A record that takes longer than this from sending to the append in the ready topic counts as late."""
CALM_SECONDS = 3.0
"""How long nothing happens before the event."""
BEGIN_MS, BIN_MS = -1000, 100
"""When a timeline begins, relative to the event, and the width of its bins."""

Owners = Mapping[tuple[str, int], str]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """How late records came, by the time at which they were sent. Only the first copy of a record counts.

    Each value is the largest lateness, in ms, of the records sent within `bin_ms`, or None if there was none. The first bin begins at
    `begin_ms` relative to the event, which is before it. `moved`: the partitions that moved; `others`: all other partitions.
    """

    begin_ms: int
    bin_ms: int
    moved: Sequence[int | None]
    others: Sequence[int | None]


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """What a rebalance did. A pause is the longest one of a partition, less the interval of the load.

    `convergence_s`: from the event until the last interrupted partition gave records again. A partition was interrupted if its pause was
    longer than `floor_ms`, the longest pause of any partition in the CALM_SECONDS before the event, when nothing happened.
    `moved`: the number of partitions that had another owner, if only in between. Those of a member that was started again count as moved,
    and so do new ones, whose pause lasts from the event to their first record. There may be none: the broker assigns the topics in turn,
    and the member may have had partitions of the delays topic only.
    `moved_pause_ms`, `moved_pause_most_ms`: the median and the longest pause of these partitions.
    `undisturbed_pause_p99_ms`: p99 of the pauses of all other partitions.
    `late`: records that came more than LATE_MS after they were sent.
    `process_up_s`: from the event until the process that it started was up. `served_after_up_s`: from then until the last interrupted
    partition of this process gave records again; None if none was interrupted.
    """

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
    """Returns the partitions that got a new owner in a generation since the event. `generations`: as Kafka has recorded them."""
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
    """Computes what the rebalance of an event did.

    `appends_ms`, `sent_ms`: the append and sending times of the records of each partition of the ready topic, in their order, from before
    the event to long after it. `interval_ms`: the interval of the load. `own`: the partitions of the process that the event started.
    `up_ms`: when this process was up.
    """
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
        # a pause that ended before the process was up had another reason
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
    """Returns the length and the end of the longest pause since the event that ended at `ended_ms` or later."""
    begin = bisect_left(times, event_ms) - 1
    since = times[begin:] if begin >= 0 else [event_ms, *times]
    ended = ((after - before, after) for before, after in pairwise(since) if after >= ended_ms)
    return max(ended, default=(0, event_ms))


def _resumed_ms(pauses: Iterable[tuple[int, int]], floor_ms: float) -> int | None:
    """Returns the end of the last pause that was longer than the floor, or None if none was."""
    return max((ended for pause, ended in pauses if pause > floor_ms), default=None)


def timeline(
    appends_ms: Mapping[int, Sequence[int]],
    sent_ms: Mapping[int, Sequence[int]],
    *,
    event_ms: int,
    moved: frozenset[int],
) -> Timeline:
    """Computes the timeline until the last record was sent. The arguments are those of `interruption`."""
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
