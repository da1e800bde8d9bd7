"""What each namespace uses through each connection, for quotas. There are no counters: each answer is summed up anew.

The registry says who has topics and how many partitions, and Kubernetes has the workers and audits. What was admitted a moment ago can't be
seen there yet, and is noted here. A caller that asks what others use, and notes what it takes before it awaits anything, can't be admitted
at the same time as another caller, because all of this belongs to one event loop, and there is one operator.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import add
from typing import NamedTuple

from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import Grant, NamespaceQuota, QuotaHard, QuotaUsed

from delayed_topics_operator.connection.reconcile.grants import hard
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.installation import connection_of, front_topic
from delayed_topics_operator.engine.store import namespaces
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.labels import NAMESPACE_LABEL
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.partitions import partitions_of
from delayed_topics_operator.workers.observe import left_behind
from delayed_topics_operator.workers.reconcile.worker_sets import object_name


class Use(NamedTuple):
    """What uses a part of a quota. `resource`: for an audit, with its UID as the name. `topic`: tells uses of one name apart, since a
    resource that was deleted and created again may have kept the topics of the former one."""

    resource: Key
    topic: str


class Usage:
    """`changed`: called when another amount was noted for a connection."""

    def __init__(self, context: ControllerContext, *, changed: Callable[[Key], None]) -> None:
        self._context = context
        self._changed = changed
        self._admitted: dict[Key, tuple[Key, str, QuotaUsed]] = {}

    def others(self, use: Use, connection: Key, registry: RegistryState) -> QuotaUsed:
        """Returns what the namespace uses without this use."""
        found = self._amounts(connection, registry, use.resource.namespace)
        return total(amount for other, amount in found.items() if other != use)

    def by_namespace(self, connection: Key, registry: RegistryState) -> Mapping[str, QuotaUsed]:
        """Returns what each namespace uses, without those that use nothing."""
        sums: defaultdict[str, QuotaUsed] = defaultdict(QuotaUsed)
        for use, amount in self._amounts(connection, registry, None).items():
            sums[use.resource.namespace] += amount
        return {namespace: amount for namespace, amount in sums.items() if amount != QuotaUsed()}

    def quotas(self, connection: Key, registry: RegistryState, grants: Iterable[Grant]) -> tuple[NamespaceQuota, ...]:
        """Returns what each of these namespaces uses, and what it may use, sorted by name."""
        return tuple(
            _quota(namespace, hard(grants, self._labels(namespace)), used)
            for namespace, used in sorted(self.by_namespace(connection, registry).items())
        )

    def _labels(self, namespace: str) -> Mapping[str, str]:
        found = self._context.store.get("Namespace", "", namespace)
        return (found["metadata"].get("labels") or {}) if found is not None else {}

    def recorded(self, resource: Key) -> QuotaUsed:
        """Returns the amount that was noted for this resource, zero if there is none."""
        entry = self._admitted.get(resource)
        return entry[2] if entry is not None else QuotaUsed()

    def record(self, use: Use, connection: Key, amount: QuotaUsed) -> None:
        """Notes what the resource takes from now on. Must be called before anything is made for it."""
        before = self.recorded(use.resource)
        self._admitted[use.resource] = (connection, use.topic, amount)
        if before != amount:
            self._changed(connection)

    def forget(self, resource: Key) -> None:
        """Forgets a resource that is gone, or whose use can be seen in the registry and in Kubernetes by now."""
        entry = self._admitted.pop(resource, None)
        if entry is not None and entry[2] != QuotaUsed():
            self._changed(entry[0])

    def _amounts(self, connection: Key, registry: RegistryState, namespace: str | None) -> dict[Use, QuotaUsed]:
        """Returns the uses of one namespace, or of all (None)."""
        sums: defaultdict[Use, QuotaUsed] = defaultdict(QuotaUsed)
        for use, amount in (
            *self._topics(connection, registry, namespace),
            *self._workers(connection, namespace),
            *self._left_workers(connection, namespace),
            *self._executors(connection, namespace),
        ):
            sums[use] += amount
        for resource, (of, topic, amount) in self._admitted.items():
            if of == connection and namespace in (None, resource.namespace):
                sums[Use(resource, topic)] = sums[Use(resource, topic)].at_least(amount)
        return sums

    def _topics(
        self, connection: Key, registry: RegistryState, namespace: str | None
    ) -> Iterator[tuple[Use, QuotaUsed]]:
        """Yields the uses of topics, also those of deleted resources. Nothing says through which connection these were made, so they count
        for each."""
        for entry in registry.claims.values():
            claim = entry.claim
            if claim.owner.cluster != self._context.cluster or namespace not in (None, claim.owner.namespace):
                continue
            key = Key("DelayedTopic", claim.owner.namespace, claim.owner.name)
            if not self._counts_elsewhere(key, connection):
                layout = registry.layouts.get(claim.topic)
                ours = layout is not None and layout.owner == claim.owner
                partitions = (
                    partitions_of(layout, registry.topics.get(claim.topic)) if layout is not None and ours else 0
                )
                yield Use(key, claim.topic), QuotaUsed(delayed_topics=1, partitions=partitions)

    def _counts_elsewhere(self, key: Key, connection: Key) -> bool:
        """Whether the resource exists and names another connection to the same registry."""
        manifest = self._context.store.get(*key)
        theirs = connection_of(manifest) if manifest is not None else connection
        return theirs != connection and self._registry(theirs) == self._registry(connection)

    def _registry(self, connection: Key) -> str | None:
        status = (self._context.store.get(*connection) or {}).get("status") or {}
        return status.get("registryTopicId")

    def _workers(self, connection: Key, namespace: str | None) -> Iterator[tuple[Use, QuotaUsed]]:
        for manifest in self._all("DelayedTopic", namespace):
            key = Key("DelayedTopic", manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            if connection_of(manifest) == connection:
                home = self._context.settings.home(connection.kind, key.namespace)
                name = object_name(namespace=key.namespace, name=key.name, home=home)
                live = self._context.store.get("StatefulSet", home, name)
                if live is not None:
                    yield Use(key, front_topic(manifest)), QuotaUsed(workers=live["spec"].get("replicas", 1))

    def _left_workers(self, connection: Key, namespace: str | None) -> Iterator[tuple[Use, QuotaUsed]]:
        """Yields the workers of resources that are gone because somebody removed their finalizers. They run until the operator has found
        them. Nothing says which connection they use, so they count for each."""
        store, home = self._context.store, self._context.settings.namespace
        if connection.kind != "ClusterKafkaConnection":
            return
        live = (
            store.all("StatefulSet") if namespace is None else store.by_index("StatefulSet", _tenant, (namespace, home))
        )
        for manifest in left_behind(self._context, live, self._all("DelayedTopic", namespace)):
            [(tenant, _)] = _tenant(manifest)
            if tenant:
                resource = Key("StatefulSet", tenant, manifest["metadata"]["name"])
                yield Use(resource, ""), QuotaUsed(workers=manifest["spec"].get("replicas", 1))

    def _executors(self, connection: Key, namespace: str | None) -> Iterator[tuple[Use, QuotaUsed]]:
        for audit in self._all("DelayedTopicAudit", namespace):
            of = audit["spec"]["delayedTopicRef"]["name"]
            topic = self._context.store.get("DelayedTopic", audit["metadata"]["namespace"], of)
            if runs(audit) and (topic is None or connection_of(topic) == connection):
                executors = (audit["spec"].get("spark") or {}).get("executors", 0)
                yield use_of_audit(audit), QuotaUsed(executors=executors)

    def _all(self, kind: str, namespace: str | None) -> list[Manifest]:
        store = self._context.store
        return store.all(kind) if namespace is None else store.by_index(kind, namespaces, namespace)


def _tenant(stateful_set: Manifest) -> tuple[tuple[str, str]]:
    """For `Store.by_index`: the namespace of the resource whose workers these are, or "", and that of the StatefulSet."""
    meta = stateful_set["metadata"]
    return (((meta.get("labels") or {}).get(NAMESPACE_LABEL, ""), meta["namespace"]),)


def use_of_audit(audit: Manifest) -> Use:
    """Identifies the audit by its UID. One that was created again under the same name may run beside the former one, if someone removed
    the finalizer of that."""
    meta = audit["metadata"]
    return Use(Key("DelayedTopicAudit", meta["namespace"], meta["uid"]), audit["spec"]["delayedTopicRef"]["name"])


def runs(audit: Manifest) -> bool:
    """Whether the audit has begun and has no verdict yet. The finalizer is added before anything else, but someone may have removed it."""
    status = audit.get("status") or {}
    has_finalizer = FINALIZER in audit["metadata"].get("finalizers", ())
    return "verdict" not in status and (has_finalizer or "jobName" in status or "windowConfigMap" in status)


def _quota(namespace: str, limits: QuotaHard, used: QuotaUsed) -> NamespaceQuota:
    return NamespaceQuota(namespace=namespace, hard=limits if limits != QuotaHard() else None, used=used)


def total(amounts: Iterator[QuotaUsed]) -> QuotaUsed:
    return reduce(add, amounts, QuotaUsed())
