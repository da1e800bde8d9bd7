"""Executes plans: one action after the other. Each is idempotent, so it does no harm if the operator stops between any two."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import assert_never

from delayed_topics_core.errors import DelayedTopicsError
from delayed_topics_core.offsets import OffsetAndMetadata
from delayed_topics_core.registry import Claim, Owner, is_claim_key
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_core.settings import MARK_SETTING
from delayed_topics_kafka.errors import (
    GroupActive,
    KafkaCallError,
    LeadersMissing,
    SettingsRefused,
    TopicExists,
    values_of,
)
from delayed_topics_kafka.model import TopicInfo

from delayed_topics_operator import metrics
from delayed_topics_operator.engine.finalizer import set_finalizer
from delayed_topics_operator.engine.rollouts import Rollouts
from delayed_topics_operator.engine.store import Store, refresh
from delayed_topics_operator.errors import KubeError, KubeUnreachable, NotYet
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.kube import Kube
from delayed_topics_operator.gateways.recorder import Recorder
from delayed_topics_operator.values.explain import in_words, notice
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import (
    Action,
    AddFinalizer,
    AlterSettings,
    ApplyChild,
    CommitOffsets,
    CreateTopics,
    DeleteChild,
    DeleteGroup,
    DeleteTopics,
    FenceWorkers,
    GrowTopic,
    RemoveFinalizer,
    RemoveFromRegistry,
    ScaleWorkers,
    WriteRegistry,
)
from delayed_topics_operator.values.stateful_sets import READY_BEFORE, STOPPED, ready_before, ready_before_next

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The action that failed, and why."""

    action: Action
    error: DelayedTopicsError


@dataclass(frozen=True, kw_only=True)
class Owned:
    """A delayed topic and its owner."""

    topic: str
    owner: Owner

    def is_current(self, registry: RegistryState) -> bool:
        holder = registry.holder(self.topic)
        return holder is not None and holder.owner == self.owner


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`done`: the actions that were executed. `changed`: whether they changed anything, as far as that is known. `failures`: at most one at
    Kafka, and any number in Kubernetes."""

    done: tuple[Action, ...] = ()
    changed: bool = False
    failures: tuple[Failure, ...] = ()


class Executor:
    """One for all controllers of an operator. `rolling_at_once`: StatefulSets whose pods may be replaced at the same time."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        recorder: Recorder,
        *,
        rolling_at_once: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._store = store
        self._recorder = recorder
        self.rollouts = Rollouts(store, at_once=rolling_at_once, clock=clock)
        self._unmarked = defaultdict[Key, dict[str, str]](dict)

    async def execute(
        self, key: Key, actions: tuple[Action, ...], link: KafkaLink | None, owned: Owned | None = None
    ) -> Outcome:
        """Executes the actions in order. `owned`: the delayed topic that the actions at Kafka change, as long as it has this owner.

        After a failure at Kafka the actions in Kubernetes still go on, and the other way round. They don't depend on each other within one
        plan. In Kubernetes, an object that is refused holds up only what depends on it. But no finalizer is added or removed after a
        failure, and nothing more is done if a finalizer can't be added.
        """
        done, any_changed, failures = list[Action](), False, list[Failure]()
        for action in actions:
            if _is_held_up(action, failures):
                continue
            name = type(action).__name__
            try:
                changed = await self._execute_one(key, action, link, owned)
            except (KafkaCallError, KubeError, NotYet) as e:
                metrics.ACTIONS.labels(name, "failed").inc()
                failures.append(Failure(action=action, error=e))
                if isinstance(action, AddFinalizer):
                    break
                continue
            done.append(action)
            metrics.ACTIONS.labels(name, "done").inc()
            if changed:
                any_changed = True
                await self._report(key, action)
        return Outcome(done=tuple(done), changed=any_changed, failures=tuple(failures))

    def unmarked(self, key: Key) -> Mapping[str, str]:
        """Returns the ids of topics that were made for this resource without a mark, by name. The registry may not have them yet."""
        return self._unmarked.get(key, {})

    def forget(self, key: Key) -> None:
        """Forgets a resource that is gone."""
        self._unmarked.pop(key, None)

    async def _report(self, key: Key, action: Action) -> None:
        log.info("%s: %s", key, in_words(action))
        event, resource = notice(action), self._store.get(*key)
        if event is not None and resource is not None:
            await self._recorder.record(resource, event)

    async def _execute_one(self, key: Key, action: Action, link: KafkaLink | None, owned: Owned | None) -> bool:
        """Executes an action and returns whether it changed anything."""
        match action:
            case AddFinalizer():
                await set_finalizer(
                    self._kube, self._store, key, present=True, uid=action.uid, installation=action.installation
                )
            case RemoveFinalizer():
                await set_finalizer(self._kube, self._store, key, present=False)
            case ApplyChild():
                return await self._apply(action)
            case ScaleWorkers():
                name = (action.namespace, action.name)
                patch: Manifest = {"metadata": {"uid": action.uid}, "spec": {"replicas": action.replicas}}
                live = self._store.get("StatefulSet", *name)
                if action.rolls and live is not None:
                    patch["metadata"]["annotations"] = {READY_BEFORE: f"{ready_before_next(live)}{STOPPED}"}
                with self.rollouts.turn(*name) if action.rolls else nullcontext():
                    self._store.put(await self._kube.merge("StatefulSet", *name, patch))
            case DeleteChild():
                await self._delete(action)
            case _:
                assert link is not None, f"{action} needs Kafka"
                if owned is not None and not _about_claims(action) and not owned.is_current(await link.registry()):
                    raise NotYet(f"another resource took over the topics of {key} meanwhile")
                await _at_kafka(action, link, self._unmarked[key])
        return True

    async def _apply(self, action: ApplyChild) -> bool:
        """Applies the manifest and returns whether this changed anything. It does not if a webhook of the cluster reverts the change."""
        meta = action.manifest["metadata"]
        name = (meta["namespace"], meta["name"])
        if action.change == "created" and await refresh(self._kube, self._store, action.kind, *name) is not None:
            # the next pass finds out whether it belongs to the operator
            raise NotYet(f"{action.kind} {meta['name']} already exists")
        before = self._store.get(action.kind, *name)
        with self.rollouts.turn(*name) if action.rolls else nullcontext():
            live = await self._kube.apply(action.manifest if before is None else _noted(action, before))
            self._store.put(live)
        return before is None or live["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]

    async def _delete(self, action: DeleteChild) -> None:
        propagation = "Orphan" if action.orphan else "Foreground" if action.kind == "StatefulSet" else "Background"
        await self._kube.delete(action.kind, action.namespace, action.name, uid=action.uid, propagation=propagation)  # type: ignore[arg-type]
        await refresh(self._kube, self._store, action.kind, action.namespace, action.name)


def _noted(action: ApplyChild, live: Manifest) -> Manifest:
    """Returns the manifest. That of a StatefulSet notes how many pods are ready before they are replaced, or keeps this note."""
    wanted = action.manifest
    if action.kind != "StatefulSet":
        return wanted
    ready = ready_before_next(live) if action.rolls else ready_before(live)
    if ready is None:
        return wanted
    meta = wanted["metadata"]
    annotations = {**meta.get("annotations", {}), READY_BEFORE: str(ready)}
    return {**wanted, "metadata": {**meta, "annotations": annotations}}


def _is_held_up(action: Action, failures: Sequence[Failure]) -> bool:
    """Whether the action may not be executed after these failures in the same plan."""
    if isinstance(action, (AddFinalizer, RemoveFinalizer)):
        return bool(failures)
    at_kube = _at_kube(action)
    return any(_at_kube(f.action) == at_kube and (not at_kube or _depends(action, f)) for f in failures)


def _depends(action: Action, failure: Failure) -> bool:
    """Whether an action in Kubernetes depends on the one that failed there. Pods mount the Secret, and they may restart until the
    StatefulSet is deleted."""
    if isinstance(failure.error, KubeUnreachable):
        return True  # otherwise each action would wait for the API server
    match failure.action:
        case ApplyChild(kind="Secret"):
            return isinstance(action, (ApplyChild, DeleteChild)) and action.kind == "StatefulSet"
        case DeleteChild(kind="StatefulSet"):
            return isinstance(action, DeleteChild)
        case _:
            return False


def _at_kube(action: Action) -> bool:
    return isinstance(action, (ApplyChild, ScaleWorkers, DeleteChild))


def made(outcomes: Iterable[TopicInfo | KafkaCallError]) -> Iterator[TopicInfo]:
    """Yields the topics that exist now, even if their partitions have no leaders yet."""
    for outcome in outcomes:
        if isinstance(outcome, TopicInfo):
            yield outcome
        elif isinstance(outcome, LeadersMissing):
            yield outcome.made


def _about_claims(action: Action) -> bool:
    match action:
        case WriteRegistry():
            return isinstance(action.record, Claim)
        case RemoveFromRegistry():
            return all(is_claim_key(key) for key in action.keys)
        case _:
            return False


KafkaAction = (
    WriteRegistry
    | RemoveFromRegistry
    | CreateTopics
    | GrowTopic
    | AlterSettings
    | CommitOffsets
    | DeleteGroup
    | FenceWorkers
    | DeleteTopics
)


async def _at_kafka(  # noqa: C901  one case per action
    action: KafkaAction, link: KafkaLink, unmarked_ids: dict[str, str]
) -> None:
    """Executes an action at Kafka. Adds the ids of topics that were made without their mark to `unmarked_ids`."""
    match action:
        case WriteRegistry():
            await link.write([action.record])
        case RemoveFromRegistry():
            await link.remove(action.keys)
        case CreateTopics():
            outcomes = await link.create_topics(action.specs)
            unmarked = {info.name: info.id for info in made(outcomes.values()) if MARK_SETTING in info.left_out}
            if (
                unmarked
            ):  # kept even if the others or the next call failed, because nothing else says whose these topics are
                unmarked_ids.update(unmarked)
                await link.write([replace(action.record, ids={**action.record.ids, **unmarked})])
            try:
                values_of(outcomes)
            except TopicExists as e:
                # Someone has just created it. The next pass sees that it is not the operator's.
                raise NotYet(str(e)) from e
        case GrowTopic():
            await link.create_partitions(action.topic, action.total)
        case AlterSettings():
            try:
                await link.alter_config(action.topic, action.settings)
            except SettingsRefused as e:
                raise NotYet(str(e)) from e  # the next pass reports the refused settings, and goes on without them
        case CommitOffsets():
            try:
                await link.commit(action.group, {key: OffsetAndMetadata(at) for key, at in action.offsets.items()})
            except GroupActive as e:
                raise NotYet(str(e)) from e  # a worker has joined in the meantime, and commits offsets itself
        case DeleteGroup():
            try:
                await link.delete_group(action.group)
            except GroupActive as e:
                raise NotYet(str(e)) from e
        case FenceWorkers():
            await link.fence(action.transactional_ids)
        case DeleteTopics():
            await link.delete_topics(action.topics)
        case _:
            assert_never(action)
