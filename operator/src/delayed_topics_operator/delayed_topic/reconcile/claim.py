"""Checks which resource owns the topics: the one whose claim is the first in the registry, by offset."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim
from delayed_topics_core.settings import creation_mark

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile.access import may_adopt
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation
from delayed_topics_operator.delayed_topic.reconcile.take_over import held_by_other, taken
from delayed_topics_operator.values.plan import Action, AddFinalizer, ConditionState, Finding, WriteRegistry


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    assert isinstance(o.connection, Usable)
    finalizer: tuple[Action, ...] = () if o.subject.has_finalizer else (AddFinalizer(uid=o.subject.uid),)
    own, holder = o.kafka.registered.own, o.kafka.registered.holder
    if holder is not None and holder.owner != o.subject.owner:
        return held_by_other(o, holder, own)
    if own is None:
        return _claim_anew(o, o.kafka, o.connection, finalizer)
    return Finding(actions=finalizer, conditions={Condition.CLAIMED: _held(own)})


def _claim_anew(o: Observation, kafka: KafkaView, connection: Usable, finalizer: tuple[Action, ...]) -> Finding:
    names = o.wanted.names
    before = next((c for c in o.subject.status.conditions if c.type == Condition.CLAIMED), None)
    if before and before.reason == Reason.CLAIMED_BY_OTHER and before.observed_generation == o.subject.generation:
        # A refused resource does not queue for the topic. The next owner is the first that claims the topic after it became free.
        message = f"another resource owned the topic {names.front}, which is free now. Edit the spec of this resource to claim it"
        return _stop(ConditionState(status="False", reason=Reason.CLAIMED_BY_OTHER, message=message))
    existing = [name for name in o.wanted.topics if kafka.topics.get(name) is not None]
    adopting = existing == [names.front] and may_adopt(o, connection)
    if existing and not adopting:
        return _stop(_foreign(o, existing, connection))
    policy = kafka.configs.get(names.front, {}).get("cleanup.policy", "")
    if adopting and "compact" in policy:
        return _stop(_compacted(names.front, policy))
    claim = Claim(topic=names.front, owner=o.subject.owner, adopted=adopting, mark=creation_mark(o.subject.uid))
    how = " and adopt the existing front topic" if adopting else ""
    return Finding(
        actions=(*finalizer, WriteRegistry(record=claim, why=f"claim {', '.join(o.wanted.topics)}{how}")),
        conditions={
            Condition.CLAIMED: ConditionState(
                status="Unknown", reason=Reason.IN_PROGRESS, message="the operator is writing the claim"
            )
        },
        proceed=False,
    )


def _stop(state: ConditionState) -> Finding:
    return Finding(conditions={Condition.CLAIMED: state}, proceed=False)


def _held(own: Claim) -> ConditionState:
    adopted = ". The front topic existed before and is never deleted" if own.adopted else ""
    return ConditionState(
        status="True",
        reason=Reason.CLAIM_HELD,
        message=f"this resource has claimed the names of {own.topic} and its other topics{adopted}{taken(own)}",
    )


def _foreign(o: Observation, existing: list[str], connection: Usable) -> ConditionState:
    remedy = "Choose another spec.topic in a new resource"
    if existing == [o.wanted.names.front] and connection.grants is not None:
        remedy = (
            "Either choose another spec.topic in a new resource, or ask the connection's owner to allow adopting the topic "
            "(spec.allow[].adopt)"
        )
    if existing == [o.wanted.names.control]:
        remedy = "Either choose another spec.topic in a new resource, or remove spec.control"
    message = f"{_topics(existing)} in Kafka, but not in the registry. The operator does not touch topics that it did not create. {remedy}"
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _compacted(name: str, policy: str) -> ConditionState:
    message = (
        f"the topic {name} already exists and has cleanup.policy={policy}. A front topic needs cleanup.policy=delete, which would "
        "remove values that this topic keeps. The operator leaves the topic alone. Choose another spec.topic in a new resource"
    )
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _topics(names: list[str]) -> str:
    return f"the topic{'s' if len(names) > 1 else ''} {', '.join(names)} already exist{'' if len(names) > 1 else 's'}"
