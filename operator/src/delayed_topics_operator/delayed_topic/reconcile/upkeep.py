"""Maintains the workers of a resource whose spec is refused.

A resource that asks for more than it may have, or for something that Kafka refuses, is not reconciled any further. Its workers continue
with their present layout, and get back a layout that they had given up for other workers. Some changes can't wait, and reach the workers
all the same: new credentials, a pause, the number of workers as far as it is granted, and that somebody else now owns the control topic.
The conditions also report whether the workers are ready, and their alarms.
"""

from collections.abc import Iterable
from dataclasses import replace

from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import LayoutRecord

from delayed_topics_operator.connection.reconcile.usable import Usable
from delayed_topics_operator.delayed_topic.reconcile import alarms, own_workers, workers
from delayed_topics_operator.delayed_topic.reconcile.observation import Observation
from delayed_topics_operator.delayed_topic.reconcile.target import given_back, kept_serving, written
from delayed_topics_operator.values.plan import Action, Finding, WriteRegistry, merged
from delayed_topics_operator.workers.reconcile import manifests
from delayed_topics_operator.workers.reconcile.children import in_the_way, ours


def check(o: Observation, planned: Iterable[Action]) -> Finding:
    """Keeps the present workers up to date. `planned`: the actions of the checks before."""
    if o.kafka is None or not isinstance(o.connection, Usable) or not o.pods.allowed:
        return Finding()
    holder, layout = o.kafka.registered.holder, o.kafka.registered.layout
    if holder is None or holder.owner != o.subject.owner or layout is None or layout.owner != o.subject.owner:
        return Finding()
    planned_layout = any(isinstance(a, WriteRegistry) and isinstance(a.record, LayoutRecord) for a in planned)
    going_on = given_back(o, o.kafka, layout) if layout.state == "retired" else kept_serving(o, layout)
    kept = () if planned_layout else written(o.kafka, going_on, "go on with")
    return merged((Finding(actions=kept), _workers(o, o.connection), _stays(o), alarms.check(o)))


def _workers(o: Observation, connection: Usable) -> Finding:
    """Maintains the resource's own workers, if it has some."""
    live = o.children.get(("StatefulSet", workers.workers_name(o)))
    if live is None or live["metadata"].get("deletionTimestamp") or not o.has_own_workers:
        return Finding()
    own = own_workers.worker_set(subject=o.subject, wanted=o.wanted, pods=o.pods, files=connection.files)
    secret = manifests.connection_secret(own, o.children)
    if not ours(live, own.labels):
        return Finding()
    if (stranger := in_the_way((secret,), o.children, own.labels)) is not None:
        return Finding(conditions={Condition.WORKERS_READY: stranger})
    reconnected = manifests.reconnected(live, own)
    wanted = (secret,) if reconnected is None else (secret, reconnected)
    found = workers.rolled(o, own, wanted)
    return replace(found, actions=(*found.actions, *workers.fences(o)))


def _stays(o: Observation) -> Finding:
    """Reports that the topics stay with their present workers although the spec moves them to others."""
    serving = workers.running_state(o) if o.group != o.wanted_group else None
    if serving is None:
        return Finding()
    message = (
        f"{serving.message}. The topics stay with the workers of group {o.group}, and go to those of group {o.wanted_group} when the "
        "operator can follow the spec"
    )
    return Finding(conditions={Condition.WORKERS_READY: replace(serving, message=message)})
