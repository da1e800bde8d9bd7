"""Keeps what runs in order while something that is asked for is refused.

A resource that asks for what it may not have, or for what Kafka refuses, is not reconciled any further: its workers go on with what they
had, and get back what they had given up for others. Some things reach them all the same, because they can't wait: new credentials, a
pause, the number of workers, as far as it is granted, and that the control topic is somebody else's now. Whether the workers are ready,
and their alarms, are shown as well.
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
from delayed_topics_operator.workers.reconcile.children import changes, in_the_way, ours


def check(o: Observation, planned: Iterable[Action]) -> Finding:
    """`planned`: what is done before."""
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
    """Those of its own, if it has some."""
    live = o.children.get(("StatefulSet", workers.workers_name(o)))
    if live is None or live["metadata"].get("deletionTimestamp") or not o.has_own_workers:
        return Finding()
    own = own_workers.worker_set(subject=o.subject, wanted=o.wanted, pods=o.pods, files=connection.files)
    secret = manifests.connection_secret(own)
    if not ours(live, own.labels):
        return Finding()
    if (stranger := in_the_way((secret,), o.children, own.labels)) is not None:
        return Finding(conditions={Condition.WORKERS_READY: stranger})
    reconnected = manifests.reconnected(live, own)
    wanted = (secret,) if reconnected is None else (secret, reconnected)
    found = workers.rolled(o, live, changes(wanted, o.children))
    return replace(found, actions=(*found.actions, *workers.fences(o)))


def _stays(o: Observation) -> Finding:
    """Topics that are to go to other workers stay with those that have them."""
    serving = workers.those_that_run(o) if o.group != o.wanted_group else None
    if serving is None:
        return Finding()
    message = (
        f"{serving.message}. The topics stay with the workers of group {o.group}, and go to those of group {o.wanted_group} when the "
        "operator can follow the spec"
    )
    return Finding(conditions={Condition.WORKERS_READY: replace(serving, message=message)})
