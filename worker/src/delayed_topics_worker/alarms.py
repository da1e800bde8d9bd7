"""What people have to know. Alarms are raised and cleared as events, shown in /status, and counted as metrics."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.reasons import Reason
from delayed_topics_kafka.errors import KafkaCallError
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_worker.assigned import AssignedPartition
from delayed_topics_worker.known_offsets import Offsets
from delayed_topics_worker.retention import Risk
from delayed_topics_worker.served import Served
from delayed_topics_worker.topic_watch import TopicsSnapshot
from delayed_topics_worker.unreadable import Span

log = logging.getLogger(__name__)

STUCK_SECONDS: Final = 3.0
"""Time without an acknowledgement, although copies are in flight."""
UNASSIGNED_SECONDS: Final = 30.0
REPEAT_SECONDS: Final = 86_400.0
"""The interval at which raised alarms are repeated. Kafka keeps events for a week, so later readers would not know of the alarms."""
LOST_REPEAT_SECONDS: Final = 60.0
"""The shortest interval at which events that may have been lost are repeated."""
CHANGE_REPEAT_SECONDS: Final = 60.0
"""The shortest interval at which an alarm is repeated because its gist has changed."""


class Alarm(NamedTuple):
    """`topic`: the front topic. `about`: what the message says, without amounts that change all the time, such as seconds; empty if it has
    none of these."""

    topic: str
    reason: Reason
    message: str
    about: tuple[str, ...] = ()

    @property
    def gist(self) -> tuple[str, ...]:
        """The alarm is worth repeating when this has changed."""
        return self.about or (self.message,)


class AtRisk(NamedTuple):
    """A partition with records at risk. `offset`: the first that is not released."""

    owned: AssignedPartition
    offset: int
    risk: Risk


class Unreadable(NamedTuple):
    """A partition that has delivered nothing for `seconds`. `offsets`: those that Kafka says it has; None while that is not known."""

    owned: AssignedPartition
    span: Span
    seconds: float
    offsets: Offsets | KafkaCallError | None
    bootstrap_servers: str


class RefusedCommit(NamedTuple):
    """A partition whose commits Kafka refuses."""

    owned: AssignedPartition
    error: str


class StallTimes:
    """Measures for how long nothing has been done for topics with work to do. `now`: seconds of any steady clock."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, float]] = {}

    def seconds(self, topic: str, *, done: int, lag: int, now: float) -> float:
        """`done`: the work done so far. `lag`: the work that could be done now; 0 is no standstill."""
        before, since = self._last.get(topic, (done, now))
        if done != before or not lag:
            since = now
        self._last[topic] = done, since
        return now - since

    def forget(self, topic: str) -> None:
        self._last.pop(topic, None)


class RecentRise:
    """Whether a topic's count has risen within the last `seconds`. `now`: seconds of any steady clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[str, tuple[int, float]] = {}

    def has_risen(self, topic: str, count: int, *, now: float) -> bool:
        before, at = self._last.get(topic, (0, float("-inf")))
        if count > before:
            at = now
        self._last[topic] = count, at
        return now - at < self._seconds


Key = tuple[str, Reason]


class Alarms:
    """The alarms that are raised now. `update` reports which come and go."""

    def __init__(self, on_change: Callable[[Alarm, bool], None], *, now: float) -> None:
        """`on_change` gets the alarm, and whether it is raised or cleared. `now`: seconds of any steady clock."""
        self._on_change = on_change
        self._raised: dict[Key, Alarm] = {}
        self._reported: dict[Key, tuple[tuple[str, ...], float]] = {}
        """The gist of each raised alarm as it was last reported, and when."""
        self._cleared: dict[Key, Alarm] = {}
        """Cleared alarms that may have to be repeated."""
        self._all_repeated_at = now
        self.lost = 0
        """The number of events that could not be written by the time when all alarms were last repeated."""

    @property
    def raised(self) -> list[Alarm]:
        return list(self._raised.values())

    def update(self, now_raised: Iterable[Alarm], *, now: float) -> None:
        current = {(alarm.topic, alarm.reason): alarm for alarm in now_raised}
        for key, alarm in self._raised.items():
            if key not in current:
                log.info("cleared: %s of %s", alarm.reason, alarm.topic)
                self._on_change(alarm, False)
        for key, alarm in current.items():
            if key not in self._raised:
                log.warning("alarm %s of %s: %s", alarm.reason, alarm.topic, alarm.message)
                self._on_change(alarm, True)
                self._reported[key] = alarm.gist, now
        self._reported = {key: self._reported[key] for key in current}
        self._cleared = {key: alarm for key, alarm in (self._cleared | self._raised).items() if key not in current}
        self._raised = current

    def to_repeat(self, *, lost: int, now: float) -> list[tuple[Alarm, bool]]:
        """Returns the alarms to repeat, and whether each is raised or cleared: those whose gist has changed, and at times all. `lost`: the
        number of events that could not be written so far."""
        cleared: list[Alarm] = []
        again, passed = self._raised, now - self._all_repeated_at
        if passed < LOST_REPEAT_SECONDS or (lost == self.lost and passed < REPEAT_SECONDS):
            again = {key: alarm for key, alarm in self._raised.items() if self._has_new_gist(key, alarm, now)}
            for alarm in again.values():
                log.warning("alarm %s of %s: %s", alarm.reason, alarm.topic, alarm.message)
        else:
            if lost == self.lost:
                self._cleared = {}
            cleared = list(self._cleared.values())
            self._all_repeated_at, self.lost = now, lost
        self._reported |= {key: (alarm.gist, now) for key, alarm in again.items()}
        return [(alarm, False) for alarm in cleared] + [(alarm, True) for alarm in again.values()]

    def _has_new_gist(self, key: Key, alarm: Alarm, now: float) -> bool:
        gist, reported_at = self._reported[key]
        return alarm.gist != gist and now - reported_at >= CHANGE_REPEAT_SECONDS


def of_partitions(owned: Iterable[AssignedPartition]) -> list[Alarm]:
    """Returns one alarm for each topic and reason, with the message of its first partition."""
    stopped: dict[Key, list[tuple[str, int, str]]] = {}
    for o in owned:
        stop = o.stop or o.tried
        if stop is not None:
            stopped.setdefault((o.served.topic, stop.reason), []).append((o.topic, o.partition, stop.message))
    return [_alarm(topic, reason, partitions) for (topic, reason), partitions in stopped.items()]


def _alarm(topic: str, reason: Reason, stopped: list[tuple[str, int, str]]) -> Alarm:
    _, _, message = min(stopped)
    return Alarm(topic, reason, message + _further(stopped))


def of_unacknowledged(owned: Iterable[AssignedPartition], snapshot: TopicsSnapshot) -> list[Alarm]:
    """Each alarm names the topics that the copies go to. If some of these topics have replicas out of sync, the alarm names only
    them, because they hold up the others."""
    seconds: dict[str, float] = {}
    targets: dict[str, set[str]] = {}
    for o in owned:
        if o.seen is not None and o.seen.stuck_seconds >= STUCK_SECONDS:
            topic, names = o.served.topic, o.served.names
            seconds[topic] = max(o.seen.stuck_seconds, seconds.get(topic, 0.0))
            possible = ((names.ready,), (names.delays,), (names.dead_letter,), o.served.targets)
            stuck = (to for to, stuck in zip(possible, o.seen.unacknowledged, strict=True) if stuck)
            targets.setdefault(topic, set()).update(name for to in stuck for name in to)
    lagging = {
        name: info.lagging for name, info in snapshot.topics.items() if isinstance(info, TopicInfo) and info.lagging
    }
    blamed = {topic: names & lagging.keys() for topic, names in targets.items() if names & lagging.keys()} or targets
    raised: list[Alarm] = []
    for topic, waiting in blamed.items():
        named = ", ".join(sorted(waiting))
        behind = "".join(
            f". {name} {list(lagging[name])} has replicas out of sync" for name in sorted(waiting & lagging.keys())
        )
        message = (
            f"Kafka has not acknowledged copies to {named} for {seconds[topic]:.0f} s{behind}. Partitions whose copies go there "
            "wait. Check that the brokers are up, that as many replicas are in sync as min.insync.replicas requires, and that no quota "
            "slows the workers down"
        )
        raised.append(Alarm(topic, Reason.TARGET_UNAVAILABLE, message, about=(named, behind)))
    return raised


def of_missing_targets(served: Served) -> str:
    """Returns the message about due records that wait for the ready topic that they name."""
    missing = [topic for topic in served.targets if served.target_partitions.get(topic) == 0]
    what = (
        f"{', '.join(missing)} (missing, or the workers may not describe it)"
        if missing
        else "a partition that does not exist"
    )
    budget_ms = served.layout.outage_budget_seconds * 1000 if served.layout else 0
    return (
        f"due records wait for {what}, which they name in dt-target. They become dead letters {lasting(budget_ms)} after their due "
        "time (spec.outageBudgetSeconds). Either create the topic or the partition, or allow the workers to describe the topic and "
        "write to it"
    )


def of_unreadable_control(served: Served, problem: str) -> Alarm:
    unserved = (
        ""
        if served.is_control_known
        else ". Workers serve no newly assigned partition until they have read the topic to its end"
    )
    message = f"workers can't see which records were cancelled or rescheduled lately: {problem}{unserved}"
    return Alarm(served.topic, Reason.CONTROL_UNREADABLE, message)


def of_many_control_requests(served: Served, count: int) -> Alarm:
    message = (
        f"{count} requests are in force in {served.names.control}, and workers accept no more. Either withdraw some by writing records "
        "without a value, or wait until the topic's retention removes them"
    )
    return Alarm(served.topic, Reason.TOO_MANY_CONTROL_REQUESTS, message, about=(served.names.control,))


def of_refusals(topics: Iterable[str], refused: Mapping[str | None, str]) -> list[Alarm]:
    """Returns an alarm for each of the topics that Kafka refuses to the worker. `refused`: messages by topic; that of None is for all
    topics without one of their own, because it concerns the whole worker."""
    messages = ((topic, refused.get(topic) or refused.get(None)) for topic in topics)
    return [Alarm(topic, Reason.KAFKA_REFUSED, message) for topic, message in messages if message]


def of_retention(at_risk: Iterable[AtRisk], now_ms: int) -> list[Alarm]:
    """Returns one alarm for each topic, about the record that Kafka may remove first. `now_ms`: the broker's time."""
    return [_of_risk(topic, parts, now_ms) for topic, parts in _by_topic(at_risk).items()]


def _of_risk(topic: str, at_risk: Sequence[AtRisk], now_ms: int) -> Alarm:
    owned, offset, risk = min(at_risk, key=lambda part: part.risk.removable_at_ms)
    left_ms = risk.removable_at_ms - now_ms
    at = datetime.fromtimestamp(risk.removable_at_ms / 1000, UTC)
    when = f"from {at:%Y-%m-%d %H:%M:%S} UTC on, which is in {lasting(left_ms)}" if left_ms > 0 else "at any moment"
    kept = f"The topic keeps records for {lasting(risk.retention_ms)}"
    if not risk.retention_reported:
        kept += " at least. The worker is not allowed to read retention.ms. To get the exact time, grant it DescribeConfigs on the topic"
    elif risk.delay_ms >= risk.retention_ms:
        kept += f", but records wait here for {lasting(risk.delay_ms)}"
    if owned.served.paused:
        cure = "end the pause (spec.paused)"
    else:
        cure = "find out from other alarms and the worker's log what holds the records up. Start more workers if they are only too slow"
    message = (
        f"unreleased records of {owned} come near the end of retention. Kafka may remove offset {offset} {when}. {kept}. "
        f"Either raise spec.outageBudgetSeconds of the DelayedTopic to keep the records for longer, or {cure}{_further(at_risk)}"
    )
    return Alarm(topic, Reason.RETENTION_AT_RISK, message, about=(kept, cure, *_names(at_risk)))


def of_unreadable(unreadable: Iterable[Unreadable]) -> list[Alarm]:
    """Returns one alarm for each topic, about the partition that could not be read for the longest time."""
    return [_of_silence(topic, parts) for topic, parts in _by_topic(unreadable).items()]


def _of_silence(topic: str, unreadable: Sequence[Unreadable]) -> Alarm:
    longest = max(unreadable, key=lambda part: part.seconds)
    owned, span, seconds, offsets, _ = longest
    what = f"the worker could not read anything from {owned} at offset {span.position} for {seconds:.0f} s"
    if isinstance(offsets, Offsets) and offsets.stable_end > span.position:
        what += f", although Kafka has committed records up to offset {offsets.stable_end}"
    why = _why_silent(longest)
    return Alarm(topic, Reason.NOT_RELEASING, f"{what}{why}{_further(unreadable)}", (why, *_names(unreadable)))


def _why_silent(unreadable: Unreadable) -> str:
    owned, span, _, offsets, bootstrap_servers = unreadable
    if span.out_of_reach:
        return (
            ", because the worker has no connection to a leader of it. Check the leader with kafka-topics.sh --bootstrap-server "
            f"{bootstrap_servers} --describe --topic {owned.topic}, and that workers reach this broker at its advertised.listeners"
        )
    if offsets is None or isinstance(offsets, KafkaCallError):
        return f". The worker could not find out why: {offsets or 'Kafka has not answered yet'}"
    if offsets.stable_end <= span.position:
        return (
            ", because a transaction is open there. The transaction ends when its producer ends it, or after its "
            f"transaction.timeout.ms. To find the producer, run kafka-transactions.sh --bootstrap-server {bootstrap_servers} "
            f"describe-producers --topic {owned.topic} --partition {owned.partition}. If find-hanging lists the transaction too, "
            "Kafka has lost track of it. In this case, end it with abort"
        )
    error = owned.seen.read_error if owned.seen else None
    if error is None:
        return ". The Kafka client has reported no error. Delete the worker's pod, so that the next pod reads with a new client"
    return (
        f". The Kafka client can't decode the next batch ({error}). To give up the records of this batch, stop the workers, set "
        "the group's offset behind the batch, and start the workers again"
    )


def of_refused_commits(refused: Iterable[RefusedCommit]) -> list[Alarm]:
    """Returns one alarm for each topic, about a partition whose commits Kafka refuses, but not those of others."""
    return [_of_refused(topic, parts) for topic, parts in _by_topic(refused).items()]


def _of_refused(topic: str, refused: Sequence[RefusedCommit]) -> Alarm:
    owned, error = refused[0]
    message = (
        f"Kafka refuses to commit {owned} ({error}), so the worker releases only some thousands of records more. They come out again "
        "after a restart. If the metadata are too large, set offset.metadata.max.bytes of the brokers to 4096 or more. Otherwise allow the "
        f"workers to commit{_further(refused)}"
    )
    return Alarm(topic, Reason.NOT_RELEASING, message, about=(error, *_names(refused)))


def of_unassigned(unassigned: Mapping[TopicPartitionKey, float], served: Iterable[Served]) -> list[Alarm]:
    """Returns one alarm for each delayed topic, about the partition that has been without a worker for the longest time.
    `unassigned`: for how many seconds each partition has had no worker."""
    raised: list[Alarm] = []
    for s in served:
        of_topic = [
            (seconds, place)
            for place, seconds in unassigned.items()
            if place[0] in (s.names.front, s.names.delays) and seconds >= UNASSIGNED_SECONDS
        ]
        if of_topic and s.layout is not None:
            places = tuple(sorted(f"{topic} [{partition}]" for _, (topic, partition) in of_topic))
            message = _of_no_worker(of_topic, s.layout.group)
            raised.append(Alarm(s.topic, Reason.NOT_RELEASING, message, about=places))
    return raised


def _of_no_worker(partitions: Sequence[tuple[float, TopicPartitionKey]], group: str) -> str:
    seconds, (topic, partition) = max(partitions)
    return (
        f"{topic} [{partition}] has had no worker for {seconds:.0f} s, because consumer group {group} has assigned it to none of its "
        "members. Workers join the group again every 30 s to repair this. If the alarm stays, check that all members of the group are "
        f"workers (kafka-consumer-groups.sh --describe --members --verbose), and restart the workers{_further(partitions)}"
    )


P = TypeVar("P", AtRisk, Unreadable, RefusedCommit)


def _by_topic(partitions: Iterable[P]) -> dict[str, list[P]]:
    found: dict[str, list[P]] = {}
    for partition in partitions:
        found.setdefault(partition.owned.served.topic, []).append(partition)
    return found


def _names(partitions: Iterable[AtRisk | Unreadable | RefusedCommit]) -> list[str]:
    return sorted(str(partition.owned) for partition in partitions)


def _further(partitions: Sequence[object]) -> str:
    """Returns a sentence that says how many partitions there are besides the one that the message names."""
    more = len(partitions) - 1
    return f". The same applies to {more} more partition{'s' if more > 1 else ''}" if more else ""


def joined(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Joins the alarms of one topic and reason to one alarm."""
    found: dict[Key, list[Alarm]] = {}
    for alarm in alarms:
        found.setdefault((alarm.topic, alarm.reason), []).append(alarm)
    return [
        Alarm(
            *key,
            ". Also, ".join(alarm.message for alarm in ones),
            about=tuple(part for alarm in ones for part in alarm.gist) if any(alarm.about for alarm in ones) else (),
        )
        for key, ones in found.items()
    ]


def lasting(ms: int) -> str:
    """Returns a duration as text, for example 12 s, 90 min, 6.5 h or 3 days."""
    for unit_ms, unit in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * unit_ms:
            units = ms / unit_ms
            return f"{units:.0f} {unit}" if units >= 10 else f"{units:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms / 1000:.0f} s"
