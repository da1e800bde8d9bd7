"""The controller of DelayedTopics: observes, reconciles and executes until nothing is left to do, and then writes the status."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from delayed_topics_core.reasons import Reason
from delayed_topics_crds import DelayedTopic, DelayedTopicStatus, QuotaHard, QuotaUsed
from delayed_topics_kafka.errors import KafkaCallError, KafkaUnreachable
from pydantic import ValidationError

from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.found import refusal
from delayed_topics_operator.connection.reconcile.grants import hard
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.connection.usage import Usage, Use
from delayed_topics_operator.delayed_topic.observe.kafka import kafka_view
from delayed_topics_operator.delayed_topic.observe.load import Loads
from delayed_topics_operator.delayed_topic.reconcile import own_workers, reconcile, translate
from delayed_topics_operator.delayed_topic.reconcile.audit_schedule import audit_name, stem, stems
from delayed_topics_operator.delayed_topic.reconcile.failures import (
    not_ready,
    refused_audits,
    with_failures,
    with_undone,
)
from delayed_topics_operator.delayed_topic.reconcile.invalid import enough_to_delete, reconcile_invalid
from delayed_topics_operator.delayed_topic.reconcile.observation import KafkaView, Observation, Subject, Wanted
from delayed_topics_operator.delayed_topic.reconcile.status import OWN_CONDITIONS
from delayed_topics_operator.delayed_topic.reconcile.undone import Undone
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.execute import Outcome, Owned
from delayed_topics_operator.engine.finalizer import check_is_there
from delayed_topics_operator.engine.installation import connection_of, serves
from delayed_topics_operator.engine.pods import pods_and_warnings
from delayed_topics_operator.engine.served_elsewhere import ServedElsewhere
from delayed_topics_operator.engine.status import write_status
from delayed_topics_operator.engine.store import owner_uids
from delayed_topics_operator.errors import (
    ConnectionNotChecked,
    Forbidden,
    KubeRefused,
    NotFound,
    NotYet,
    SpecInvalid,
    reason_of,
)
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.values.conditions import status_of
from delayed_topics_operator.values.explain import explanation
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import Plan
from delayed_topics_operator.values.transitions import autoscaled, notices
from delayed_topics_operator.values.validation import ignored, read
from delayed_topics_operator.workers.observe import PodCounts, children, pod_settings
from delayed_topics_operator.workers.reconcile import worker_sets
from delayed_topics_operator.workers.reconcile.children import all_ready, ready_pods
from delayed_topics_operator.workers.reconcile.manifests import installation

log = logging.getLogger(__name__)

STEPS = 12
"""The most plans that one pass executes. A new resource needs four."""
SOON_SECONDS = 0.3
UNCHECKED_SECONDS = 5.0
"""The longest wait for the check of a connection. The check itself wakes the resources that wait for it; this is for a check that never
comes."""
WAITING_SECONDS = 10.0
"""How long an action may wait before the status says what it waits for."""
UNDONE_SECONDS = 5.0
"""The delay before the next attempt at an action that somebody else undid at once, or that has waited for longer than WAITING_SECONDS."""


@dataclass(frozen=True, kw_only=True)
class Live:
    """The live objects of a resource in Kubernetes. `expected`: the number of pods that its workers should have. `pods`, `warnings`: filled
    only while not all pods are ready. `refused`: why the objects of a resource that is being deleted can't be seen."""

    children: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    workers: Manifest | None = None
    expected: int = 0
    pods: tuple[Manifest, ...] = ()
    warnings: tuple[Manifest, ...] = ()
    refused: str | None = None


class DelayedTopics:
    """Implements `engine.controller.Controller` for DelayedTopics."""

    kind = "DelayedTopic"

    def __init__(self, context: ControllerContext, *, connections: Connections, usage: Usage) -> None:
        self._context = context
        self._connections = connections
        self._usage = usage
        self._failing_since: dict[Key, datetime] = {}
        self._waiting_since: dict[Key, datetime] = {}
        self._refused_since: dict[Key, datetime] = {}
        self._undone = defaultdict[Key, Undone](Undone)
        self._pod_counts = PodCounts()
        self._loads = Loads()
        self._elsewhere = ServedElsewhere(context)

    async def reconcile(self, key: Key) -> float | None:
        undone = self._undone[key]
        undone.begin(_now(), again_seconds=self._context.settings.resync_seconds)
        for _ in range(STEPS):
            raw = self._context.store.get(*key)
            if raw is None:
                self._forget(key)
                return None
            if not serves(self._context.store, connection_of(raw), namespace=self._context.settings.namespace):
                self._loads.forget(key)
                await self._elsewhere.say_if_unserved(raw)
                return self._context.settings.resync_seconds
            try:
                plan, link, owned = await self._plan(key, raw)
            except ConnectionNotChecked:
                return UNCHECKED_SECONDS
            except NotYet:
                return SOON_SECONDS
            if undone.has(plan.actions):
                if plan.actions == undone.in_vain:
                    return await self._conclude(key, plan, Outcome())
                log.warning("%s: somebody else undoes what the operator has done: %s", key, explanation(plan.actions))
                return min(await self._conclude(key, _undone(plan, raw), Outcome()), UNDONE_SECONDS)
            if plan.decided is not None:
                await self._write_status(raw, plan.decided)
            outcome = await self._context.executor.execute(key, plan.actions, link, owned)
            if link is not None and not outcome.failures:
                self._failing_since.pop(key, None)
            if outcome.failures or not plan.actions:
                return await self._conclude(key, plan, outcome)
            undone.done(plan.actions, _now(), changed=outcome.changed)
            if not outcome.changed:
                log.warning("%s: this changes nothing, so somebody else undoes it: %s", key, explanation(plan.actions))
        return SOON_SECONDS

    def _forget(self, key: Key) -> None:
        self._failing_since.pop(key, None)
        self._waiting_since.pop(key, None)
        self._refused_since.pop(key, None)
        self._usage.forget(key)
        self._loads.forget(key)
        self._context.executor.forget(key)
        self._undone.pop(key, None)
        self._elsewhere.forget(key)

    async def _plan(self, key: Key, raw: Manifest) -> tuple[Plan, KafkaLink | None, Owned | None]:
        """Returns the plan, the link to Kafka if there is one, and the topic and the owner that the actions are for.

        Raises KafkaUnreachable, KubeError, NotYet. If the API server refuses a call, the status reports this first.
        """
        link, owned = None, None
        await self._context.recorder.emit(raw, ignored(raw))
        try:
            o, link = await self._observe(key, *_parse(raw))
            plan, owned = reconcile(o), Owned(topic=o.wanted.names.front, owner=o.subject.owner)
            if plan.takes is not None:  # no await since `_others`: no other pass can get the same quota
                self._usage.record(Use(key, o.wanted.names.front), o.wanted.connection, plan.takes)
        except (ValidationError, SpecInvalid) as e:
            plan = reconcile_invalid(raw, e, _now())
        except KubeRefused as e:
            await self._write_status(
                raw, not_ready(raw, reason_of(e), f"could not read the objects of this resource: {e}", _now())
            )
            raise
        if plan.actions and "deletionTimestamp" in raw["metadata"]:
            await check_is_there(self._context.kube, self._context.store, raw)
        await self._context.recorder.emit(raw, plan.notices)
        return plan, link, owned

    async def _conclude(self, key: Key, plan: Plan, outcome: Outcome) -> float:
        """Writes the status, and returns the seconds until the next pass. Raises the error of the first failed action, so that the queue
        retries with growing delays."""
        failures = [f for f in outcome.failures if not isinstance(f.error, NotYet)]
        waits = bool(outcome.failures) and not failures
        if not waits:
            self._waiting_since.pop(key, None)
        elif (_now() - self._waiting_since.setdefault(key, _now())).total_seconds() < WAITING_SECONDS:
            return SOON_SECONDS  # no status yet: the next pass may find that what waits is refused
        raw, status = self._context.store.get(*key), plan.status
        for failure in failures:
            if raw is not None and isinstance(failure.error, KafkaCallError):
                self._failed_at_kafka(key, connection_of(raw), failure.error)
        if raw is not None and status is not None:
            known = status_of(DelayedTopicStatus, raw).conditions
            failed = tuple((failure.action, failure.error) for failure in failures or outcome.failures)
            await self._write_status(raw, with_failures(status, failed, known=known, now=_now()))
            await self._context.recorder.emit(raw, refused_audits(failed))
        if failures:
            raise failures[0].error
        if waits:
            return UNDONE_SECONDS
        resync_seconds = self._context.settings.resync_seconds
        return min(plan.wake_seconds or resync_seconds, resync_seconds)

    async def _write_status(self, raw: Manifest, status: DelayedTopicStatus) -> None:
        """Writes the status if it changed, without the conditions and fields that other controllers own."""
        own = tuple(c for c in status.conditions if c.type in OWN_CONDITIONS)
        try:
            written = await write_status(
                self._context,
                raw,
                status.model_copy(update={"conditions": own, "last_audit": None, "last_violation": None}),
            )
        except NotFound:
            self._context.store.gone(raw)
            return
        await self._elsewhere.withdraw(Key(self.kind, raw["metadata"]["namespace"], raw["metadata"]["name"]))
        if written:
            before = status_of(DelayedTopicStatus, raw)
            await self._context.recorder.emit(raw, (*notices(before, status), *autoscaled(before, status)))

    async def _observe(self, key: Key, resource: DelayedTopic, wanted: Wanted) -> tuple[Observation, KafkaLink | None]:
        """Returns the observation, and the link to Kafka if the connection can be used. Raises KafkaUnreachable, KubeError, NotYet."""
        namespace = self._context.store.namespace(key.namespace)
        subject = translate.subject(
            resource,
            cluster=self._context.cluster,
            namespace_labels=namespace["metadata"].get("labels") or {},
            namespace_terminating=bool(namespace["metadata"].get("deletionTimestamp")),
        )
        home = self._context.settings.home(wanted.connection.kind, key.namespace)
        name = worker_sets.object_name(namespace=key.namespace, name=key.name, home=home)
        allowed = self._context.tenants.may_use(home)
        live = await self._live(subject, wanted, home=home, name=name, allowed=allowed)
        workers, expected = live.workers, live.expected
        serving = ready_pods(workers, expected) if workers is not None else 0
        if live.refused is None:
            self._refused_since.pop(key, None)
            state, kafka, link = await self._kafka(key, wanted, subject, ready=serving)
        else:  # workers that nobody can stop may go on, so everything in Kafka has to stay
            since = self._refused_since.setdefault(key, _now())
            state = Unusable(reason=Reason.KUBERNETES_REFUSED, message=live.refused, since=since)
            kafka = link = None
        if subject.has_finalizer and not subject.deleting:
            await self._connections.hold(wanted.connection)
        elif not subject.has_finalizer and self._connections.leaving(wanted.connection):
            message = f"{wanted.connection} is being deleted. Either create it again, or name another one in spec.connectionRef"
            state, kafka, link = Unusable(reason=Reason.CONNECTION_MISSING, message=message, since=_now()), None, None
        pods = pod_settings(self._context.settings, home=home, allowed=allowed)
        observation = Observation(
            now=_now(),
            gone_after_seconds=self._context.settings.gone_after_seconds,
            subject=subject,
            wanted=wanted,
            connection=state,
            kafka=kafka,
            pods=pods,
            children=live.children,
            rollout=self._context.executor.rollouts.look(installation(pods), home, name),
            in_vain=self._undone[key].in_vain,
            audits=(scheduled := self._scheduled_audits(subject)),
            taken=self._taken(subject, scheduled),
            worker_pods=live.pods,
            warnings=live.warnings,
            vanished=self._pod_counts.vanished(
                home, name, workers, wanted=0 if subject.deleting else _expected(workers, wanted)
            ),
            others=self._others(Use(key, wanted.names.front), state, subject, wanted.connection, link),
            own=self._usage.recorded(key),
        )
        return observation, link

    async def _live(self, subject: Subject, wanted: Wanted, *, home: str, name: str, allowed: bool) -> Live:
        """Returns the live objects of the workers, if the operator has rights on them. Raises KubeError."""
        live = Live()
        # Kubernetes itself deletes the objects of a terminating namespace, and the operator's rights on them.
        if not allowed or (subject.namespace_terminating and home == subject.namespace):
            return live
        try:
            found = await children(self._context, home=home, name=name)
            workers = found.get(("StatefulSet", name))
            expected = _expected(workers, wanted)
            live = Live(children=dict(found), workers=workers, expected=expected)
            if workers is not None and not subject.deleting and not all_ready(workers, expected):
                pods, warnings = await pods_and_warnings(
                    self._context.kube,
                    workers,
                    labels=worker_sets.selector(own_workers.labels(subject)),
                    expected=expected,
                )
                live = replace(live, pods=pods, warnings=warnings)
        except Forbidden as e:
            # The operator's RoleBinding may be gone already. Kubernetes deletes all objects there with the resource or the namespace.
            if home != subject.namespace or not (subject.deleting or subject.namespace_terminating):
                raise
            if not subject.namespace_terminating:
                return Live(refused=f"the operator may not look after the workers of this resource: {e}")
        return live

    def _others(
        self, use: Use, state: Usable | Unusable, subject: Subject, connection: Key, link: KafkaLink | None
    ) -> QuotaUsed:
        """Returns what the rest of the namespace uses, or nothing if no quota limits it."""
        grants = state.grants if isinstance(state, Usable) else None
        if link is None or not grants or hard(grants, subject.namespace_labels) == QuotaHard():
            return QuotaUsed()
        return self._usage.others(use, connection, link.registry_read)

    def _scheduled_audits(self, subject: Subject) -> tuple[Manifest, ...]:
        return tuple(
            audit
            for audit in self._context.store.by_index("DelayedTopicAudit", owner_uids, subject.uid)
            if "deletionTimestamp" not in audit["metadata"]
        )

    def _taken(self, subject: Subject, scheduled: Sequence[Manifest]) -> frozenset[str]:
        """Returns the names of audits that are named like audits of the schedule and were not made by it."""
        named = self._context.store.by_index(
            "DelayedTopicAudit", stems, (subject.namespace, stem(audit_name(subject.name, _now())))
        )
        made = {audit["metadata"]["uid"] for audit in scheduled}
        return frozenset(audit["metadata"]["name"] for audit in named if audit["metadata"]["uid"] not in made)

    async def _kafka(
        self, key: Key, wanted: Wanted, subject: Subject, *, ready: int
    ) -> tuple[Usable | Unusable, KafkaView | None, KafkaLink | None]:
        """Returns the state of the connection, and what Kafka knows and the link if the connection can be used. `ready`: the number of
        ready workers; 0 while workers are being removed. Raises KafkaUnreachable, ConnectionNotChecked."""
        state, link = self._connections.look(wanted.connection)
        if link is None:
            self._failing_since.pop(key, None)
            self._loads.unknown(key)
            return state, None, None
        try:
            unmarked = self._context.executor.unmarked(key)
            view = await kafka_view(link, wanted.names, subject.owner, unmarked=unmarked, deleting=subject.deleting)
            if not wanted.measures_due_lag or view.registered.own is None:
                self._loads.forget(key)
                return state, view, link
            return state, replace(view, load=await self._loads.look(key, link, wanted.names, view, ready=ready)), link
        except KafkaCallError as e:
            self._loads.unknown(key)
            since = self._failed_at_kafka(key, wanted.connection, e)
            refused = refusal(wanted.connection, e, link.registry_id)
            return Unusable(reason=refused.reason, message=str(refused), since=since), None, None

    def _failed_at_kafka(self, key: Key, connection: Key, error: KafkaCallError) -> datetime:
        """Requests a check of the connection, and returns the time since when calls to Kafka fail for this resource.

        Raises the error again if Kafka did not answer, and either this is the first failure or the check has failed too. The status is not
        written then: the next pass reports what the check has found.
        """
        self._connections.doubt(connection, error)
        first = key not in self._failing_since
        since = self._failing_since.setdefault(key, _now())
        unusable = isinstance(self._connections.look(connection)[0], Unusable)
        if isinstance(error, KafkaUnreachable) and (first or unusable):
            raise error
        return since


def _undone(plan: Plan, raw: Manifest) -> Plan:
    """Adds to the status of the plan that somebody else undoes its actions."""
    if plan.status is None:
        return plan
    known = status_of(DelayedTopicStatus, raw).conditions
    return replace(plan, status=with_undone(plan.status, plan.actions, known=known, now=_now()))


def _expected(workers: Manifest | None, wanted: Wanted) -> int:
    """Returns the number of pods that there should be: fewer than the spec asks for if no more are granted."""
    if workers is None:
        return wanted.replicas
    present: int = workers["spec"].get("replicas", 1)
    return present if wanted.autoscale is not None or not wanted.own_workers else min(wanted.replicas, present)


def _parse(raw: Manifest) -> tuple[DelayedTopic, Wanted]:
    """Parses a resource. If it is invalid and being deleted, only the fields that its deletion needs are parsed. Raises ValidationError,
    SpecInvalid."""
    try:
        resource = read(DelayedTopic, raw)
        return resource, translate.wanted(resource)
    except (ValidationError, SpecInvalid):
        if not raw["metadata"].get("deletionTimestamp"):
            raise
        resource = read(DelayedTopic, enough_to_delete(raw))
        return resource, translate.wanted(resource)


def _now() -> datetime:
    return datetime.now(UTC)
