"""Leaves the topics of another resource to it, unless the user asks to take them over and this is allowed.

A takeover is for a Kubernetes cluster that was lost and restored, or moved. The restored resources have another cluster id, and so are
other owners. Topics are never taken over from a resource of the same cluster, because that resource can be deleted instead. With a
ClusterKafkaConnection, a takeover needs a grant of the connection's owner. The annotation names the claim with its epoch, so that an old
annotation can't take the topics back later.
"""

from datetime import UTC, datetime

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile.access import may_take_over
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.own_workers import labels
from delayed_topics_operator.values.annotations import TAKE_OVER
from delayed_topics_operator.values.plan import (
    Action,
    AddFinalizer,
    ConditionState,
    Finding,
    RemoveFromRegistry,
    WriteRegistry,
)
from delayed_topics_operator.workers.reconcile.children import ours, removal


def stop_serving(o: Observation) -> Finding:
    """Removes the workers of a resource whose topics another one owns, whatever the other checks find."""
    holder = o.kafka.registered.holder if o.kafka is not None else None
    if holder is None or holder.owner == o.subject.owner:
        return Finding()
    return Finding(actions=removal({key: live for key, live in o.children.items() if ours(live, labels(o.subject))}))


def held_by_other(o: Observation, holder: Claim, own: Claim | None) -> Finding:
    """Handles topics that another resource owns. `own`: the claim of this resource, if it has one, which came second."""
    assert isinstance(o.connection, Usable), "access is checked first"
    names = _names(holder, o.subject.owner)
    asked = holder.topic == o.wanted.names.front and o.subject.take_over_from in names
    allowed = asked and may_take_over(o, o.connection)
    granted = allowed and o.beyond.topics is None
    if granted and (own is None or _succeeds(own, holder)):
        return _take_over(o, holder, own)
    withdraw: tuple[Action, ...] = ()
    if own is not None:
        withdraw = (
            RemoveFromRegistry(
                keys=(own.key,), why=f"withdraw the claim on {own.topic}, because {who(holder.owner)} claimed it first"
            ),
        )
    state = _not_granted(o, holder) if asked and not allowed else _held_by(o, holder, names)
    if allowed and o.beyond.topics is not None:
        state = o.beyond.topics
    return Finding(actions=withdraw, conditions={Condition.CLAIMED: state}, proceed=False)


def taken(own: Claim) -> str:
    """Returns the sentences that say from whom a claim was taken over, or nothing."""
    if own.taken_from is None:
        return ""
    at = datetime.fromtimestamp(own.taken_at_ms // 1000, UTC)
    return (
        f". The topics were taken over from {who(own.taken_from)} at {at:%Y-%m-%d %H:%M:%S} UTC. The annotation {TAKE_OVER} is no longer "
        "needed and can be removed"
    )


def who(owner: Owner) -> str:
    return f"DelayedTopic {owner.namespace}/{owner.name} (Kubernetes cluster {owner.cluster})"


def _names(holder: Claim, owner: Owner) -> tuple[str, ...]:
    """Returns the values that the annotation may have, the shortest first: the cluster is enough if namespace and name are the same."""
    epoch = f"@{holder.epoch}" if holder.epoch else ""
    whole = f"{holder.owner}{epoch}"
    if holder.owner.cluster == owner.cluster:
        return ()
    return (f"{holder.owner.cluster}{epoch}", whole) if holder.owner[1:] == owner[1:] else (whole,)


def _succeeds(own: Claim, holder: Claim) -> bool:
    return (own.taken_from, own.epoch) == (holder.owner, holder.epoch + 1)


def _take_over(o: Observation, holder: Claim, own: Claim | None) -> Finding:
    """Writes the new claim before the old one is removed, so that no other resource can claim the topics in between."""
    claim = Claim(
        topic=holder.topic,
        owner=o.subject.owner,
        adopted=holder.adopted,
        mark=holder.mark,
        epoch=holder.epoch + 1,
        taken_from=holder.owner,
        taken_at_ms=int(o.now.timestamp() * 1000),
    )
    finalizer: tuple[Action, ...] = () if o.subject.has_finalizer else (AddFinalizer(uid=o.subject.uid),)
    written = () if own else (WriteRegistry(record=claim, why=f"take over {claim.topic} from {who(holder.owner)}"),)
    removed = RemoveFromRegistry(
        keys=(holder.key,), why=f"remove the claim of {who(holder.owner)}, which was taken over"
    )
    state = ConditionState(
        status="Unknown",
        reason=Reason.IN_PROGRESS,
        message=f"the operator is taking over the topics from {who(holder.owner)}",
    )
    return Finding(actions=(*finalizer, *written, removed), conditions={Condition.CLAIMED: state}, proceed=False)


def _held_by(o: Observation, holder: Claim, names: tuple[str, ...]) -> ConditionState:
    lost = (
        ""
        if holder.taken_from != o.subject.owner
        else ", which took them over from this resource. The workers of this resource are stopped"
    )
    message = (
        f"the topics of {holder.topic} belong to {who(holder.owner)}{lost}. Either choose another spec.topic in a new resource, or have "
        "the owning DelayedTopic deleted with spec.deletionPolicy Delete and then edit this resource"
    )
    if names and holder.topic == o.wanted.names.front:
        allowed = (
            ", and the connection's owner allows it (spec.allow[].takeOver)"
            if o.wanted.connection.kind == "ClusterKafkaConnection"
            else ""
        )
        message += (
            f". You can take the topics over if that cluster no longer exists or gives them up{allowed}. To do so, annotate this "
            f"resource with {TAKE_OVER}={names[0]}"
        )
    return ConditionState(status="False", reason=Reason.CLAIMED_BY_OTHER, message=message)


def _not_granted(o: Observation, holder: Claim) -> ConditionState:
    message = (
        f"the topics of {holder.topic} belong to {who(holder.owner)}. {o.wanted.connection} does not allow namespace "
        f"{o.subject.namespace} to take them over. Ask the connection's owner for takeOver in an entry of spec.allow"
    )
    if o.wanted.connection.kind == "KafkaConnection":
        message = (
            f"the topics of {holder.topic} belong to {who(holder.owner)}. With a KafkaConnection you can take over only the topics of a "
            "DelayedTopic with the same namespace and name. For other topics, use a ClusterKafkaConnection whose owner allows it"
        )
    return ConditionState(status="False", reason=Reason.NOT_ALLOWED, message=message)
