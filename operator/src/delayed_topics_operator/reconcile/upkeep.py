"""Keeps what runs in order while something that is asked for is refused.

A resource that asks for what it may not have, or for what Kafka refuses, is not reconciled any further: its workers go on with what they
had. Three things reach them all the same, because they can't wait: new credentials, a pause, and the number of workers, as far as it is
granted. Whether the workers are ready, and their alarms, are shown as well.
"""

from collections.abc import Iterable
from dataclasses import replace

from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import LayoutRecord

from delayed_topics_operator import manifests, worker_sets
from delayed_topics_operator.observation import Observation, Usable
from delayed_topics_operator.plan import Action, Finding, WriteRegistry
from delayed_topics_operator.reconcile import alarms, workers
from delayed_topics_operator.reconcile.worker_set import changes, in_the_way, ours


def check(o: Observation, planned: Iterable[Action]) -> Finding:
    """`planned`: what is done before."""
    if o.kafka is None or not isinstance(o.connection, Usable) or not o.pods.allowed:
        return Finding()
    holder, layout = o.kafka.registered.holder, o.kafka.registered.layout
    if holder is None or holder.owner != o.subject.owner or layout is None or layout.owner != o.subject.owner:
        return Finding()
    kept, raised = _workers(o, o.connection), alarms.check(o)
    planned_layout = any(isinstance(a, WriteRegistry) and isinstance(a.record, LayoutRecord) for a in planned)
    return Finding(
        actions=(*(() if planned_layout else _followed(o, layout)), *kept.actions),
        conditions={**kept.conditions, **raised.conditions},
        notices=raised.notices,
        wake_seconds=min((s for s in (kept.wake_seconds, raised.wake_seconds) if s is not None), default=None),
    )


def _followed(o: Observation, layout: LayoutRecord) -> tuple[WriteRegistry, ...]:
    """Workers follow the registry."""
    wanted = _as_asked(o, layout)
    if wanted == layout:
        return ()
    if wanted.paused == layout.paused:
        why = f"note how many workers {wanted.topic} has"
    else:
        why = f"{'pause' if wanted.paused else 'resume'} {wanted.topic}"
    return (WriteRegistry(record=wanted, why=why),)


def _as_asked(o: Observation, layout: LayoutRecord) -> LayoutRecord:
    return replace(
        layout,
        paused=o.wanted.spec.paused,
        workers=None if layout.workers is None else o.wanted.replicas,
        before=_as_asked(o, layout.before) if layout.before is not None else None,
    )


def _workers(o: Observation, connection: Usable) -> Finding:
    """Those of its own, if it has some."""
    live = o.children.get(("StatefulSet", workers.workers_name(o)))
    if live is None or live["metadata"].get("deletionTimestamp") or not o.has_own_workers:
        return Finding()
    own = worker_sets.worker_set(subject=o.subject, wanted=o.wanted, pods=o.pods, files=connection.files)
    secret = manifests.connection_secret(own)
    if not ours(live, own.labels):
        return Finding()
    if (stranger := in_the_way((secret,), o.children, own.labels)) is not None:
        return Finding(conditions={Condition.WORKERS_READY: stranger})
    found = workers.rolled(o, live, changes((secret, *manifests.reconnected(live, own)), o.children))
    return replace(found, actions=(*found.actions, *workers.fences(o)))
