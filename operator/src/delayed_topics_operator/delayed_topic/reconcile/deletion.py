"""Plans the deletion of a resource: workers, group, topics and claim, in this order, as far as spec.deletionPolicy says."""

from dataclasses import replace
from datetime import datetime, timedelta

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim
from delayed_topics_crds import DelayedTopicStatus

from delayed_topics_operator.connection.reconcile.usable import Unusable
from delayed_topics_operator.delayed_topic.reconcile import handover, status
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.own_workers import labels
from delayed_topics_operator.delayed_topic.reconcile.target import is_ours
from delayed_topics_operator.delayed_topic.reconcile.workers import fences
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import (
    Action,
    ConditionState,
    DeleteGroup,
    DeleteTopics,
    Notice,
    Plan,
    RemoveFinalizer,
    RemoveFromRegistry,
    WriteRegistry,
)
from delayed_topics_operator.values.pods import LOST_NODE
from delayed_topics_operator.workers.reconcile.children import ours, removal

WAIT_SECONDS = 1.0


def plan(o: Observation) -> Plan:
    if not o.subject.has_finalizer:
        return Plan()
    children = {key: live for key, live in o.children.items() if ours(live, labels(o.subject))}
    left = [live for live in children.values() if _is_left(o, live)]
    if len(left) < len(children):
        return _waiting(o, f"the workers stop, for at most {o.gone_after_seconds:g} s", removal(children))
    if left and o.kafka is not None and o.kafka.group.members and not o.shares_workers:
        return _waiting_for_members(o, o.kafka)
    found = _in_kafka(o)
    if not any(isinstance(action, RemoveFinalizer) for action in found.actions):
        return found
    return replace(found, notices=(*found.notices, *(_left(o, live) for live in left)))


def _is_left(o: Observation, child: Manifest) -> bool:
    """Whether Kubernetes has not removed the object in the time that a deletion waits for what is gone. A StatefulSet is removed when its
    pods are gone, and a pod on a lost node stays until someone removes the node."""
    since = child["metadata"].get("deletionTimestamp")
    return since is not None and o.now - datetime.fromisoformat(since) >= timedelta(seconds=o.gone_after_seconds)


def _in_kafka(o: Observation) -> Plan:
    if isinstance(o.connection, Unusable) or o.kafka is None:
        return _without_kafka(o)
    own, holder = o.kafka.registered.own, o.kafka.registered.holder
    if own is None:
        return Plan(actions=(RemoveFinalizer(),))
    if holder is not None and holder.owner != o.subject.owner:
        return Plan(
            actions=(RemoveFromRegistry(keys=(own.key,), why=f"withdraw the claim on {own.topic}"), RemoveFinalizer())
        )
    if o.shares_workers and (layout := o.kafka.registered.layout) is not None and layout.owner == o.subject.owner:
        given_up = "the shared workers give up its partitions"
        if layout.state != "retired":
            why = f"retire the layout of {layout.topic}, so that {given_up}"
            return _waiting(o, given_up, (WriteRegistry(record=replace(layout, state="retired"), why=why),))
        if not handover.is_given_up(o):
            return _waiting(o, given_up)
    # A claim without topics would only block the name.
    if o.wanted.spec.deletion_policy == "Retain" and any(is_ours(o.kafka, name) for name in _topics(o)):
        return Plan(actions=(*_kept(o, o.kafka), *fences(o), RemoveFinalizer()), notices=(_retained(o),))
    return _delete_all(o, o.kafka, own)


def _without_kafka(o: Observation) -> Plan:
    if not isinstance(o.connection, Unusable):
        return _waiting(o, "the operator knows what is in Kafka")
    gone = o.connection
    patience = timedelta(seconds=o.gone_after_seconds)
    if o.subject.namespace_terminating or o.now - gone.since >= patience:
        message = (
            f"{gone.message}. Everything in Kafka stays there, as with spec.deletionPolicy Retain: topics {', '.join(_topics(o))}, "
            f"group {o.group} and the claim of {o.subject.namespace}/{o.subject.name}. Kafka keeps the offsets of the group for "
            "offsets.retention.minutes only, which is 7 days by default"
        )
        notice = Notice(type="Warning", reason=gone.reason, message=message, outlives_namespace=True)
        return Plan(actions=(RemoveFinalizer(),), notices=(notice,))
    return _waiting(o, f"this has ended, for at most {o.gone_after_seconds:g} s: {gone.message}")


def _delete_all(o: Observation, kafka: KafkaView, own: Claim) -> Plan:
    if kafka.group.members and not o.shares_workers:
        return _waiting_for_members(o, kafka)
    # When Kafka deletes the topics, it also removes the offsets that any group has committed for them.
    keeps = o.shares_workers or kafka.group.state == "Dead"
    group: tuple[Action, ...] = () if keeps else (DeleteGroup(group=kafka.group.group),)
    adopted = own.topic if own.adopted else None
    doomed = tuple(name for name in _topics(o) if is_ours(kafka, name) and name != adopted)
    topics: tuple[Action, ...] = (DeleteTopics(topics=doomed),) if doomed else ()
    records = tuple(record.key for record in (kafka.registered.layout, kafka.registered.topics) if record is not None)
    records += (f"audited/{own.topic}",) if records else ()
    return Plan(
        actions=(
            *group,
            *topics,
            *((RemoveFromRegistry(keys=records, why=f"remove the layout of {own.topic}"),) if records else ()),
            RemoveFromRegistry(keys=(own.key,), why=f"give up the claim on {own.topic}"),
            RemoveFinalizer(),
        ),
        status=_deleting(o, "the group, the topics and the claim are removed"),
    )


def _kept(o: Observation, kafka: KafkaView) -> tuple[WriteRegistry, ...]:
    """Returns the write that keeps the committed offsets in the registry: Kafka expires the offsets of a group without members, and those
    of topics that the group no longer reads."""
    record = kafka.registered.topics
    if record is None or (kept := handover.kept(o, kafka, record)) == record:
        return ()
    return (WriteRegistry(record=kept, why=f"keep the offsets that group {o.group} has committed for {record.topic}"),)


def _retained(o: Observation) -> Notice:
    message = (
        f"spec.deletionPolicy is Retain, so topics {', '.join(_topics(o))}, group {o.group} and the claim stay. A new DelayedTopic "
        f"{o.subject.namespace}/{o.subject.name} with the same topic continues where this one ended"
    )
    return Notice(type="Normal", reason="Retained", message=message, outlives_namespace=True)


def _left(o: Observation, child: Manifest) -> Notice:
    meta = child["metadata"]
    message = (
        f"{child['kind']} {meta['namespace']}/{meta['name']}, with workers of {o.subject.namespace}/{o.subject.name}, was deleted at "
        f"{meta['deletionTimestamp']} and is still there. The operator no longer waits for it. Usually the node of a pod does not answer. "
        f"{LOST_NODE}. Then Kubernetes removes what is left"
    )
    return Notice(type="Warning", reason="WorkersLeft", message=message, outlives_namespace=True)


def _topics(o: Observation) -> tuple[str, ...]:
    """Returns the names of the topics, with the control topic if the operator has created it, whether or not the spec still has one."""
    names = o.wanted.names
    if o.kafka is not None:
        controlled = is_ours(o.kafka, names.control)
    else:
        controlled = any(topic.role == "control" for topic in o.subject.status.topics)
    return names.possible if controlled else names.topics


def _waiting(o: Observation, what: str, actions: tuple[Action, ...] = ()) -> Plan:
    return Plan(actions=actions, status=_deleting(o, what), wake_seconds=WAIT_SECONDS)


def _waiting_for_members(o: Observation, kafka: KafkaView) -> Plan:
    return _waiting(o, f"the members of group {kafka.group.group} leave or their sessions end")


def _deleting(o: Observation, what: str) -> DelayedTopicStatus:
    state = ConditionState(status="False", reason=Reason.DELETING, message=f"the deletion waits until {what}")
    return status.of(o, {Condition.READY: state})
