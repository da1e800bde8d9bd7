"""Removes what is left of deleted resources: of those whose finalizer someone removed, so that the operator could not clean up, and the
Jobs that were kept for people to look at after an audit.

In a tenant's own namespace, the resource owns all objects that are made for it, and Kubernetes removes them. Objects in the namespaces of
the operator and of audits can't be owned by a resource in another namespace.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from delayed_topics_crds import API_VERSION

from delayed_topics_operator import metrics
from delayed_topics_operator.audits.reconcile import manifests as audits
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.errors import KubeError
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import MANAGED_BY, NAME_LABEL, NAMESPACE_LABEL
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import DeleteChild, Notice
from delayed_topics_operator.workers.observe import WATCHED, base_name, child_names, left_behind

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Orphans:
    """The objects that were made in namespace `home` for `owner`, which is gone. `objects`: kind and name, in the order in which they are
    removed. The operator can't list Secrets, so a Secret is removed before the last object that can be listed. `forced`: whether somebody
    has removed the finalizer of the owner."""

    owner: Key
    home: str
    objects: tuple[tuple[str, str], ...]
    forced: bool


class Sweeper:
    """`clock` counts monotonic seconds."""

    def __init__(self, context: ControllerContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._since: dict[Orphans, float] = {}

    async def sweep(self) -> None:
        """Removes objects whose resource has been gone for long enough. Must be called right after everything was listed. Objects that
        can't be removed are tried again the next time."""
        try:
            found = {*self._of_topics(), *await self._of_audits()}
        except KubeError as e:
            log.warning("could not look for objects of deleted resources, and will try again: %s", e)
            return
        now = self._clock()
        self._since = {orphans: self._since.get(orphans, now) for orphans in found}
        for orphans, since in self._since.items():
            if now - since >= self._context.settings.orphans_after_seconds:
                try:
                    await self._remove(orphans)
                except KubeError as e:
                    log.warning(
                        "could not remove the objects of %s, which was deleted, and will try again: %s",
                        orphans.owner,
                        e,
                    )

    def _of_topics(self) -> Iterator[Orphans]:
        home, store = self._context.settings.namespace, self._context.store
        live = chain.from_iterable(store.all(kind) for kind in WATCHED)
        for found in left_behind(self._context, live, store.all("DelayedTopic")):
            objects = child_names(base_name(found["kind"], found["metadata"]["name"]))
            yield Orphans(_owner("DelayedTopic", found), home, objects, forced=True)

    async def _of_audits(self) -> list[Orphans]:
        """Returns what is left of deleted audits. A Job with a time to live has ended, and its verdict was read. Kubernetes removes it and
        its window then, or the operator once the audit is gone. In all other cases somebody has removed the finalizer, and an audit that
        has its verdict counts as gone. Raises KubeError."""
        home, labels = self._context.settings.audit_namespace, audits.SELECTOR_LABELS
        known = {
            audits.job_name(audit["metadata"]["name"], audit["metadata"]["uid"]): _is_over(audit)
            for audit in self._context.store.all("DelayedTopicAudit")
        }
        left: list[Orphans] = []
        for job in await self._context.kube.list_all("Job", home, labels=labels, keep=_head):
            ended, name = "ttlSecondsAfterFinished" in job["spec"], _job(job)
            if name not in known or (known[name] and not ended):
                left.append(_of_audit(job, forced=not ended))
        for window in await self._context.kube.list_all("ConfigMap", home, labels=labels, keep=_head):
            if not window["metadata"].get("ownerReferences") and known.get(_job(window), True):
                left.append(_of_audit(window, forced=True))
        return left

    async def _remove(self, orphans: Orphans) -> None:
        """Raises KubeError."""
        live = [await self._context.kube.find(kind, orphans.home, name) for kind, name in orphans.objects]
        actions = tuple(
            DeleteChild(kind=kind, namespace=orphans.home, name=name, uid=found["metadata"]["uid"])
            for (kind, name), found in zip(orphans.objects, live, strict=True)
            if found is not None and _removable(found)
        )
        if not actions:
            return
        outcome = await self._context.executor.execute(orphans.owner, actions, None)
        for action in (action for action in actions if action in outcome.done):
            metrics.ORPHANS.labels(action.kind).inc()
        for failure in outcome.failures:
            raise failure.error
        if not orphans.forced:
            return
        how = "is gone" if self._context.store.get(*orphans.owner) is None else "is over"
        await self._context.recorder.record(_gone(orphans.owner), _notice(orphans, actions, how))


def _owner(kind: str, child: Manifest) -> Key:
    labels = child["metadata"].get("labels") or {}
    return Key(kind, labels.get(NAMESPACE_LABEL, ""), labels.get(NAME_LABEL, ""))


def _of_audit(child: Manifest, *, forced: bool) -> Orphans:
    home = child["metadata"]["namespace"]
    return Orphans(_owner("DelayedTopicAudit", child), home, audits.child_names(_job(child)), forced)


def _head(child: Manifest) -> Manifest:
    """Returns the object without its data: a window can have a MiB."""
    return {key: child[key] for key in ("kind", "metadata", "spec") if key in child}


def _job(child: Manifest) -> str:
    return str(child["metadata"]["labels"].get(audits.AUDIT_LABEL, ""))


def _removable(found: Manifest) -> bool:
    """Whether the operator made the object, and it is not being deleted already."""
    meta = found["metadata"]
    ours = (meta.get("labels") or {}).get("app.kubernetes.io/managed-by") == MANAGED_BY
    return ours and "deletionTimestamp" not in meta


def _gone(owner: Key) -> Manifest:
    """Returns what an Event about the deleted resource refers to. The UID is no longer known."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": ""},
    }


def _is_over(audit: Manifest) -> bool:
    return "verdict" in (audit.get("status") or {}) and FINALIZER not in audit["metadata"].get("finalizers", ())


def _notice(orphans: Orphans, actions: Iterable[DeleteChild], how: str) -> Notice:
    removed = ", ".join(f"{action.kind} {action.name}" for action in actions)
    kept = (
        ". Everything that it had in Kafka stays there, as with spec.deletionPolicy Retain"
        if orphans.owner.kind == "DelayedTopic"
        else ""
    )
    message = (
        f"{orphans.owner} {how}. Somebody had removed its finalizer, so that the operator could not clean up before. The "
        f"operator has now removed these objects in namespace {orphans.home}: {removed}{kept}"
    )
    return Notice(type="Warning", reason="OrphansRemoved", message=message, outlives_namespace=True)
