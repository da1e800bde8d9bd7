"""The workers that the DelayedTopics of a connection share: made, repaired and removed with what the connection says of them."""

import logging
from datetime import UTC, datetime

from delayed_topics_core.names import shared_group
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import KafkaConnectionStatus
from delayed_topics_crds.connection import SharedWorkers

from delayed_topics_operator.errors import KubeError, KubeUnreachable
from delayed_topics_operator.execute import Executor
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.observation import Shared
from delayed_topics_operator.observe.children import children
from delayed_topics_operator.observe.pods import pod_settings, pods_and_warnings
from delayed_topics_operator.plan import Action, ConditionState
from delayed_topics_operator.queue import Key
from delayed_topics_operator.reconcile.failures import reason_of
from delayed_topics_operator.reconcile.shared_workers import SharedObservation, plan
from delayed_topics_operator.reconcile.worker_set import all_ready, ours, removal
from delayed_topics_operator.settings import Settings
from delayed_topics_operator.store import Manifest, Store
from delayed_topics_operator.translate import status_of
from delayed_topics_operator.worker_sets import selector, shared_labels, shared_name, shared_worker_set

log = logging.getLogger(__name__)


class SharedWorkersOf:
    """Of all connections. `cluster`: the UID of the kube-system namespace."""

    def __init__(self, *, settings: Settings, kube: Kube, store: Store, executor: Executor, cluster: str) -> None:
        self._settings = settings
        self._kube = kube
        self._store = store
        self._executor = executor
        self._cluster = cluster

    async def reconcile(
        self, key: Key, raw: Manifest, asked: SharedWorkers | None, link: KafkaLink, *, before: Shared | None
    ) -> Shared | None:
        """How they are; None: there are to be none. `before`: how they were. Raises NotYet, KafkaCallError.

        What the API server does not do for them is no reason to leave the connection itself unchecked: it is tried again with the next
        pass.
        """
        try:
            return await self._reconciled(key, raw, asked, link)
        except KubeError as e:
            log.warning("%s: could not look after the shared workers, and will try again: %s", key, e)
            if asked is None:
                return None  # the workers have to be removed, and nobody waits for that
            if before is not None and isinstance(e, KubeUnreachable):
                return before
            said = ConditionState(
                status="False", reason=reason_of(e), message=f"could not create or change the shared workers: {e}"
            )
            return Shared(
                group=self._group(key),
                name=shared_name(key),
                selector=selector(shared_labels(key)),
                replicas=asked.replicas,
                ready_replicas=0,
                said=said,
            )

    def _group(self, key: Key) -> str:
        return shared_group(self._cluster, self._settings.namespace, key.kind, key.namespace, key.name)

    async def _reconciled(self, key: Key, raw: Manifest, asked: SharedWorkers | None, link: KafkaLink) -> Shared | None:
        """Raises KubeError, NotYet, KafkaCallError."""
        home, name = self._settings.home(key.kind, key.namespace), shared_name(key)
        resync_seconds = self._settings.resync_seconds
        live = await children(self._kube, self._store, home=home, name=name, resync_seconds=resync_seconds)
        if asked is None:
            gone = {at: found for at, found in live.items() if ours(found, shared_labels(key))}
            if gone and not self._serve_any(key, await link.registry()):
                await self._execute(key, removal(gone))
            return None
        workers = live.get(("StatefulSet", name))
        pods: tuple[Manifest, ...] = ()
        warnings: tuple[Manifest, ...] = ()
        if workers is not None and asked.replicas and not all_ready(workers, asked.replicas):
            pods, warnings = await pods_and_warnings(
                self._kube, workers, labels=selector(shared_labels(key)), expected=asked.replicas
            )
        wanted = shared_worker_set(
            connection=key,
            uid=raw["metadata"]["uid"],
            group=self._group(key),
            asked=asked,
            pods=pod_settings(self._settings, home=home, allowed=True),
            files=link.connection.to_files(),
        )
        actions, shared = plan(
            SharedObservation(
                now=datetime.now(UTC),
                wanted=wanted,
                group=self._group(key),
                live=live,
                worker_pods=pods,
                warnings=warnings,
                unready_since=_unready_since(raw),
                may_roll=self._executor.may_roll(home, name),
            )
        )
        await self._execute(key, actions)
        return shared

    def _serve_any(self, key: Key, registry: RegistryState) -> bool:
        """Whether topics have not gone to other workers yet."""
        group = self._group(key)
        return any(layout.group == group and layout.state != "retired" for layout in registry.layouts.values())

    async def _execute(self, key: Key, actions: tuple[Action, ...]) -> None:
        outcome = await self._executor.execute(key, actions, None)
        for failure in outcome.failures:
            raise failure.error


def _unready_since(raw: Manifest) -> datetime | None:
    known = status_of(KafkaConnectionStatus, raw).conditions
    return next(
        (c.last_transition_time for c in known if c.type == Condition.WORKERS_READY and c.status == "False"), None
    )
