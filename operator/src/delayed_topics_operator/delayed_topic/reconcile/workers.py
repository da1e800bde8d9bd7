"""Checks that the workers, and the objects that they need, exist and are as declared."""

from dataclasses import replace
from datetime import datetime

from delayed_topics_core.names import transactional_id
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_crds import RefusedProtocol

from delayed_topics_operator.connection.reconcile.pod_template import PATH
from delayed_topics_operator.connection.reconcile.usable import Shared, Usable
from delayed_topics_operator.delayed_topic.reconcile import handover, own_workers
from delayed_topics_operator.delayed_topic.reconcile.assignor import mixes, stop_first
from delayed_topics_operator.delayed_topic.reconcile.autoscale import last_scaled
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.target import record, target
from delayed_topics_operator.values.explain import explanation
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ConditionState, FenceWorkers, Finding
from delayed_topics_operator.workers.reconcile import manifests, worker_sets
from delayed_topics_operator.workers.reconcile.children import (
    NOTHING_RELEASED,
    STARTING_SECONDS,
    all_ready,
    awaited,
    changes,
    changes_for_now,
    in_the_way,
    not_ready,
    ours,
    removal,
)
from delayed_topics_operator.workers.reconcile.worker_sets import WorkerSet

ROLL_WAKE_SECONDS = 2.0
POD_WAKE_SECONDS = 10.0
"""The time after which pods that do not run are observed again. The operator does not watch pods."""


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    assert isinstance(o.connection, Usable)
    if not o.has_own_workers:
        assert o.connection.shared is not None, "they are wanted"
        return _shared(o, o.kafka.registered.layout, o.connection.shared)
    name = workers_name(o)
    live = o.children.get(("StatefulSet", name))
    registered = o.kafka.registered.layout
    if live is None and (registered is None or registered.served is None):
        state = ConditionState(
            status="False", reason=Reason.WORKERS_STARTING, message="the workers start when the topics are ready"
        )
        return Finding(conditions={Condition.WORKERS_READY: state})
    layout = registered or record(o, target(o, o.kafka), "planned")
    asked = o.wanted
    if live is not None and o.leaves_own_workers:
        labels = own_workers.labels(o.subject)
        asked = replace(asked, template=manifests.template_of(live, labels=labels, pods=o.pods))
    own = own_workers.worker_set(subject=o.subject, wanted=asked, pods=o.pods, files=o.connection.files)
    wanted = (*manifests.children(own, o.children), manifests.layout_config_map(own, layout))
    stranger = in_the_way(wanted, o.children, own.labels)
    if stranger is not None:
        return Finding(conditions={Condition.WORKERS_READY: stranger})
    if live is not None and not (o.shares_workers or mixes(o)) and (stopping := stop_first(o, live)) is not None:
        return stopping
    found = rolled(o, own, wanted)
    state = _handing_over(o) or found.conditions[Condition.WORKERS_READY]
    if (kept := handover.refused(o)) is not None:
        serving = running_state(o) or state
        state = replace(serving, message=f"{serving.message}. {kept}")
        state = _guarantee_not_kept(state) if o.wanted.spec.guarantee == "ExactlyOnce" else state
    return replace(found, actions=(*found.actions, *fences(o)), conditions={Condition.WORKERS_READY: state})


def rolled(o: Observation, own: WorkerSet, wanted: tuple[Manifest, ...]) -> Finding:
    """Returns the actions that bring about the wanted objects, as far as the workers may be replaced now."""
    state = _workers_state(o, o.children.get(("StatefulSet", own.name)))
    found = changes_for_now(wanted, o.children, own, o.rollout)
    if in_vain := tuple(action for action in found.every if action in o.in_vain):
        state = replace(state, message=f"{state.message}. {_put_back(in_vain)}")
    if not found.held_back:
        wake_seconds = POD_WAKE_SECONDS if state.status == "False" and o.wanted.replicas else None
        return Finding(actions=found.now, conditions={Condition.WORKERS_READY: state}, wake_seconds=wake_seconds)
    waits = any(action not in o.in_vain for action in found.held_back)
    return Finding(
        actions=found.now,
        conditions={Condition.WORKERS_READY: _waiting(o, state) if waits else state},
        wake_seconds=ROLL_WAKE_SECONDS if waits and not o.rollout.may_begin and not o.rollout.stuck else None,
    )


def running_state(o: Observation) -> ConditionState | None:
    """Returns the condition of the workers that have the topics now, whatever the spec asks for, or None if there are none."""
    if o.shares_workers and isinstance(o.connection, Usable) and o.connection.shared is not None:
        return o.connection.shared.said
    live = o.children.get(("StatefulSet", workers_name(o)))
    if live is None:
        return None
    replicas = live["spec"]["replicas"]
    if not replicas:
        message = f"there are no workers, so {NOTHING_RELEASED}"
        return ConditionState(status="False", reason=Reason.SCALED_TO_ZERO, message=message)
    return _workers_state(replace(o, wanted=replace(o.wanted, replicas=replicas)), live)


def _shared(o: Observation, registered: LayoutRecord | None, shared: Shared) -> Finding:
    """Handles workers that belong to the connection. The resource's only object is a ConfigMap with a copy of its layout for people."""
    own = own_workers.worker_set(subject=o.subject, wanted=o.wanted, pods=o.pods, files={})
    copies = [manifests.layout_config_map(own, registered)] if registered is not None else []
    kept = {(copy["kind"], copy["metadata"]["name"]) for copy in copies}
    former = {at: live for at, live in o.children.items() if at not in kept and ours(live, own.labels)}
    state = shared.said
    if registered is None or registered.served is None:
        message = "the shared workers start to serve the topics when the topics are ready"
        state = _handing_over(o) or ConditionState(status="False", reason=Reason.WORKERS_STARTING, message=message)
    return Finding(
        actions=(*changes(copies, o.children), *removal(former)), conditions={Condition.WORKERS_READY: state}
    )


def _handing_over(o: Observation) -> ConditionState | None:
    """Returns the condition while the topics move from one group to another, when no worker serves them."""
    if not handover.under_way(o) or o.kafka is None:
        return None
    layout = o.kafka.registered.layout
    if layout is None or layout.state != "retired":
        return None
    holders = ", ".join(handover.holders(o))
    by = f"These workers have not given them up yet: {holders}" if holders else "No worker has them at the moment"
    message = f"the topics move from the workers of group {o.group} to those of group {o.wanted_group}. {by}"
    return ConditionState(status="False", reason=Reason.WORKERS_STARTING, message=message)


def _guarantee_not_kept(serving: ConditionState) -> ConditionState:
    """Reports that shared workers keep the topics without the guarantee of the spec. `serving`: the condition of these workers."""
    message = (
        f"{serving.message}. Shared workers have the guarantee AtLeastOnce, so records may come out again, although spec.guarantee is "
        "ExactlyOnce. Either set it to AtLeastOnce, or create a new DelayedTopic, or ask the connection's owner to remove sharedWorkers"
    )
    return ConditionState(status="False", reason=Reason.SPEC_INVALID, message=message)


def _put_back(actions: tuple[Action, ...]) -> str:
    return (
        f"This changes nothing, probably because a webhook of the cluster puts back what there was: {explanation(actions)}. The operator "
        "tries again with each comparison. If you do not want what the webhook does, exempt these objects from it"
    )


def fences(o: Observation) -> tuple[FenceWorkers, ...]:
    """Fences workers that are gone for good. The open transaction of a killed worker would block consumers that read committed records for
    up to 20 s, if no worker of the same name starts again."""
    if o.wanted.spec.guarantee != "ExactlyOnce" or not o.vanished:
        return ()
    return (FenceWorkers(transactional_ids=tuple(transactional_id(o.wanted.names.group, pod) for pod in o.vanished)),)


def workers_name(o: Observation) -> str:
    """Returns the name of the StatefulSet of the resource's own workers."""
    return worker_sets.object_name(namespace=o.subject.namespace, name=o.subject.name, home=o.pods.home)


def _waiting(o: Observation, present: ConditionState) -> ConditionState:
    """Reports that the rollout waits. `present`: the condition of the running workers, which continue to serve until they are replaced."""
    until = awaited(o.rollout, o.pods.image)
    message = f"the workers of {o.wanted.names.front} are not as declared yet. {until}. {present.message}"
    reason = Reason.ROLLOUT_WAITING if present.status == "True" else present.reason
    return replace(present, reason=reason, message=message)


def _workers_state(o: Observation, live: Manifest | None) -> ConditionState:
    wanted = o.wanted.replicas
    if wanted == 0 and o.beyond.workers is not None:
        return ConditionState(status="False", reason=Reason.GRANT_EXCEEDED, message=o.beyond.workers)
    if wanted == 0:
        message = f"spec.workers.replicas is 0, so {NOTHING_RELEASED}. Use kubectl scale to start workers"
        return ConditionState(status="False", reason=Reason.SCALED_TO_ZERO, message=message)
    if live is not None and all_ready(live, wanted):
        message = f"{wanted} of {wanted} workers are ready"
        if o.beyond.workers is not None:
            return ConditionState(status="True", reason=Reason.GRANT_EXCEEDED, message=f"{message}. {o.beyond.workers}")
        if o.refused_protocol is not None:
            return ConditionState(
                status="True", reason=Reason.PROTOCOL_REFUSED, message=f"{message}. {_fallback(o.refused_protocol)}"
            )
        return ConditionState(status="True", reason=Reason.AS_DECLARED, message=message)
    scaled, serving = last_scaled(o), ((live or {}).get("status") or {}).get("readyReplicas", 0)
    if (
        scaled is not None
        and serving >= min(scaled.from_replicas, wanted)
        and _since(o, scaled.time) < STARTING_SECONDS
    ):
        # Nothing is wrong while autoscaling adds or removes workers and the others continue.
        message = f"{serving} of {wanted} workers are ready. Autoscaling set the number to {wanted} at {scaled.time:%H:%M:%S} UTC"
        return ConditionState(status="True", reason=Reason.AS_DECLARED, message=message)
    since = next(
        (c for c in o.subject.status.conditions if c.type == Condition.WORKERS_READY and c.status == "False"), None
    )
    overdue = since is not None and _since(o, since.last_transition_time) > STARTING_SECONDS
    where = f"kubectl --namespace {o.pods.home} describe pods --selector {worker_sets.selector(own_workers.labels(o.subject))}"
    return not_ready(
        live, wanted, pods=o.worker_pods, warnings=o.warnings, now=o.now, overdue=overdue, where=where, template=PATH
    )


def _since(o: Observation, moment: datetime) -> float:
    return (o.now - moment).total_seconds()


def _fallback(refused: RefusedProtocol) -> str:
    return (
        f"They use the protocol Classic with the assignor Range instead of the declared ones: {refused.message}. To have the declared "
        "ones tried again, edit this resource"
    )
