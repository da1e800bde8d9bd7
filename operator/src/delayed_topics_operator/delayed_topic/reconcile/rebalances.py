"""Computes what the status says of the consumer group: which partitions each member has now, and the past rebalances. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from delayed_topics_core.layout import format_ranges
from delayed_topics_core.names import TopicNames
from delayed_topics_core.offsets import TopicPartitionKey
from delayed_topics_core.rebalances import Rebalance
from delayed_topics_crds import MAX_MEMBERS, MAX_RECENT, GroupMember, RebalanceRecord, RebalanceStatus
from delayed_topics_crds.delayed_topic_status import GroupState
from delayed_topics_kafka import model

from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.values.eventlog import WorkerNews

SAME_GENERATION = timedelta(minutes=10)
"""Rebalances with the same generation that began further apart are of different groups: one was deleted, and then the other was created."""


def with_status(o: Observation) -> Observation:
    """Returns the observation with what the status will say of the consumer group."""
    return o if o.kafka is None else replace(o, rebalance=_status(o, o.kafka))


def _status(o: Observation, kafka: KafkaView) -> RebalanceStatus:
    before = o.subject.status.rebalance
    group = _of_topic(kafka.group, o.wanted.names) if o.shares_workers else kafka.group
    status = rebalance_status(before, group, kafka.news, now=o.now)
    return status.model_copy(update={"refused": o.refused_protocol})


def _of_topic(group: model.GroupInfo, names: TopicNames) -> model.GroupInfo:
    """Returns a shared group with only the members that serve this delayed topic, and only their partitions of it."""

    def of(places: Iterable[TopicPartitionKey]) -> tuple[TopicPartitionKey, ...]:
        return tuple(place for place in places if place[0] in (names.front, names.delays))

    parts = (
        replace(m, assignment=of(m.assignment), target=None if m.target is None else of(m.target))
        for m in group.members
    )
    return replace(group, members=tuple(member for member in parts if member.assignment or member.target))


def under_way_since(status: RebalanceStatus) -> datetime | None:
    """Returns the time since when a rebalance has been under way, or None if there is none."""
    latest = status.recent[0] if status.recent else None
    if status.state != "Stable" or latest is None or latest.duration_ms is not None:
        return status.rebalancing_since
    return latest.started_at  # the members have their partitions, but do not serve all of them yet


def slow(status: RebalanceStatus, *, now: datetime, slow_seconds: int) -> str | None:
    """Returns a message if a rebalance has been under way for longer than `slow_seconds`."""
    since = under_way_since(status)
    if since is None or now - since <= timedelta(seconds=slow_seconds):
        return None
    return (
        f"a rebalance has been under way since {since:%H:%M:%S} UTC, which is longer than spec.rebalance.slowSeconds ({slow_seconds} s). "
        "Records of the partitions that move wait until it ends. See status.rebalance for the partitions of each worker, and the "
        "workers' logs"
    )


def ended_slowly(before: RebalanceStatus | None, after: RebalanceStatus, *, slow_seconds: int) -> list[RebalanceRecord]:
    """Returns the rebalances that ended since `before` was written, and took longer than `slow_seconds`."""
    if before is None:
        return []  # the first status of this resource, whose past rebalances are no news
    known = [record for record in before.recent if record.duration_ms is not None]
    return [
        record
        for record in after.recent
        if (record.duration_ms or 0) > slow_seconds * 1000 and not any(_same(record, other) for other in known)
    ]


def rebalance_status(
    before: RebalanceStatus | None, group: model.GroupInfo, news: WorkerNews, *, now: datetime
) -> RebalanceStatus:
    """Returns the next status. Each rebalance is counted once, including those that happened while the operator was away. While a rebalance
    is under way, none are added."""
    before = before or RebalanceStatus(state="Unknown")
    state: GroupState = "Empty" if not group.members else "Stable" if group.settled else "Rebalancing"
    reported = [_record(rebalance) for rebalance in news.rebalances]
    fresh = _after(reported, before.recent[0] if before.recent else None) if state != "Rebalancing" else []
    known = [_updated(record, reported) for record in before.recent]
    members = sorted(group.members, key=lambda m: m.client_id)
    return RebalanceStatus(
        state=state,
        protocol=group.protocol.capitalize() if group.members else None,
        assignor=(group.assignor or before.assignor) if group.members else None,
        members=tuple(GroupMember(name=m.client_id, partitions=_assigned(m)) for m in members[:MAX_MEMBERS]),
        member_count=len(members),
        rebalancing_since=(before.rebalancing_since or now) if state == "Rebalancing" else None,
        count=before.count + len(fresh),
        recent=(*reversed(fresh), *known)[:MAX_RECENT],
    )


def _after(reported: Sequence[RebalanceRecord], newest: RebalanceRecord | None) -> list[RebalanceRecord]:
    """Returns the rebalances after the newest one that is known."""
    if newest is None:
        return list(reported)
    at = next((i for i in range(len(reported), 0, -1) if _same(reported[i - 1], newest)), None)
    return list(reported[at:]) if at is not None else [r for r in reported if r.started_at > newest.started_at]


def _updated(known: RebalanceRecord, reported: Sequence[RebalanceRecord]) -> RebalanceRecord:
    """Returns a known rebalance with what workers have reported of it since. Kafka may have removed the first events about it, so the
    record with more moved partitions counts."""
    found = next((record for record in reported if _same(record, known)), known)
    return found if found.moved_partitions >= known.moved_partitions else known


def _same(one: RebalanceRecord, other: RebalanceRecord) -> bool:
    return one.generation == other.generation and abs(one.started_at - other.started_at) < SAME_GENERATION


def _record(found: Rebalance) -> RebalanceRecord:
    ended_at_ms = found.ended_at_ms
    return RebalanceRecord(
        generation=found.generation,
        reason=found.reason,
        started_at=datetime.fromtimestamp(found.started_at_ms // 1000, UTC),
        duration_ms=None if ended_at_ms is None else ended_at_ms - found.started_at_ms,
        moved_partitions=found.moved_partitions,
        affected_workers=found.affected_workers,
        unaffected_workers=found.unaffected_workers,
        in_flight_records=found.in_flight_records,
        delayed_records=found.delayed_records,
    )


def _assigned(member: model.GroupMember) -> str:
    topics = sorted({topic for topic, _ in member.assignment})
    return " ".join(f"{t}:{format_ranges(sorted(p for u, p in member.assignment if u == t))}" for t in topics)
