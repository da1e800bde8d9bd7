"""Whose are these topics? The first claim in the registry, by offset."""

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim
from delayed_topics_core.settings import creation_mark

from delayed_topics_operator.observation import KafkaView, Observation, Usable
from delayed_topics_operator.plan import Action, AddFinalizer, ConditionState, Finding, WriteRegistry
from delayed_topics_operator.reconcile.access import may_adopt
from delayed_topics_operator.reconcile.take_over import held_by_other, taken


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    assert isinstance(o.connection, Usable)
    finalizer: tuple[Action, ...] = () if o.subject.has_finalizer else (AddFinalizer(),)
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
        # Who lost does not lie in wait: the next owner is who asks for it, not who happened to be refused before.
        message = f"the topic {names.front} was held by another resource and is free now: edit this resource's spec to claim it"
        return _stop(ConditionState(status="False", reason=Reason.CLAIMED_BY_OTHER, message=message))
    existing = [name for name in o.wanted.topics if kafka.topics.get(name) is not None]
    adopting = existing == [names.front] and may_adopt(o, connection)
    if existing and not adopting:
        return _stop(_foreign(o, existing))
    policy = kafka.configs.get(names.front, {}).get("cleanup.policy", "")
    if adopting and "compact" in policy:
        return _stop(_compacted(names.front, policy))
    claim = Claim(topic=names.front, owner=o.subject.owner, adopted=adopting, mark=creation_mark(o.subject.uid))
    how = ", adopting the front topic that exists" if adopting else ""
    return Finding(
        actions=(*finalizer, WriteRegistry(record=claim, why=f"claim {', '.join(o.wanted.topics)}{how}")),
        conditions={
            Condition.CLAIMED: ConditionState(
                status="Unknown", reason=Reason.IN_PROGRESS, message="the claim is being written"
            )
        },
        proceed=False,
    )


def _stop(said: ConditionState) -> Finding:
    return Finding(conditions={Condition.CLAIMED: said}, proceed=False)


def _held(own: Claim) -> ConditionState:
    adopted = "; the front topic existed before and is never deleted" if own.adopted else ""
    return ConditionState(
        status="True",
        reason=Reason.CLAIM_HELD,
        message=f"the names of {own.topic} and its topics belong to this resource{adopted}{taken(own)}",
    )


def _foreign(o: Observation, existing: list[str]) -> ConditionState:
    message = f"{_topics(existing)} in Kafka and belong to nobody in the registry; they are left alone: choose another topic name"
    if existing == [o.wanted.names.front]:
        message += ", or ask the connection's owner to allow adopting it (spec.allow[].adopt)"
    if existing == [o.wanted.names.control]:
        message += ", or remove spec.control"
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _compacted(name: str, policy: str) -> ConditionState:
    message = (
        f"the topic {name} exists already and has cleanup.policy={policy}: a delayed topic is deleted by time, which would cost "
        "this one the values it keeps; it is left alone: choose another topic name"
    )
    return ConditionState(status="False", reason=Reason.TOPIC_FOREIGN, message=message)


def _topics(names: list[str]) -> str:
    return f"the topic{'s' if len(names) > 1 else ''} {', '.join(names)} exist{'' if len(names) > 1 else 's'} already"
