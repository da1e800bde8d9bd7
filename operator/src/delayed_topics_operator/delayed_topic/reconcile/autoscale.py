"""Computes the number of workers from the due lag, which is the number of records that are due and not released yet. Pure.

The number grows at once when the present workers can't catch up, and shrinks when fewer workers would have been enough for minutes. There
is a gap between the two thresholds, so that a constant load never causes both in turn.
"""

from dataclasses import replace
from math import ceil

from delayed_topics_core.words import counted
from delayed_topics_crds import WorkersScaled

from delayed_topics_operator.delayed_topic.reconcile.load import KEPT_SECONDS, LOOK_SECONDS, Interval, Load
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.plan import Finding

CATCH_UP_SECONDS = 30.0
"""The time in which workers should release the due lag, beside the records that come due meanwhile."""
MAX_UTILIZATION = 0.7
"""Workers are removed if the load of the last minutes is at most this fraction of what the remaining workers can release."""


def scaled(o: Observation) -> Observation:
    """Returns the observation with the number of workers that autoscaling wants, and with the decision if it is new."""
    bounds = o.wanted.autoscale
    if bounds is None or o.wanted.replicas == 0:
        return o  # 0 stops all workers, as it does with a HorizontalPodAutoscaler
    before = o.subject.status.workers
    known = before.wanted_replicas if before is not None else None
    most = min(bounds.max, _partitions(o) or bounds.max)
    least = min(bounds.min, most)
    present = max(least, min(most, known if known is not None else o.wanted.replicas))
    load = o.kafka.load if o.kafka is not None and not o.wanted.spec.paused else None
    replicas, why = decided(load, present, least, most) if load is not None else (present, "")
    decision = None
    if known is not None and replicas != known:
        message = why or f"spec.workers.autoscale and the number of partitions allow {least} to {most} workers"
        decision = WorkersScaled(time=o.now, from_replicas=known, to_replicas=replicas, message=message)
    return replace(o, wanted=replace(o.wanted, replicas=replicas), autoscaled=replicas, scaled=decision)


def last_scaled(o: Observation) -> WorkersScaled | None:
    """Returns the last decision, or None if there was none or the resource is no longer autoscaled."""
    before = o.subject.status.workers
    if o.autoscaled is None or before is None:
        return None
    return o.scaled or before.last_scaled


def check(o: Observation) -> Finding:
    """Has the load measured again in time."""
    return Finding(wake_seconds=LOOK_SECONDS if o.kafka is not None and o.kafka.load is not None else None)


def _partitions(o: Observation) -> int:
    """Returns the number of partitions in the registered layout: one more worker than that would have nothing to do."""
    layout = o.kafka.registered.layout if o.kafka is not None else None
    return layout.front_partitions + layout.layout.partition_count if layout is not None else 0


def decided(load: Load, present: int, least: int, most: int) -> tuple[int, str]:
    """Returns the number of workers, and the reason if it differs from `present`.

    The number is computed from how many workers there were at the looks, so that the same looks always lead to the same number.
    """
    intervals = load.unchanged()
    if not intervals:
        return present, ""  # workers stop or rebalance, or there were too few looks
    long_enough = sum(interval.seconds for interval in intervals) >= KEPT_SECONDS
    if intervals[-1].behind:
        # Workers that start are waited for, but not for longer than KEPT_SECONDS.
        starting = intervals[-1].workers < present and not long_enough
        too_slow = len(intervals) > 1 and all(_too_slow(interval) for interval in intervals[-2:])
        return _grown(intervals[-1], present, most) if too_slow and not starting else (present, "")
    if not long_enough or any(interval.behind for interval in intervals):
        return present, ""
    return _shrunk(intervals, load.worker_per_second, present, least)


def _needed(interval: Interval) -> float:
    """Returns the records per second that the workers would have to release to catch up."""
    return interval.due_per_second + interval.due_lag / CATCH_UP_SECONDS


def _too_slow(interval: Interval) -> bool:
    """Whether the workers did not catch up, and one more would have helped. That needs a partition that it could take from another worker,
    and nothing else that holds up all workers, such as a stopped broker."""
    return interval.behind and interval.shared and 0 < interval.released_per_second < _needed(interval)


def _grown(last: Interval, present: int, most: int) -> tuple[int, str]:
    message = (
        f"{last.due_lag:,} records were due and not released. {last.due_per_second:,.0f} records a second came due, and "
        f"{counted(last.workers, 'worker')} released {last.released_per_second:,.0f} a second"
    )
    return max(present, min(most, ceil(last.workers * _needed(last) / last.released_per_second))), message


def _shrunk(intervals: tuple[Interval, ...], worker_per_second: float, present: int, least: int) -> tuple[int, str]:
    """Removes at most half of the workers, so that enough are left if the estimate is wrong."""
    due_per_second, workers = max(interval.due_per_second for interval in intervals), intervals[-1].workers
    enough = ceil(due_per_second / (MAX_UTILIZATION * worker_per_second))
    message = (
        f"in the last {KEPT_SECONDS / 60:.0f} minutes at most {due_per_second:,.0f} records a second came due, and a worker can "
        f"release {worker_per_second:,.0f} a second"
    )
    return min(present, max(least, enough, workers // 2)), message
