"""Checks that this resource may use the connection, and that the connection can be used."""

from collections.abc import Iterable

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Grant
from delayed_topics_crds.delayed_topic import MAX_PARTITIONS

from delayed_topics_operator.connection.reconcile.grants import LET_IN, covers
from delayed_topics_operator.connection.reconcile.pod_template import PATH, not_granted
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.values.plan import ConditionState, Finding
from delayed_topics_operator.values.selectors import selects


def check(o: Observation) -> Finding:
    total = sum(o.wanted.layout.wanted().values())
    if total > MAX_PARTITIONS:
        message = (
            f"spec asks for {total} partitions of the delays topic, but a topic can have at most {MAX_PARTITIONS}. "
            "Use fewer lanes or delays"
        )
        state = ConditionState(status="False", reason=Reason.SPEC_INVALID, message=message)
        return Finding(conditions={Condition.TOPICS_READY: state}, proceed=False)
    front = o.wanted.names.front
    if front in o.wanted.targets:
        message = f"spec.ready.allowedTopics has the front topic {front}, where released records would be delayed again. Remove it"
        state = ConditionState(status="False", reason=Reason.SPEC_INVALID, message=message)
        return Finding(conditions={Condition.READY: state}, proceed=False)
    if isinstance(o.connection, Unusable):
        state = ConditionState(status="Unknown", reason=o.connection.reason, message=o.connection.message)
        return Finding(conditions={Condition.CLAIMED: state, Condition.TOPICS_READY: state}, proceed=False)
    refusal = refused(o, o.connection)
    if refusal is None:
        return Finding()
    state = ConditionState(status="False", reason=Reason.NOT_ALLOWED, message=refusal)
    return Finding(conditions={Condition.CLAIMED: state}, proceed=False)


def refused(o: Observation, connection: Usable) -> str | None:
    """Returns why the connection's owner does not allow this resource, or None if it is allowed."""
    if not o.pods.allowed:
        return (
            f"the operator does not work in namespace {o.pods.home}. Either use a ClusterKafkaConnection, or ask a cluster administrator "
            f"to admit the namespace: {LET_IN}"
        )
    if connection.grants is None:
        return None
    topic = o.wanted.names.front
    of_namespace = [
        grant for grant in connection.grants if selects(grant.namespace_selector, o.subject.namespace_labels)
    ]
    if not of_namespace:
        return (
            f"{where(o)} has no grant for namespace {o.subject.namespace}. Ask its owner to add an entry to spec.allow"
        )
    of_topic = [grant for grant in of_namespace if topic.startswith(tuple(grant.topic_prefixes))]
    if not of_topic:
        prefixes = sorted({prefix for grant in of_namespace for prefix in grant.topic_prefixes})
        return (
            f"{where(o)} does not allow namespace {o.subject.namespace} to use topic {topic}, because its name has none of the allowed "
            f"prefixes ({', '.join(prefixes)}). Either name the topic accordingly in a new resource, or ask the connection's owner"
        )
    return _targets_refused(o, connection.grants) or _template_refused(o, connection.grants)


def _targets_refused(o: Observation, grants: Iterable[Grant]) -> str | None:
    granted = tuple(prefix for grant in covering(o, grants) for prefix in grant.ready_topic_prefixes)
    refused = [topic for topic in o.wanted.targets if not topic.startswith(granted)]
    if not refused:
        return None
    return (
        f"{where(o)} does not allow namespace {o.subject.namespace} to release records into {', '.join(refused)}. Either shorten "
        "spec.ready.allowedTopics, or ask the connection's owner for an entry of spec.allow[].readyTopicPrefixes"
    )


def covering(o: Observation, grants: Iterable[Grant]) -> list[Grant]:
    """Returns the grants for the namespace and the topic of the resource."""
    return [grant for grant in grants if covers(grant, o.wanted.names.front, o.subject.namespace_labels)]


def large_enough(o: Observation, grants: Iterable[Grant]) -> list[Grant]:
    """Returns the covering grants that allow the partitions of the resource. If none does, returns all covering grants; the topics then
    stay as they are."""
    found = covering(o, grants)
    return [grant for grant in found if _fits(grant, o)] or found


def may_adopt(o: Observation, connection: Usable) -> bool:
    """Whether the resource may adopt a front topic that exists already. Only a ClusterKafkaConnection can grant that."""
    return any(grant.adopt and _fits(grant, o) for grant in covering(o, connection.grants or ()))


def may_take_over(o: Observation, connection: Usable) -> bool:
    """Whether the topics of a resource of another Kubernetes cluster may be taken over.

    With a KafkaConnection, the namespace has credentials that could write the registry directly. The annotation therefore lets it take over
    the topics of the resource with the same namespace and name without a grant, but no others.
    """
    if connection.grants is None:
        holder = o.kafka.registered.holder if o.kafka is not None else None
        return holder is not None and holder.owner[1:] == o.subject.owner[1:]
    return any(grant.take_over and _fits(grant, o) for grant in covering(o, connection.grants))


def where(o: Observation) -> str:
    """Returns the kind and the name of the connection, for messages."""
    return f"{o.wanted.connection.kind} {o.wanted.connection.name}"


def _template_refused(o: Observation, grants: Iterable[Grant]) -> str | None:
    """Returns why no grant allows this worker template, or None. If several grants would be sufficient otherwise, the message is about the
    one that lacks the least."""
    lacking = [not_granted(o.wanted.template, grant.template) for grant in large_enough(o, grants)]
    least = min(lacking, key=len)
    if not least:
        return None
    return (
        f"{where(o)} does not allow namespace {o.subject.namespace} to use {', '.join(least)}. The workers run in namespace "
        f"{o.pods.home}, so the connection's owner decides about these fields. Either change {PATH}, or ask the connection's owner "
        "for an entry of spec.allow[].template"
    )


def _fits(grant: Grant, o: Observation) -> bool:
    """Whether a grant allows the partitions. The front and ready topics count too, because otherwise they could exceed a limit on the
    delays topic."""
    partitions = max(sum(o.wanted.layout.wanted().values()), o.wanted.front_partitions)
    return grant.max_partitions is None or partitions <= grant.max_partitions
