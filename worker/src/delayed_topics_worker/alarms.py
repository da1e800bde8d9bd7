"""What a person has to know: raised and cleared as events, shown in /status, counted as metrics."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.owned import Owned
from delayed_topics_worker.retention import Risk
from delayed_topics_worker.topic_watch import Sight

log = logging.getLogger(__name__)


class Alarm(NamedTuple):
    """`topic`: the front topic."""

    topic: str
    reason: Reason
    message: str


class AtRisk(NamedTuple):
    """`offset`: the first that is not released."""

    owned: Owned
    offset: int
    risk: Risk


class Standstill:
    """Since when nothing has been done for topics that have something to do. `now`: seconds of any steady clock."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def seconds(self, topic: str, *, done: int, lag: int, now: float) -> float:
        """`done`: how much so far. `lag`: how much could be done now; 0 is no standstill."""
        before, since = self._last.get(topic, (done, now))
        if done != before or not lag:
            since = now
        self._last[topic] = done, since
        return now - since


class Alarms:
    """Those that are raised now; `update` tells what has changed."""

    def __init__(self, on_change: Callable[[Alarm, bool], None]) -> None:
        """`on_change` gets the alarm, and whether it is raised or cleared."""
        self._on_change = on_change
        self._raised: dict[tuple[str, Reason], Alarm] = {}

    @property
    def raised(self) -> list[Alarm]:
        return list(self._raised.values())

    def update(self, now_raised: Iterable[Alarm]) -> None:
        current = {(alarm.topic, alarm.reason): alarm for alarm in now_raised}
        for key, alarm in self._raised.items():
            if key not in current:
                log.info("cleared: %s of %s", alarm.reason, alarm.topic)
                self._on_change(alarm, False)
        for key, alarm in current.items():
            if key not in self._raised:
                log.warning("alarm %s of %s: %s", alarm.reason, alarm.topic, alarm.message)
                self._on_change(alarm, True)
        self._raised = current


def of_partitions(owned: Iterable[Owned]) -> list[Alarm]:
    """One alarm for each topic and reason, in the words of its first partition."""
    stopped: dict[tuple[str, Reason], list[tuple[str, int, str]]] = {}
    for o in owned:
        stop = o.stop or o.tried
        if stop is not None:
            stopped.setdefault((o.served.topic, stop.reason), []).append((o.topic, o.partition, stop.message))
    return [_alarm(topic, reason, partitions) for (topic, reason), partitions in stopped.items()]


def _alarm(topic: str, reason: Reason, stopped: list[tuple[str, int, str]]) -> Alarm:
    _, _, message = min(stopped)
    return Alarm(topic, reason, message + _further(stopped))


def of_unacknowledged(owned: Iterable[Owned], seconds: float, sight: Sight) -> list[Alarm]:
    """`seconds`: for how long copies have been on their way. Told of the topics that the copies go to, and of those only whose
    replicas are out of sync, where any are: they hold up the others."""
    targets: dict[str, set[str]] = {}
    for o in owned:
        if o.outstanding:
            targets.setdefault(o.served.topic, set()).update(held.target for held in o.outstanding)
    lagging = {
        name: info.lagging for name, info in sight.topics.items() if isinstance(info, TopicInfo) and info.lagging
    }
    blamed = {topic: names & lagging.keys() for topic, names in targets.items() if names & lagging.keys()} or targets
    return [
        Alarm(
            topic,
            Reason.TARGET_UNAVAILABLE,
            f"copies to {', '.join(sorted(names))} are not acknowledged since {seconds:.0f} s"
            + "".join(
                f"; {name} {list(lagging[name])} has replicas out of sync" for name in sorted(names & lagging.keys())
            )
            + ". Nothing is released until they are: see whether the brokers are up, have min.insync.replicas, and no quota",
        )
        for topic, names in blamed.items()
    ]


def of_refusals(topics: Iterable[str], refusals: Mapping[Reason, str | None]) -> list[Alarm]:
    """What concerns the whole worker is said for each of its topics."""
    return [Alarm(topic, reason, text) for reason, text in refusals.items() if text for topic in topics]


def of_retention(at_risk: Iterable[AtRisk], now_ms: int) -> list[Alarm]:
    """One alarm for each topic, of the record that may go first. `now_ms`: the broker's time."""
    found: dict[str, list[AtRisk]] = {}
    for partition in at_risk:
        found.setdefault(partition.owned.served.topic, []).append(partition)
    first = {topic: min(parts, key=lambda part: part.risk.removable_at_ms) for topic, parts in found.items()}
    return [
        Alarm(topic, Reason.RETENTION_AT_RISK, _of_risk(first[topic], now_ms) + _further(found[topic]))
        for topic in found
    ]


def _of_risk(at_risk: AtRisk, now_ms: int) -> str:
    owned, offset, risk = at_risk
    left_ms = risk.removable_at_ms - now_ms
    at = datetime.fromtimestamp(risk.removable_at_ms / 1000, UTC)
    when = f"from {at:%Y-%m-%d %H:%M:%S} UTC on, in {lasting(left_ms)}" if left_ms > 0 else "at any moment"
    kept = f"the topic keeps records for {lasting(risk.retention_ms)}"
    if not risk.retention_told:
        kept += " at least; this worker may not read its retention.ms, grant it DescribeConfigs to be told exactly"
    elif risk.delay_ms >= risk.retention_ms:
        kept += f", and they wait here for {lasting(risk.delay_ms)}"
    if owned.served.paused:
        cure = "end the pause (spec.paused)"
    else:
        cure = "have them released before: other alarms and the worker's log say what is wrong, more workers help those behind"
    return (
        f"unreleased records of {owned} are near the end of retention: Kafka may remove offset {offset} {when} ({kept}). "
        f"Raise outageBudgetSeconds of the DelayedTopic to keep them for longer, or {cure}"
    )


def _further(partitions: Sequence[object]) -> str:
    """That the first is not the only one."""
    more = len(partitions) - 1
    return f" (and {more} more partition{'s' if more > 1 else ''})" if more else ""


def lasting(ms: int) -> str:
    """12 s, 90 min, 6.5 h, 3 days."""
    for unit_ms, unit in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * unit_ms:
            units = ms / unit_ms
            return f"{units:.0f} {unit}" if units >= 10 else f"{units:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms / 1000:.0f} s"
