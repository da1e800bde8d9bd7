"""How many workers there are to be, by the records that are due and not released yet. Pure.

It grows at once when the workers there are can't catch up, and shrinks when fewer have done for minutes. Between the two lies a gap, so
that a load that stays as it is, wherever it is, never makes it do both in turn.
"""

from dataclasses import replace
from math import ceil

from delayed_topics_core.words import counted
from delayed_topics_crds import WorkersScaled

from delayed_topics_operator.delayed_topic.reconcile.load import KEPT_SECONDS, LOOK_SECONDS, Interval, Load
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.plan import Finding

CATCH_UP_SECONDS = 30.0
"""Within which what is due shall be released, beside what comes due meanwhile."""
USED = 0.7
"""Of what the workers that stay can do, how much the load of the last minutes may be, so that others go."""


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
    """The last decision. None: there was none, or it is not autoscaling that decides any more."""
    before = o.subject.status.workers
    if o.autoscaled is None or before is None:
        return None
    return o.scaled or before.last_scaled


def check(o: Observation) -> Finding:
    """Looks again in time."""
    return Finding(wake_seconds=LOOK_SECONDS if o.kafka is not None and o.kafka.load is not None else None)


def _partitions(o: Observation) -> int:
    """That are served: a worker more would have nothing to do."""
    layout = o.kafka.registered.layout if o.kafka is not None else None
    return layout.front_partitions + layout.layout.partition_count if layout is not None else 0


def decided(load: Load, present: int, least: int, most: int) -> tuple[int, str]:
    """How many, and why if that is another number than `present`.

    It is computed from how many workers there were, so that the same looks always lead to the same number.
    """
    seen = load.unchanged()
    if not seen:
        return present, ""  # some stop or rebalance, or there were too few looks
    long = sum(interval.seconds for interval in seen) >= KEPT_SECONDS
    if seen[-1].behind:
        start = seen[-1].workers < present and not long  # in the end it is taken that they don't come
        too_slow = len(seen) > 1 and all(_too_slow(interval) for interval in seen[-2:])
        return _grown(seen[-1], present, most) if too_slow and not start else (present, "")
    if not long or any(interval.behind for interval in seen):
        return present, ""
    return _shrunk(seen, load.worker_per_second, present, least)


def _needed(interval: Interval) -> float:
    """Records that would have to be released in a second."""
    return interval.due_per_second + interval.due_lag / CATCH_UP_SECONDS


def _too_slow(interval: Interval) -> bool:
    """Whether its workers did not catch up, and one more would have helped: one could take a partition from another, and there is nothing
    else that keeps them all from releasing, as a stopped broker does."""
    return interval.behind and interval.shared and 0 < interval.released_per_second < _needed(interval)


def _grown(last: Interval, present: int, most: int) -> tuple[int, str]:
    message = (
        f"{last.due_lag:,} records were due and not released. {last.due_per_second:,.0f} records a second came due, and "
        f"{counted(last.workers, 'worker')} released {last.released_per_second:,.0f} a second"
    )
    return max(present, min(most, ceil(last.workers * _needed(last) / last.released_per_second))), message


def _shrunk(seen: tuple[Interval, ...], worker_per_second: float, present: int, least: int) -> tuple[int, str]:
    """Removes at most half of the workers, so that enough are left if the estimate is wrong."""
    due_per_second, workers = max(interval.due_per_second for interval in seen), seen[-1].workers
    enough = ceil(due_per_second / (USED * worker_per_second))
    message = (
        f"in the last {KEPT_SECONDS / 60:.0f} minutes at most {due_per_second:,.0f} records a second came due, and a worker can "
        f"release {worker_per_second:,.0f} a second"
    )
    return min(present, max(least, enough, workers // 2)), message
