"""Checks that the shared workers of a connection exist and are as declared. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime

from delayed_topics_core.reasons import Reason
from delayed_topics_core.words import shortened

from delayed_topics_operator.connection.reconcile.usable import Shared
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ConditionState
from delayed_topics_operator.values.rollout import Rollout
from delayed_topics_operator.workers.reconcile import manifests, worker_sets
from delayed_topics_operator.workers.reconcile.children import (
    NOTHING_RELEASED,
    STARTING_SECONDS,
    all_ready,
    awaited,
    changes_for_now,
    in_the_way,
    not_ready,
)
from delayed_topics_operator.workers.reconcile.manifests import Live
from delayed_topics_operator.workers.reconcile.worker_sets import WorkerSet

TEMPLATE = "spec.sharedWorkers.template"


@dataclass(frozen=True, kw_only=True)
class SharedObservation:
    """`wanted`: the desired workers. `group`: their consumer group. `live`: their present objects. `worker_pods`, `warnings`: pods and
    Events that may say why not all workers are ready. `unready_since`: since when the connection's condition says so. `rollout`: whether
    their pods may be replaced now.

    `kept_for`: the front topics that the workers still serve, although the spec no longer has them; None: the spec has them."""

    now: datetime
    wanted: WorkerSet
    group: str
    live: Live
    worker_pods: tuple[Manifest, ...]
    warnings: tuple[Manifest, ...]
    unready_since: datetime | None
    rollout: Rollout
    kept_for: tuple[str, ...] | None = None


def plan(o: SharedObservation) -> tuple[tuple[Action, ...], Shared]:
    """Returns what has to be done, and the state of the shared workers before that."""
    wanted = manifests.children(o.wanted, o.live)
    stateful_set = o.live.get(("StatefulSet", o.wanted.name))
    stranger = in_the_way(wanted, o.live, o.wanted.labels)
    found = changes_for_now(wanted, o.live, o.wanted, o.rollout)
    status = (stateful_set or {}).get("status") or {}
    state = stranger or _state(o, stateful_set)
    if stranger is None and found.held_back:
        until = awaited(o.rollout, o.wanted.pods.image)
        state = replace(state, message=f"{state.message}. The shared workers are not as declared yet. {until}")
    if o.kept_for is not None:
        state = replace(state, message=f"{state.message}. {_why_kept(o.kept_for)}")
    shared = Shared(
        group=o.group,
        name=o.wanted.name,
        selector=worker_sets.selector(o.wanted.labels),
        replicas=o.wanted.replicas,
        ready_replicas=status.get("readyReplicas", 0),
        said=state,
        leaving=o.kept_for is not None,
    )
    return found.now if stranger is None else (), shared


def _why_kept(topics: tuple[str, ...]) -> str:
    return (
        "spec.sharedWorkers was removed from the connection. The shared workers go on until all topics that they serve have other "
        f"workers. These have none yet: {shortened(topics)}. See the condition WorkersReady of their DelayedTopics"
    )


def _state(o: SharedObservation, live: Manifest | None) -> ConditionState:
    replicas = o.wanted.replicas
    if replicas == 0:
        message = f"spec.sharedWorkers.replicas of the connection is 0, so {NOTHING_RELEASED}"
        return ConditionState(status="False", reason=Reason.SCALED_TO_ZERO, message=message)
    if live is not None and all_ready(live, replicas):
        message = f"{replicas} of {replicas} shared workers are ready"
        return ConditionState(status="True", reason=Reason.AS_DECLARED, message=message)
    overdue = o.unready_since is not None and (o.now - o.unready_since).total_seconds() > STARTING_SECONDS
    where = f"kubectl --namespace {o.wanted.home} describe pods --selector {worker_sets.selector(o.wanted.labels)}"
    return not_ready(
        live,
        replicas,
        pods=o.worker_pods,
        warnings=o.warnings,
        now=o.now,
        overdue=overdue,
        where=where,
        template=TEMPLATE,
    )
