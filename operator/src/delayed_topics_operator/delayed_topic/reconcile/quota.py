"""Decides how much of what a resource asks for the connection's owner grants.

Existing topics and workers stay, even if grants are withdrawn. Only growth is refused. Topics get all partitions that the spec asks for, or
stay as they are. The number of workers is the number that is granted. The limits for one DelayedTopic (`maxPartitions`, `maxWorkers`) come
from the entries of `allow` that cover its topic. A quota is for the whole namespace, whatever its topics are called. If the registry is
nearly full, no topics are created or grown through the connection.
"""

from collections.abc import Iterable
from dataclasses import replace

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, LayoutRecord
from delayed_topics_core.settings import TopicRole
from delayed_topics_core.words import counted
from delayed_topics_crds import Grant, QuotaUsed
from delayed_topics_crds.delayed_topic import MAX_PARTITIONS

from delayed_topics_operator.connection.reconcile.grants import hard
from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile.access import covering, large_enough, where
from delayed_topics_operator.delayed_topic.reconcile.observation import GrantExceeded, KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.target import present, target
from delayed_topics_operator.delayed_topic.reconcile.workers import workers_name
from delayed_topics_operator.values.partitions import all_partitions, has_control, partitions_of
from delayed_topics_operator.values.plan import Action, ConditionState, Finding, WriteRegistry

MAX_FULLNESS = 0.8
_GROWING: tuple[TopicRole, ...] = ("front", "ready", "delays")


def limited(o: Observation) -> Observation:
    """Returns the observation with the number of workers that is granted, and with the reasons why no more is granted."""
    if not isinstance(o.connection, Usable) or o.kafka is None:
        return o
    topics = _topics_refused(o, o.kafka, o.connection)
    replicas, why = _workers(o, o.kafka, o.connection.grants) if o.has_own_workers else (0, None)
    return replace(o, wanted=replace(o.wanted, replicas=replicas), beyond=GrantExceeded(topics=topics, workers=why))


def check(o: Observation) -> Finding:
    """Refuses a resource that exceeds the grants before it claims anything. If it has a claim already, what exists is served."""
    assert o.kafka is not None, "access is checked first"
    registered = o.kafka.registered
    if o.beyond.topics is None or registered.own is not None or registered.holder is not None:
        return Finding()
    return Finding(conditions={Condition.CLAIMED: o.beyond.topics}, proceed=False)


def takes(o: Observation, actions: Iterable[Action]) -> QuotaUsed | None:
    """Returns what the resource uses of the quota after these actions, or None if this is not known or the plan is only shown. `o`: the
    result of `limited`."""
    if o.kafka is None or o.subject.plan_only:
        return None
    claims = any(isinstance(action, WriteRegistry) and isinstance(action.record, Claim) for action in actions)
    if o.kafka.registered.own is None and not claims:
        return QuotaUsed()
    refused = o.beyond.topics is not None
    partitions = _have(o, o.kafka) if refused else _asked(o, o.kafka)
    return QuotaUsed(delayed_topics=1, partitions=partitions, workers=o.wanted.replicas)


def _topics_refused(o: Observation, kafka: KafkaView, connection: Usable) -> ConditionState | None:
    growing = _growing(o, kafka)
    if growing > MAX_PARTITIONS:
        message = (
            f"spec asks for a topic with {counted(growing, 'partition')}, but a topic can have at most {MAX_PARTITIONS}. Partitions of "
            "delays that left the list count too. Use fewer lanes or delays"
        )
        return ConditionState(status="False", reason=Reason.SPEC_INVALID, message=message)
    if kafka.registry_fullness > MAX_FULLNESS and (growing or kafka.registered.own is None):
        message = (
            f"the registry of {o.wanted.connection} has more than {MAX_FULLNESS:.0%} of the keys and values that the operator may hold. "
            "The rest is for what exists, so nothing new is created, and no topic grows. Either ask whoever runs the operator to raise "
            "operator.registryMebibytes of the chart together with the operator's memory, or delete DelayedTopics with "
            "spec.deletionPolicy Delete"
        )
        return ConditionState(status="False", reason=Reason.REGISTRY_TOO_LARGE, message=message)
    refusal = _too_large(o, growing, connection.grants or ()) or _too_much(o, kafka, connection.grants or ())
    return (
        ConditionState(status="False", reason=Reason.GRANT_EXCEEDED, message=refusal) if refusal is not None else None
    )


def _growing(o: Observation, kafka: KafkaView) -> int:
    """Returns the partitions of the largest topic that is to be created, or to be grown beyond what was granted before; 0 if there is
    none."""
    t, had = target(o, kafka), dict[TopicRole, int]()
    record = _own_layout(o, kafka)
    if record is not None:
        had = {
            "front": record.front_partitions,
            "ready": record.ready_partitions,
            "delays": record.layout.partition_count,
        }
    growing = (
        t.partitions[role]
        for role in _GROWING
        if t.partitions[role] > max(present(kafka, t.names[role]), had.get(role, 0))
    )
    return max(growing, default=0)


def _too_large(o: Observation, growing: int, grants: Iterable[Grant]) -> str | None:
    """Returns why no grant allows a topic with that many partitions, or None. Partitions of former specs and those that users have added
    count too."""
    limits = [grant.max_partitions for grant in covering(o, grants)]
    most = max((limit for limit in limits if limit is not None), default=0)
    if not limits or None in limits or growing <= most:
        return None
    return (
        f"{where(o)} allows namespace {o.subject.namespace} at most {counted(most, 'partition')} for a topic (spec.allow[].maxPartitions). "
        f"This resource asks for {counted(growing, 'partition')}. Partitions of delays that left the list count too. {_REMEDY}"
    )


def _too_much(o: Observation, kafka: KafkaView, grants: Iterable[Grant]) -> str | None:
    quota = hard(grants, o.subject.namespace_labels)
    asked, have = _asked(o, kafka), _have(o, kafka)
    new = kafka.registered.own is None
    if new and quota.delayed_topics is not None and o.others.delayed_topics + 1 > quota.delayed_topics:
        return (
            f"{_quota(o, 'delayedTopics', quota.delayed_topics)}, and the namespace already has {o.others.delayed_topics}. "
            f"{_REMEDY_TOPICS}"
        )
    if asked > have and quota.partitions is not None and o.others.partitions + asked > quota.partitions:
        return (
            f"{_quota(o, 'partitions', quota.partitions)}. The other DelayedTopics of the namespace have {o.others.partitions}, and this "
            f"one asks for {asked} in all its topics. {_REMEDY_TOPICS}"
        )
    return None


def _workers(o: Observation, kafka: KafkaView, allowed: tuple[Grant, ...] | None) -> tuple[int, str | None]:
    """Returns how many workers are granted, and why there are no more. Existing workers stay as long as the spec asks for them. `allowed`:
    the grants; None: everything is allowed."""
    grants = allowed or ()
    asked, layout = o.wanted.replicas, kafka.registered.layout
    if o.leaves_own_workers and layout is not None and layout.workers is not None:
        asked = layout.workers  # as many as before serve until the shared workers can
    live = o.children.get(("StatefulSet", workers_name(o)))
    have = max(live["spec"].get("replicas", 1) if live is not None else 0, o.own.workers)
    limits = [grant.max_workers for grant in large_enough(o, grants)]
    uncovered = allowed is not None and not limits
    most = max((limit for limit in limits if limit is not None), default=0)
    limit = most if uncovered or (limits and None not in limits) else None
    quota = hard(grants, o.subject.namespace_labels).workers
    room = None if quota is None else max(0, quota - o.others.workers)
    replicas = min(asked, max(have, min(n for n in (asked, limit, room) if n is not None)))
    if replicas == asked:
        return asked, None
    if uncovered:
        why = f"No entry of spec.allow of {where(o)} is for this DelayedTopic"
    elif limit is not None and (room is None or limit <= room):
        granted = f"at most {counted(limit, 'worker')} for a DelayedTopic (spec.allow[].maxWorkers)"
        why = f"{where(o)} allows namespace {o.subject.namespace} {granted}"
    else:
        why = (
            f"{_quota(o, 'workers', quota or 0)}, and the other DelayedTopics of the namespace have {o.others.workers}"
        )
    asks = "spec.workers.autoscale wants" if o.wanted.autoscale is not None else "spec.workers.replicas is"
    return replicas, f"{asks} {asked}, but only {replicas} may run. {why}. {_REMEDY}"


def _asked(o: Observation, kafka: KafkaView) -> int:
    wanted = target(o, kafka).partitions
    control = o.wanted.control or has_control(kafka.registered.topics)
    return all_partitions(wanted["front"], wanted["delays"], wanted["ready"]) + control


def _have(o: Observation, kafka: KafkaView) -> int:
    record = _own_layout(o, kafka)
    return partitions_of(record, kafka.registered.topics) if record is not None else 0


def _own_layout(o: Observation, kafka: KafkaView) -> LayoutRecord | None:
    """Returns the registered layout if it belongs to this resource. A layout that is only planned counts too, because it was granted."""
    record = kafka.registered.layout
    return record if record is not None and record.owner == o.subject.owner else None


def _quota(o: Observation, what: str, number: int) -> str:
    things = "DelayedTopics" if what == "delayedTopics" else what
    return f"{where(o)} limits the {things} of namespace {o.subject.namespace} to {number} in total (spec.allow[].quota.{what})"


_REMEDY = "Either ask for less, or ask the connection's owner for more"
_REMEDY_TOPICS = (
    "Topics that are kept after the deletion of their DelayedTopic count too. Either ask for less, or delete a DelayedTopic with "
    "spec.deletionPolicy Delete, or ask the connection's owner for more"
)
