"""Are the workers, and what they need, there and as declared?"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from delayed_topics_core.names import transactional_id
from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import RefusedProtocol

from delayed_topics_operator import manifests
from delayed_topics_operator.drift import drifted
from delayed_topics_operator.gateways.kube import FIELD_MANAGER, of_quota
from delayed_topics_operator.observation import Manifest, Observation, Subject, Usable
from delayed_topics_operator.plan import Action, ApplyChild, DeleteChild, FenceWorkers, Finding, Said, ScaleWorkers
from delayed_topics_operator.pods import hindrance, told
from delayed_topics_operator.reconcile.assignor import mixes, stop_first
from delayed_topics_operator.reconcile.autoscale import last_scaled
from delayed_topics_operator.reconcile.target import record, target

ROLL_WAKE_SECONDS = 2.0
POD_WAKE_SECONDS = 10.0
"""Until pods that do not run are looked at again: nobody tells of them."""
STARTING_SECONDS = 120.0
_REMEDIES = {
    "image": "; correct the chart's images.worker or images.pullSecrets",
    "room": "; lower spec.workers.template.resources or add room",
    "memory": "; raise spec.workers.template.resources.limits.memory",
}
_IMMUTABLE = ("serviceName", "selector", "podManagementPolicy")


def check(o: Observation) -> Finding:
    assert o.kafka is not None, "access is checked first"
    assert isinstance(o.connection, Usable)
    name = workers_name(o)
    live = o.children.get(("StatefulSet", name))
    registered = o.kafka.registered.layout
    if live is None and (registered is None or registered.state != "serving"):
        said = Said(status="False", reason=Reason.WORKERS_STARTING, message="workers start when the topics are served")
        return Finding(conditions={Condition.WORKERS_READY: said})
    layout = registered or record(o, target(o, o.kafka), "planned")
    own = manifests.worker_set(subject=o.subject, wanted=o.wanted, pods=o.pods, files=o.connection.files)
    wanted = (*manifests.children(own), manifests.layout_config_map(own, layout))
    strangers = [
        m
        for m in wanted
        if (found := o.children.get((m["kind"], m["metadata"]["name"]))) and not ours(found, o.subject)
    ]
    if strangers:
        return Finding(conditions={Condition.WORKERS_READY: _strange(strangers[0])})
    actions = tuple(action for m in wanted if (action := _action(o, m)) is not None)
    if live is not None and not mixes(o) and (stopping := stop_first(o, live)) is not None:
        return stopping
    # Where there are none yet, none are replaced.
    starts = live is not None and not live["spec"]["replicas"] and o.wanted.replicas > 0
    held_back = any(isinstance(a, ApplyChild) and a.rolls for a in actions) and not o.may_roll and not starts
    if held_back:
        actions = (*(a for a in actions if not _of_pods(a)), *_scaling(o, live))
    said = _waits(o) if held_back else _said(o, live)
    wake_seconds = POD_WAKE_SECONDS if said.status == "False" and o.wanted.replicas else None
    return Finding(
        actions=(*actions, *fences(o)),
        conditions={Condition.WORKERS_READY: said},
        wake_seconds=ROLL_WAKE_SECONDS if held_back else wake_seconds,
    )


def _of_pods(action: Action) -> bool:
    """Whether it is about what pods are made of, or read."""
    return isinstance(action, ApplyChild) and action.kind in ("StatefulSet", "ConfigMap", "Secret")


def _scaling(o: Observation, live: Manifest | None) -> tuple[ScaleWorkers, ...]:
    """Workers that are added are like those that run, until it is their resource's turn."""
    if live is None or live["spec"]["replicas"] == o.wanted.replicas:
        return ()
    meta = live["metadata"]
    return (
        ScaleWorkers(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            present=live["spec"]["replicas"],
            replicas=o.wanted.replicas,
        ),
    )


def fences(o: Observation) -> tuple[FenceWorkers, ...]:
    """What a killed worker leaves open would hold readers back for up to 20 s, if no other of its name comes."""
    if o.wanted.guarantee != "ExactlyOnce" or not o.vanished:
        return ()
    return (FenceWorkers(transactional_ids=tuple(transactional_id(o.wanted.names.group, pod) for pod in o.vanished)),)


def workers_name(o: Observation) -> str:
    return manifests.object_name(namespace=o.subject.namespace, name=o.subject.name, home=o.pods.home)


def removal(children: Mapping[tuple[str, str], Manifest]) -> tuple[Action, ...]:
    """The StatefulSet goes in the foreground: it is gone when its pods are."""
    return tuple(
        DeleteChild(kind=kind, namespace=live["metadata"]["namespace"], name=name, uid=live["metadata"]["uid"])
        for (kind, name), live in sorted(children.items(), key=lambda entry: entry[0][0] != "StatefulSet")
        if not live["metadata"].get("deletionTimestamp")
    )


def _action(o: Observation, wanted: Manifest) -> Action | None:
    live = o.children.get((wanted["kind"], wanted["metadata"]["name"]))
    if live is None:
        return ApplyChild(manifest=wanted, change="created")
    if live["metadata"].get("deletionTimestamp"):
        return None  # somebody deleted it; it is made again when it is gone
    if drifted(wanted, live) is None:
        return None
    if wanted["kind"] == "StatefulSet":
        if any(drifted(wanted["spec"][field], live["spec"].get(field)) is not None for field in _IMMUTABLE):
            meta = live["metadata"]
            return DeleteChild(
                kind="StatefulSet", namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], orphan=True
            )
        rolls = drifted(wanted["spec"]["template"], live["spec"]["template"]) is not None
    else:
        rolls = False
    return ApplyChild(manifest=wanted, change=_change(wanted, live), rolls=rolls)


def _change(wanted: Manifest, live: Manifest) -> Literal["repaired", "changed"]:
    applied = (live["metadata"].get("annotations") or {}).get(manifests.APPLIED)
    return "repaired" if applied == wanted["metadata"]["annotations"][manifests.APPLIED] else "changed"


def ours(live: Manifest, subject: Subject) -> bool:
    """Nothing is taken over, or deleted, that somebody else made under the same name, or that is another resource's."""
    has, wanted = live["metadata"].get("labels") or {}, manifests.labels(subject)
    whose = {key for key in wanted if key.startswith("delayedtopics.io/")}
    if whose & has.keys():
        return all(has.get(key) == wanted[key] for key in whose)
    managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or ()}
    return FIELD_MANAGER in managers  # somebody took the labels away


def _strange(manifest: Manifest) -> Said:
    meta = manifest["metadata"]
    message = (
        f"{manifest['kind']} {meta['namespace']}/{meta['name']} exists and was not made by the operator; it is left alone: "
        "rename or delete it"
    )
    return Said(status="False", reason=Reason.WORKERS_FAILING, message=message)


def _waits(o: Observation) -> Said:
    message = (
        f"the workers of {o.wanted.names.front} are not as declared yet: replacing them waits until fewer other resources "
        "replace theirs; those that run go on"
    )
    return Said(status="False", reason=Reason.WORKERS_STARTING, message=message)


def _said(o: Observation, live: Manifest | None) -> Said:
    wanted = o.wanted.replicas
    if wanted == 0 and o.beyond.workers is not None:
        return Said(status="False", reason=Reason.GRANT_EXCEEDED, message=o.beyond.workers)
    if wanted == 0:
        message = "spec.workers.replicas is 0: records stay where they are; kubectl scale brings workers back"
        return Said(status="False", reason=Reason.SCALED_TO_ZERO, message=message)
    if live is not None and all_ready(live, wanted):
        message = f"{wanted} of {wanted} workers are ready"
        if o.beyond.workers is not None:
            return Said(status="True", reason=Reason.GRANT_EXCEEDED, message=f"{message}; {o.beyond.workers}")
        if o.refused_protocol is not None:
            return Said(
                status="True", reason=Reason.PROTOCOL_REFUSED, message=f"{message}; {_fallback(o.refused_protocol)}"
            )
        return Said(status="True", reason=Reason.AS_DECLARED, message=message)
    status = (live or {}).get("status") or {}
    ready = status.get("readyReplicas", 0) if live is not None and _current(live) else 0
    scaled, serving = last_scaled(o), status.get("readyReplicas", 0)
    if (
        scaled is not None
        and serving >= min(scaled.from_replicas, wanted)
        and _since(o, scaled.time) < STARTING_SECONDS
    ):
        # Nothing is wrong while autoscaling adds workers, or takes some away, and those that stay go on.
        message = f"{serving} of {wanted} workers are ready; autoscaling made it {wanted} at {scaled.time:%H:%M:%S} UTC"
        return Said(status="True", reason=Reason.AS_DECLARED, message=message)
    counts = f"{ready} of {wanted} workers are ready, {status.get('updatedReplicas', 0)} of the wanted revision"
    since = next(
        (c for c in o.subject.status.conditions if c.type == Condition.WORKERS_READY and c.status == "False"), None
    )
    overdue = since is not None and _since(o, since.last_transition_time) > STARTING_SECONDS
    found = next((what for pod in o.worker_pods if (what := hindrance(pod))), None) or told(o.warnings)
    if found is None:
        # The pods' own words are above: tenants may not look into the namespace of a cluster connection's workers.
        where = f"kubectl --namespace {o.pods.home} describe pods --selector {manifests.selector(o.subject)}"
        message = f"{counts}; see: {where}" if overdue else counts
        return Said(
            status="False", reason=Reason.WORKERS_FAILING if overdue else Reason.WORKERS_STARTING, message=message
        )
    message = f"{counts}: {found.message}{_REMEDIES.get(found.about, '')}"
    # A node may be on its way: whoever adds nodes sees the same.
    waits = found.about == "room" and not overdue
    reason = Reason.QUOTA_EXCEEDED if of_quota(found.message) else Reason.WORKERS_FAILING
    return Said(status="False", reason=Reason.WORKERS_STARTING if waits else reason, message=message)


def _since(o: Observation, moment: datetime) -> float:
    return (o.now - moment).total_seconds()


def _fallback(refused: RefusedProtocol) -> str:
    return (
        f"they have protocol Classic with assignor Range: {refused.message}. Edit the resource to have it tried again"
    )


def all_ready(live: Manifest, wanted: int) -> bool:
    """Whether the StatefulSet has that many pods, all of them as declared and ready."""
    status = live.get("status") or {}
    counts = (status.get("readyReplicas", 0), status.get("updatedReplicas", 0))
    return _current(live) and min(counts) >= wanted and status.get("replicas", 0) == wanted


def _current(live: Manifest) -> bool:
    return bool((live.get("status") or {}).get("observedGeneration", 0) >= live["metadata"].get("generation", 0))
