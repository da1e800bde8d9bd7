"""Computes the actions that bring the objects around a StatefulSet of workers to their declared state. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from delayed_topics_core.reasons import Reason

from delayed_topics_operator.errors import of_quota
from delayed_topics_operator.values.field_managers import FIELD_MANAGER
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ApplyChild, ConditionState, DeleteChild, ScaleWorkers
from delayed_topics_operator.values.pods import hindrance, obstacle_of_events
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.values.stateful_sets import is_current
from delayed_topics_operator.workers.reconcile import manifests
from delayed_topics_operator.workers.reconcile.drift import drifted
from delayed_topics_operator.workers.reconcile.manifests import Live
from delayed_topics_operator.workers.reconcile.worker_sets import WorkerSet

STARTING_SECONDS = 120.0
"""The time that workers may take to become ready."""
NOTHING_RELEASED = (
    "nothing is released, and Kafka removes each record when it is older than the retention.ms of its topic"
)
"""The part of a message that says what it means to have no workers."""
_REMEDIES = {
    "image": ". Correct the chart values images.worker or images.pullSecrets. In the namespace of a KafkaConnection, workers pull with the "
    "imagePullSecrets of the ServiceAccount default",
    "room": ". Either lower {template}.resources, or add room on the nodes",
    "memory": ". Raise {template}.resources.limits.memory",
}
_IMMUTABLE = ("serviceName", "selector", "podManagementPolicy")


@dataclass(frozen=True, kw_only=True)
class Changes:
    """`every`: the actions that turn the live objects into the wanted ones. `now`: what may be done now instead."""

    every: tuple[Action, ...]
    now: tuple[Action, ...]

    @property
    def held_back(self) -> tuple[Action, ...]:
        """The actions that wait until pods may be replaced."""
        return tuple(action for action in self.every if replaces_pods((action,)) and action not in self.now)


def changes(wanted: Iterable[Manifest], live: Live) -> tuple[Action, ...]:
    """Returns the actions that turn the live objects into the wanted ones."""
    found = (_change_of(manifest, live.get((manifest["kind"], manifest["metadata"]["name"]))) for manifest in wanted)
    return tuple(action for action in found if action is not None)


def changes_for_now(wanted: tuple[Manifest, ...], live: Live, workers: WorkerSet, rollout: Rollout) -> Changes:
    """Returns the actions, and which of them need not wait. While pods may not be replaced, the StatefulSet is only scaled. While only the
    present chart values are held back, it gets a new connection as well: a password or certificate may expire."""
    stateful_set = live.get(("StatefulSet", workers.name))
    every = now = changes(wanted, live)
    if stateful_set is None or not replaces_pods(every):
        return Changes(every=every, now=now)
    if rollout.stuck:
        reconnected = manifests.reconnected(stateful_set, workers)
        others = (manifest for manifest in wanted if manifest["kind"] != "StatefulSet")
        now = changes((*others, *((reconnected,) if reconnected is not None else ())), live)
    if not rollout.may_begin and replaces_pods(now):
        scaling = _scaling(stateful_set, workers.replicas)
        now = (*(action for action in now if not _of_pods(action)), *scaling)
    return Changes(every=every, now=now)


def replaces_pods(actions: Iterable[Action]) -> bool:
    return any(isinstance(action, ApplyChild) and action.rolls for action in actions)


def _scaling(live: Manifest, replicas: int) -> tuple[ScaleWorkers, ...]:
    """Scales the StatefulSet while its rollout waits. Workers that are added are like those that run."""
    meta, present = live["metadata"], live["spec"]["replicas"]
    if present == replicas:
        return ()
    named = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    return (ScaleWorkers(**named, present=present, replicas=replicas),)


def in_the_way(wanted: Iterable[Manifest], live: Live, labels: Mapping[str, str]) -> ConditionState | None:
    """Returns the condition for an object that somebody else created under a wanted name, or None. The operator leaves such an object
    alone."""
    for manifest in wanted:
        found = live.get((manifest["kind"], manifest["metadata"]["name"]))
        if found is not None and not ours(found, labels):
            return _strange(manifest)
    return None


def _of_pods(action: Action) -> bool:
    """Whether the action changes the pod template, or a file that pods read."""
    return isinstance(action, ApplyChild) and action.kind in ("StatefulSet", "Secret")


def ours(live: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether the object belongs to the resource with these labels. An object that somebody else created under the same name, or that
    belongs to another resource, is neither changed nor deleted."""
    has = live["metadata"].get("labels") or {}
    whose = {key for key in labels if key.startswith("delayedtopics.io/")}
    if whose & has.keys():
        return all(has.get(key) == labels[key] for key in whose)
    managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or ()}
    return FIELD_MANAGER in managers  # somebody has removed the labels


def not_ready(
    live: Manifest | None,
    wanted: int,
    *,
    pods: Iterable[Manifest],
    warnings: tuple[Manifest, ...],
    now: datetime,
    overdue: bool,
    where: str,
    template: str,
) -> ConditionState:
    """Returns the condition that says why not all workers are ready. `overdue`: whether workers have had enough time to start. `where`: the
    command that shows their pods. `template`: the path of the field with their pod template."""
    status = (live or {}).get("status") or {}
    ready = status.get("readyReplicas", 0) if live is not None and is_current(live) else 0
    counts = f"{ready} of {wanted} workers are ready, and {status.get('updatedReplicas', 0)} of {wanted} are up to date"
    found = next((what for pod in pods if (what := hindrance(pod, now))), None) or obstacle_of_events(warnings)
    if found is None:
        # Where pods or events give a reason, the message has it: tenants may have no access to the namespace of these workers.
        message = f"{counts}. To find the cause, run: {where}" if overdue else counts
        return ConditionState(
            status="False", reason=Reason.WORKERS_FAILING if overdue else Reason.WORKERS_STARTING, message=message
        )
    message = f"{counts}: {found.message.removesuffix('.')}{_REMEDIES.get(found.about, '').format(template=template)}"
    # A node may be on its way, because an autoscaler of the cluster reacts to the same pod.
    waits = found.about == "room" and not overdue
    reason = Reason.QUOTA_EXCEEDED if of_quota(found.message) else Reason.WORKERS_FAILING
    return ConditionState(status="False", reason=Reason.WORKERS_STARTING if waits else reason, message=message)


def awaited(rollout: Rollout, image: str) -> str:
    """Returns what workers wait for that may not be replaced yet."""
    if not rollout.stuck:
        return "Their replacement waits until fewer other resources replace their workers"
    return (
        f"Their replacement waits until a worker with the image {image} and the present chart value pods is ready. {rollout.stuck} other "
        "resources have replaced their workers by such workers, which do not become ready. A cluster administrator finds the cause in the "
        "condition WorkersReady of these resources, and corrects it or the chart values images.worker and pods. Until then, only the "
        "number of workers and their credentials are kept up to date"
    )


def removal(children: Mapping[tuple[str, str], Manifest]) -> tuple[Action, ...]:
    """Returns the deletions, the StatefulSet first. It is deleted in the foreground, so that it is gone only when its pods are."""
    return tuple(
        DeleteChild(kind=kind, namespace=live["metadata"]["namespace"], name=name, uid=live["metadata"]["uid"])
        for (kind, name), live in sorted(children.items(), key=lambda entry: entry[0][0] != "StatefulSet")
        if not live["metadata"].get("deletionTimestamp")
    )


def all_ready(live: Manifest, wanted: int) -> bool:
    """Whether the StatefulSet has that many pods, all of them as declared and ready."""
    status = live.get("status") or {}
    counts = (status.get("readyReplicas", 0), status.get("updatedReplicas", 0))
    return is_current(live) and min(counts) >= wanted and status.get("replicas", 0) == wanted


def ready_pods(live: Manifest, wanted: int) -> int:
    """Returns the number of ready pods; 0 while the StatefulSet has more pods than wanted, or its status is not up to date."""
    status = live.get("status") or {}
    too_many = not is_current(live) or status.get("replicas", 0) > wanted
    return 0 if too_many else int(status.get("readyReplicas", 0))


def _change_of(wanted: Manifest, live: Manifest | None) -> Action | None:
    if live is None:
        return ApplyChild(manifest=wanted, change="created")
    if live["metadata"].get("deletionTimestamp"):
        return None  # somebody deleted it; a later pass creates it again when it is gone
    if drifted(wanted, live) is None:
        return None
    if wanted["kind"] == "StatefulSet":
        if any(drifted(wanted["spec"][field], live["spec"].get(field)) is not None for field in _IMMUTABLE):
            meta = live["metadata"]
            return DeleteChild(
                kind="StatefulSet", namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], orphan=True
            )
        edited = drifted(wanted["spec"]["template"], live["spec"]["template"]) is not None or _lacks_a_field(
            wanted, live
        )
        rolls = edited and live["spec"].get("replicas", 1) > 0
        return ApplyChild(manifest=wanted, change=_change(wanted, live), rolls=rolls)
    return ApplyChild(manifest=wanted, change=_change(wanted, live))


def _lacks_a_field(wanted: Manifest, live: Manifest) -> bool:
    """Whether the wanted pod template lacks a field that the operator set before. To apply it removes the field, and so replaces pods,
    although all that is wanted is there."""
    before = (live["metadata"].get("annotations") or {}).get(manifests.TEMPLATE)
    return before is not None and before != wanted["metadata"]["annotations"][manifests.TEMPLATE]


def _change(wanted: Manifest, live: Manifest) -> Literal["repaired", "changed"]:
    applied = (live["metadata"].get("annotations") or {}).get(manifests.APPLIED)
    return "repaired" if applied == wanted["metadata"]["annotations"][manifests.APPLIED] else "changed"


def _strange(manifest: Manifest) -> ConditionState:
    meta = manifest["metadata"]
    message = (
        f"{manifest['kind']} {meta['namespace']}/{meta['name']} already exists, and it was not made by the operator. The operator "
        "leaves it alone. Either delete it, or create it under another name"
    )
    return ConditionState(status="False", reason=Reason.WORKERS_FAILING, message=message)
