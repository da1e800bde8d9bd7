"""Checks that the layout is served, and that every partition has an offset at which serving begins.

The steps have a fixed order, so that an operator that is stopped between any two of them can continue. The registry records the start
offsets, they are committed in the consumer group, and the registry records that they were committed. Only then is the layout served.
"""

from dataclasses import replace

from delayed_topics_core.layout import surplus
from delayed_topics_core.names import REGISTRY_TOPIC
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import TopicsRecord
from delayed_topics_core.settings import DURABLE, MIN_ISR, least_in_sync
from delayed_topics_core.words import counted

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile import handover
from delayed_topics_operator.delayed_topic.reconcile.enforced import missing
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.target import Target, complete, identified, target, write_layout
from delayed_topics_operator.values.plan import Action, CommitOffsets, ConditionState, Finding, WriteRegistry

BEGIN_WAKE_SECONDS = 5.0


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    t = target(o, o.kafka)
    conditions = {
        Condition.LAYOUT_CLAMPED: _clamped(o, t),
        Condition.DURABILITY_REDUCED: _durability(o, o.kafka, t),
    }
    if not complete(o.kafka, t):
        return Finding(conditions=conditions)
    known = identified(o, o.kafka)
    started = _started(o, o.kafka, t, known)
    after = handover.updated(o, o.kafka, started)
    commits = _commits(o, o.kafka, after)
    begun = _begun(o.kafka, after, commits)
    actions: list[Action] = []
    if started != known:
        actions.append(WriteRegistry(record=started, why=f"note the start offsets of {after.topic}"))
    if after != started:
        actions.append(WriteRegistry(record=after, why=_handed_over(o, after)))
    if commits is not None:
        actions.append(commits)
    if begun != after:
        actions.append(
            WriteRegistry(record=begun, why=f"note which partitions of {after.topic} have a committed offset")
        )
    actions.extend(write_layout(o, o.kafka, t))
    waiting = any(begun.begun.get(name, 0) < len(offsets) for name, offsets in begun.start_offsets.items())
    handed_over = after.handover is not None and not after.handover.kept
    wake_seconds = BEGIN_WAKE_SECONDS if waiting or handed_over else None
    if handover.under_way(o):
        wake_seconds = handover.WAKE_SECONDS
    return Finding(actions=tuple(actions), conditions=conditions, wake_seconds=wake_seconds)


def _handed_over(o: Observation, record: TopicsRecord) -> str:
    if record.handover is None:
        return f"remove the handed-over offsets that group {o.group} has committed by now"
    if record.handover.kept:
        return f"keep the offsets that group {o.group} has committed for {record.topic}"
    return (
        f"hand over the offsets that group {o.group} has committed for {record.topic} to group {record.handover.group}"
    )


def _sources(o: Observation) -> tuple[str, str]:
    return (o.wanted.names.front, o.wanted.names.delays)


def _started(o: Observation, kafka: KafkaView, t: Target, before: TopicsRecord) -> TopicsRecord:
    """Returns the record with a start offset for each front and delays partition. A partition that has none begins at its earliest offset,
    since all its records belong to this resource."""
    starts = dict(before.start_offsets)
    for name in _sources(o):
        known = before.start_offsets.get(name, ())
        info = kafka.topics[name]
        assert info is not None, "the topics are complete"
        # somebody else has added the partitions beyond those of the layout
        count = min(info.partitions, t.partitions["delays" if name == o.wanted.names.delays else "front"])
        starts[name] = (*known, *(kafka.earliest[name, p] for p in range(len(known), count)))
    return replace(before, start_offsets=starts, begun={**dict.fromkeys(starts, 0), **before.begun})


def _commits(o: Observation, kafka: KafkaView, record: TopicsRecord) -> CommitOffsets | None:
    """Returns the commit of the start offsets of partitions that have no committed offset. The members of a group do this themselves."""
    if kafka.group.members:
        return None
    offsets = {
        (name, partition): start
        for name, starts in record.start_offsets.items()
        for partition, start in enumerate(starts)
        if partition >= record.begun.get(name, 0) and kafka.committed.get((name, partition)) is None
    }
    return CommitOffsets(group=o.group, offsets=offsets) if offsets else None


def _begun(kafka: KafkaView, record: TopicsRecord, commits: CommitOffsets | None) -> TopicsRecord:
    begun = dict(record.begun)
    for name, offsets in record.start_offsets.items():
        count = begun.get(name, 0)
        while count < len(offsets) and (
            kafka.committed.get((name, count)) is not None or (commits is not None and (name, count) in commits.offsets)
        ):
            count += 1
        begun[name] = count
    return replace(record, begun=begun)


def _clamped(o: Observation, t: Target) -> ConditionState:
    if o.beyond.topics is not None:
        return replace(o.beyond.topics, status="True")
    wanted = o.wanted.layout
    asked = wanted.partitions
    needed = sum(wanted.wanted().values()) - wanted.ladder_partitions
    extra = surplus(t.layout, wanted)
    delays = t.names["delays"]
    if needed > asked:
        without = " without those of the ladder" if wanted.ladder_partitions else ""
        message = (
            f"spec.partitions is {asked}, but {delays} has {counted(asked + extra, 'partition')}{without}. Each delay after the "
            f"first needs {wanted.lanes} (spec.lanesPerDelay), and the first one needs at least one. "
            f"Raise spec.partitions to {needed}"
        )
        return ConditionState(status="True", reason=Reason.LAYOUT_CLAMPED, message=message)
    if extra:
        message = (
            f"{delays} has {extra} more partitions than spec.partitions ({asked}). Partitions are never removed. Those of delays that "
            "left the list are served until their last record is released"
        )
        return ConditionState(status="True", reason=Reason.COUNTS_ABOVE_SPEC, message=message)
    return ConditionState(
        status="False", reason=Reason.AS_DECLARED, message=f"{delays} has as many partitions as the spec asks for"
    )


def _durability(o: Observation, kafka: KafkaView, t: Target) -> ConditionState:
    """Returns the condition DurabilityReduced. A record counts as written when `min.insync.replicas` brokers have it."""
    assert isinstance(o.connection, Usable), "access is checked first"
    replicas = {
        name: info.replication_factor if (info := kafka.topics.get(name)) is not None else t.replication_factor
        for name in t.names.values()
    }
    in_sync = {
        name: int(kafka.configs.get(name, {}).get(MIN_ISR, least_in_sync(factor))) for name, factor in replicas.items()
    }
    replicas[REGISTRY_TOPIC] = o.connection.registry_replicas
    in_sync[REGISTRY_TOPIC] = least_in_sync(o.connection.registry_replicas)
    reduced = sorted(name for name, factor in replicas.items() if min(factor, in_sync[name]) == 1)
    lacking = missing(o, kafka, t, DURABLE.__contains__)
    if lacking:
        message = (
            f"{'. '.join(map(str, lacking))}. A record that counts as written can be lost with the disk of one broker. Ask the team that "
            "runs Kafka to allow the setting"
        )
        return ConditionState(status="True", reason=Reason.SETTING_REFUSED, message=message)
    if not reduced:
        return ConditionState(
            status="False",
            reason=Reason.AS_DECLARED,
            message="every record is on more than one broker before it counts as written",
        )
    message = (
        f"a record of {', '.join(reduced)} counts as written when one broker has it. The record is lost if that broker loses its disk. "
        "With three replicas, a record counts as written when two brokers have it. Set spec.replicationFactor to 3, and move the "
        "replicas of existing topics with kafka-reassign-partitions.sh. The operator then raises min.insync.replicas"
    )
    alone = all(replicas[name] == 1 for name in reduced)
    reason = Reason.ONE_REPLICA if alone else Reason.ONE_IN_SYNC_REPLICA
    return ConditionState(status="True", reason=reason, message=message)
