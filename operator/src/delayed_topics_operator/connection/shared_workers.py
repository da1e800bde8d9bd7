"""Creates, repairs and removes the workers that the DelayedTopics of a connection share."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from delayed_topics_core.names import shared_group
from delayed_topics_core.reasons import Condition
from delayed_topics_core.registry import LayoutRecord
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_crds import KafkaConnectionStatus
from delayed_topics_crds.connection import SharedWorkers
from delayed_topics_kafka.errors import KafkaCallError

from delayed_topics_operator.connection.reconcile.shared_workers import SharedObservation, plan
from delayed_topics_operator.connection.reconcile.usable import Shared
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.installation import connection_of, front_topic
from delayed_topics_operator.engine.pods import pods_and_warnings
from delayed_topics_operator.errors import KubeError, KubeUnreachable, reason_of
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.conditions import status_of
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Action, ConditionState, WriteRegistry
from delayed_topics_operator.workers.observe import children, pod_settings
from delayed_topics_operator.workers.reconcile.children import all_ready, ours, removal
from delayed_topics_operator.workers.reconcile.manifests import installation, template_of
from delayed_topics_operator.workers.reconcile.worker_sets import (
    PodSettings,
    selector,
    shared_labels,
    shared_name,
    shared_worker_set,
)

log = logging.getLogger(__name__)


class SharedWorkersOf:
    """The shared workers of all connections."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def reconcile(
        self, key: Key, raw: Manifest, asked: SharedWorkers | None, link: KafkaLink, *, before: Shared | None
    ) -> Shared | None:
        """Returns the state of the shared workers. None: there are none, and the spec has none. `before`: their former state. Raises
        NotYet, KafkaCallError.

        A failed call to the API server is tried again with the next pass, and does not keep the connection itself from being checked.
        """
        try:
            return await self._reconciled(key, raw, asked, link)
        except KubeError as e:
            log.warning("%s: could not look after the shared workers, and will try again: %s", key, e)
            if asked is None:  # they go on, or have to be removed, and no one waits for either
                return before and replace(before, leaving=True)
            if before is not None and isinstance(e, KubeUnreachable):
                return before
            state = ConditionState(
                status="False", reason=reason_of(e), message=f"could not create or change the shared workers: {e}"
            )
            return Shared(
                group=self._group(key),
                name=shared_name(key),
                selector=selector(shared_labels(key)),
                replicas=asked.replicas,
                ready_replicas=0,
                said=state,
            )

    def _group(self, key: Key) -> str:
        return shared_group(self._context.cluster, self._context.settings.namespace, key.kind, key.namespace, key.name)

    async def _reconciled(self, key: Key, raw: Manifest, asked: SharedWorkers | None, link: KafkaLink) -> Shared | None:
        """Raises KubeError, NotYet, KafkaCallError."""
        home, name, labels = self._context.settings.home(key.kind, key.namespace), shared_name(key), shared_labels(key)
        given = pod_settings(self._context.settings, home=home, allowed=True)
        live = await children(self._context, home=home, name=name)
        workers = live.get(("StatefulSet", name))
        present = {at: found for at, found in live.items() if ours(found, labels)}
        if asked is None and not present:
            return None
        await self._retire_abandoned(key, link)
        kept_for: tuple[str, ...] | None = None
        if asked is None:
            kept_for = self._served(key, await link.registry())
            if not kept_for:
                await self._execute(key, removal(present))
                return None
            # now only the StatefulSet says how many workers there are to be, and with which template
            asked = _as_they_are(workers, labels=labels, pods=given) if workers is not None else SharedWorkers()
        wanted = shared_worker_set(
            connection=key,
            uid=raw["metadata"]["uid"],
            group=self._group(key),
            asked=asked,
            pods=given,
            files=link.connection.to_files(),
        )
        pods: tuple[Manifest, ...] = ()
        warnings: tuple[Manifest, ...] = ()
        if workers is not None and wanted.replicas and not all_ready(workers, wanted.replicas):
            pods, warnings = await pods_and_warnings(
                self._context.kube, workers, labels=selector(labels), expected=wanted.replicas
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
                rollout=self._context.executor.rollouts.look(installation(given), home, name),
                kept_for=kept_for,
            )
        )
        await self._execute(key, actions)
        return shared

    async def _retire_abandoned(self, key: Key, link: KafkaLink) -> None:
        """Retires layouts that no DelayedTopic needs any more, so that the shared workers give them up. A DelayedTopic leaves such a layout
        behind if it is deleted while Kafka is unreachable, or if someone removes its finalizer. A failure is tried again with the next
        pass."""
        group = self._group(key)
        try:
            for layout in (await link.registry()).layouts.values():
                served = layout.group == group and layout.state != "retired"
                of_this_cluster = layout.owner.cluster == self._context.cluster
                if served and of_this_cluster and not await self._is_asked_for(layout, key, link):
                    gone = f"no DelayedTopic {layout.owner.namespace}/{layout.owner.name} asks for it any more"
                    why = f"retire the layout of {layout.topic}, since {gone}"
                    await self._execute(key, (WriteRegistry(record=replace(layout, state="retired"), why=why),), link)
        except (KubeError, KafkaCallError) as e:
            log.warning("%s: could not retire layouts of deleted resources, and will try again: %s", key, e)

    async def _is_asked_for(self, layout: LayoutRecord, key: Key, link: KafkaLink) -> bool:
        """Whether a DelayedTopic needs this layout. If the store has none, the API server is asked, because a watch may be behind. Raises
        KubeError."""
        _, namespace, name = layout.owner
        known = self._context.store.get("DelayedTopic", namespace, name)
        if known is not None and self._asks_for(known, layout, key, link):
            return True
        found = await self._context.kube.list_one("DelayedTopic", namespace, name)
        return found is not None and self._asks_for(found, layout, key, link)

    def _asks_for(self, found: Manifest, layout: LayoutRecord, key: Key, link: KafkaLink) -> bool:
        """Whether this DelayedTopic needs the layout. One that was created again under the same name may be for another topic, or for
        another Kafka cluster."""
        connection = connection_of(found)
        status = (self._context.store.get(*connection) or {}).get("status") or {}
        leads_here = connection == key or status.get("registryTopicId") in (None, link.registry_id)
        return leads_here and front_topic(found) == layout.topic

    def _served(self, key: Key, registry: RegistryState) -> tuple[str, ...]:
        """Returns the front topics that no other workers have taken over yet."""
        group = self._group(key)
        layouts = registry.layouts.values()
        return tuple(sorted(found.topic for found in layouts if found.group == group and found.state != "retired"))

    async def _execute(self, key: Key, actions: tuple[Action, ...], link: KafkaLink | None = None) -> None:
        """Executes the actions. Raises the first failure."""
        outcome = await self._context.executor.execute(key, actions, link)
        for failure in outcome.failures:
            raise failure.error


def _as_they_are(workers: Manifest, *, labels: Mapping[str, str], pods: PodSettings) -> SharedWorkers:
    """Returns the spec of the present workers, even if someone has scaled them to a number that a spec can't have."""
    template = template_of(workers, labels=labels, pods=pods)
    return SharedWorkers.model_construct(replicas=workers["spec"]["replicas"], template=template)


def _unready_since(raw: Manifest) -> datetime | None:
    known = status_of(KafkaConnectionStatus, raw).conditions
    return next(
        (c.last_transition_time for c in known if c.type == Condition.WORKERS_READY and c.status == "False"), None
    )
