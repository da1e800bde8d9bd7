"""Topics that another resource holds: they are left to it, unless taking them over is asked for and granted.

For a Kubernetes cluster that was lost and restored, or moved: what is there has another cluster's id, and so is another owner. Never
from a resource of the same cluster, which can be deleted, nor without the word of the connection's owner. The claim that is taken is
named with its epoch, so that an annotation that stays can't take back what was taken from it.
"""

from datetime import UTC, datetime

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import Claim, Owner

from delayed_topics_operator.observation import Observation, Usable
from delayed_topics_operator.plan import (
    Action,
    AddFinalizer,
    ConditionState,
    Finding,
    RemoveFromRegistry,
    WriteRegistry,
)
from delayed_topics_operator.reconcile.access import may_take_over
from delayed_topics_operator.reconcile.worker_set import ours, removal
from delayed_topics_operator.translate import TAKE_OVER
from delayed_topics_operator.worker_sets import labels


def stop_serving(o: Observation) -> Finding:
    """What another holds is not served from here any more, whatever else is so."""
    holder = o.kafka.registered.holder if o.kafka is not None else None
    if holder is None or holder.owner == o.subject.owner:
        return Finding()
    return Finding(actions=removal({key: live for key, live in o.children.items() if ours(live, labels(o.subject))}))


def held_by_other(o: Observation, holder: Claim, own: Claim | None) -> Finding:
    """`own`: a claim that came second."""
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
                keys=(own.key,), why=f"withdraw the claim on {own.topic}, {who(holder.owner)} was first"
            ),
        )
    said = _not_granted(o, holder) if asked and not allowed else _held_by(o, holder, names)
    if allowed and o.beyond.topics is not None:
        said = o.beyond.topics
    return Finding(actions=withdraw, conditions={Condition.CLAIMED: said}, proceed=False)


def taken(own: Claim) -> str:
    """For people, of a claim that is held: whose it was."""
    if own.taken_from is None:
        return ""
    at = datetime.fromtimestamp(own.taken_at_ms // 1000, UTC)
    return f"; taken over from {who(own.taken_from)} at {at:%Y-%m-%d %H:%M:%S} UTC, {TAKE_OVER} can be removed"


def who(owner: Owner) -> str:
    return f"DelayedTopic {owner.namespace}/{owner.name} (Kubernetes cluster {owner.cluster})"


def _names(holder: Claim, owner: Owner) -> tuple[str, ...]:
    """What the annotation may say, the shortest first: the cluster is enough if namespace and name are the same."""
    epoch = f"@{holder.epoch}" if holder.epoch else ""
    whole = f"{holder.owner}{epoch}"
    if holder.owner.cluster == owner.cluster:
        return ()
    return (f"{holder.owner.cluster}{epoch}", whole) if holder.owner[1:] == owner[1:] else (whole,)


def _succeeds(own: Claim, holder: Claim) -> bool:
    return (own.taken_from, own.epoch) == (holder.owner, holder.epoch + 1)


def _take_over(o: Observation, holder: Claim, own: Claim | None) -> Finding:
    """The new claim is there before the old one goes: nobody else can come between."""
    claim = Claim(
        topic=holder.topic,
        owner=o.subject.owner,
        adopted=holder.adopted,
        mark=holder.mark,
        epoch=holder.epoch + 1,
        taken_from=holder.owner,
        taken_at_ms=int(o.now.timestamp() * 1000),
    )
    finalizer: tuple[Action, ...] = () if o.subject.has_finalizer else (AddFinalizer(),)
    written = () if own else (WriteRegistry(record=claim, why=f"take over {claim.topic} from {who(holder.owner)}"),)
    removed = RemoveFromRegistry(
        keys=(holder.key,), why=f"remove the claim of {who(holder.owner)}, which was taken over"
    )
    said = ConditionState(
        status="Unknown", reason=Reason.IN_PROGRESS, message=f"the topics are taken over from {who(holder.owner)}"
    )
    return Finding(actions=(*finalizer, *written, removed), conditions={Condition.CLAIMED: said}, proceed=False)


def _held_by(o: Observation, holder: Claim, names: tuple[str, ...]) -> ConditionState:
    lost = (
        "" if holder.taken_from != o.subject.owner else ", which took them over from here; the workers here are stopped"
    )
    message = (
        f"the topics of {holder.topic} belong to {who(holder.owner)}{lost}: choose another spec.topic in a new resource, or have that one "
        "deleted with deletionPolicy Delete, and then edit this one"
    )
    if names and holder.topic == o.wanted.names.front:
        message += (
            "; if that cluster is no more, or hands them over, and the connection's owner allows it (spec.allow[].takeOver), annotate "
            f"this resource with {TAKE_OVER}={names[0]}"
        )
    return ConditionState(status="False", reason=Reason.CLAIMED_BY_OTHER, message=message)


def _not_granted(o: Observation, holder: Claim) -> ConditionState:
    message = (
        f"the topics of {holder.topic} belong to {who(holder.owner)}, and {o.wanted.connection} does not allow namespace "
        f"{o.subject.namespace} to take them over: ask its owner for takeOver in an entry of spec.allow"
    )
    if o.wanted.connection.kind == "KafkaConnection":
        message = (
            f"the topics of {holder.topic} belong to {who(holder.owner)}: by a KafkaConnection only those of the same namespace and name "
            "can be taken over, others by a ClusterKafkaConnection whose owner allows it"
        )
    return ConditionState(status="False", reason=Reason.NOT_ALLOWED, message=message)
