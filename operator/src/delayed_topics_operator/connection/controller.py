"""ClusterKafkaConnection and KafkaConnection: whether Kafka can be reached. Holds the links that all other controllers use."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from delayed_topics_core.reasons import Reason
from delayed_topics_crds import (
    ClusterKafkaConnection,
    KafkaConnection,
    KafkaConnectionSpec,
    KafkaConnectionStatus,
    NamespaceQuota,
)
from delayed_topics_kafka.connection import Connection
from delayed_topics_kafka.errors import (
    ConnectionInvalid,
    KafkaCallError,
    KafkaUnreachable,
    RegistryLost,
    RegistryTooLarge,
)
from pydantic import ValidationError

from delayed_topics_operator import metrics
from delayed_topics_operator.connection.found import Found, Resource, as_usable, find, refusal
from delayed_topics_operator.connection.reconcile.grants import LET_IN
from delayed_topics_operator.connection.reconcile.usable import Unusable, Usable
from delayed_topics_operator.connection.secrets import security
from delayed_topics_operator.connection.shared_workers import SharedWorkersOf
from delayed_topics_operator.connection.status import connection_status
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.finalizer import set_finalizer
from delayed_topics_operator.engine.installation import connections, installation_of, record, serves, transactional_id
from delayed_topics_operator.engine.served_elsewhere import ServedElsewhere
from delayed_topics_operator.engine.status import write_status
from delayed_topics_operator.errors import (
    ConnectionNotChecked,
    ConnectionUnusable,
    KubeRefused,
    KubeUnreachable,
    NotFound,
    SpecInvalid,
    reason_of,
)
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.values.annotations import FINALIZER
from delayed_topics_operator.values.conditions import status_of
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.transitions import notices
from delayed_topics_operator.values.validation import ignored, problems, read

log = logging.getLogger(__name__)

QUIET = {"log_level": 2}
"""Keeps the client library from logging every attempt to reach a broker. Errors that matter come back from the calls."""
KINDS = ("ClusterKafkaConnection", "KafkaConnection")
_WITHDRAWN = (Reason.CREDENTIALS_MISSING, Reason.NOT_ALLOWED, Reason.KUBERNETES_REFUSED)
"""Why a connection can't be used any more while its namespace is deleted: its Secret, or the operator's rights there, go first."""


@dataclass(frozen=True)
class Unanswered:
    """Kafka did not answer a call through a usable connection. The connection is used as before until a check has failed too."""

    usable: Usable


@dataclass
class _Entry:
    state: Usable | Unanswered | Unusable
    link: KafkaLink | None = None
    generation: int | None = None

    @property
    def reported(self) -> Usable | Unusable:
        """The state as the users of the connection see it."""
        return self.state.usable if isinstance(self.state, Unanswered) else self.state


class Connections:
    """A controller for both kinds."""

    kind = "KafkaConnection"

    def __init__(
        self,
        context: ControllerContext,
        *,
        usage: Usage,
        changed: Callable[[Key], None],
        doubted: Callable[[Key], None],
        news: Callable[[Key, set[str]], None],
        leadership: Leadership,
    ) -> None:
        """`changed`: called when the state of a connection has changed, or is known for the first time. `doubted`: called when a connection
        has to be checked soon. `news`: called when the registry or the events have news about front topics."""
        self._context = context
        self._usage = usage
        self._changed = changed
        self._doubted = doubted
        self._news = news
        self._elsewhere = ServedElsewhere(context)
        self._leadership = leadership
        self._shared = SharedWorkersOf(context)
        self._entries: dict[Key, _Entry] = {}
        self._unchecked_since: dict[Key, datetime] = {}

    def look(self, key: Key) -> tuple[Usable | Unusable, KafkaLink | None]:
        """Returns the state of a connection, and its link if it is usable. Raises ConnectionNotChecked until it was checked as it is
        now."""
        entry, raw = self._entries.get(key), self._context.store.get(*key)
        if raw is not None and (entry is None or entry.generation != raw["metadata"].get("generation")):
            return self._unchecked(key), None  # its grants may have changed
        if entry is None:
            entry = self._entries[key] = _Entry(_missing(key))
        if isinstance(entry.reported, Unusable):
            return entry.reported, None
        if entry.link is None:
            return self._unchecked(key), None  # the link is being replaced
        return entry.reported, entry.link

    def _unchecked(self, key: Key) -> Unusable:
        """Raises ConnectionNotChecked. Once this has lasted as long as a deletion waits for Kafka, returns the connection as unusable."""
        since, now = self._unchecked_since.setdefault(key, _now()), _now()
        if (now - since).total_seconds() < self._context.settings.gone_after_seconds:
            raise ConnectionNotChecked(f"the operator has not checked {key} yet")
        return Unusable(
            reason=Reason.KAFKA_UNREACHABLE,
            message=f"the operator could not check {key} since {since:%H:%M:%S} UTC. See the operator's log for the cause",
            since=since,
        )

    async def hold(self, key: Key) -> None:
        """Adds the finalizer, so that the connection stays until all that was made through it is removed, which needs the connection.
        Raises KubeError, NotYet."""
        raw = self._context.store.get(*key)
        if raw is not None and not _deleting(raw) and not _held(raw) and not self._leads_elsewhere(key):
            await set_finalizer(self._context.kube, self._context.store, key, present=True)

    def leaving(self, key: Key) -> bool:
        """Whether the connection is being deleted, so that nothing new may be made through it."""
        raw = self._context.store.get(*key)
        return raw is not None and _deleting(raw)

    def doubt(self, key: Key, error: KafkaCallError) -> None:
        """Handles a failed call. If Kafka did not answer, the connection is checked soon. If the registry is lost or too large, the
        connection is unusable from now on."""
        entry = self._entries.get(key)
        if entry is None or isinstance(entry.state, Unusable):
            return
        if isinstance(error, (RegistryLost, RegistryTooLarge)):
            refused = refusal(key, error, entry.link.registry_id if entry.link else None)
            entry.state = Unusable(reason=refused.reason, message=str(refused), since=_now())
            self._doubted(key)
            self._changed(key)
        elif isinstance(error, KafkaUnreachable) and isinstance(entry.state, Usable):
            entry.state = Unanswered(entry.state)
            self._doubted(key)

    def count(self) -> None:
        """Sets the metric about registries."""
        metrics.REGISTRY_FULLNESS.clear()
        for key, entry in self._entries.items():
            if entry.link is not None:
                metrics.REGISTRY_FULLNESS.labels(*key).set(entry.link.registry_fullness)

    def forget_unnamed(self) -> None:
        """Forgets connections that do not exist and that no DelayedTopic names any more."""
        for key in [key for key, entry in self._entries.items() if entry.generation is None and entry.link is None]:
            if not self._context.store.by_index("DelayedTopic", connections, key):
                del self._entries[key]

    async def close(self) -> None:
        """Returns when no call to Kafka is under way any more."""
        links = [entry.link for entry in self._entries.values() if entry.link is not None]
        await asyncio.gather(*(link.close(settle=True) for link in links))

    async def reconcile(self, key: Key) -> float | None:
        raw = self._context.store.get(*key)
        if raw is None:
            await self._forget(key)
            return None
        if not serves(self._context.store, key, namespace=self._context.settings.namespace):
            await self._forget(key)
            await self._elsewhere.report(raw, key)
            return self._context.settings.resync_seconds
        users = [] if self._leads_elsewhere(key) else self._users(key)
        if _held(raw) and not users:
            await set_finalizer(self._context.kube, self._context.store, key, present=False)
            raw = self._context.store.get(*key)
            if raw is None or _deleting(raw):
                await self._forget(key)
                return self._context.settings.resync_seconds
        entry = self._entries.get(key) or _Entry(_missing(key))
        state, before = entry.state, entry.reported
        generation = raw["metadata"].get("generation")
        found: Found | None = None
        await self._context.recorder.emit(raw, ignored(raw))
        try:
            raw = await self._recorded(key, raw)
            resource = _parse(key, raw)
            connection = await self._connected(key, raw, resource.spec, entry)
            found = await self._reach(entry, key, connection, resource)
            assert entry.link is not None, "Kafka answered"
            self._entries[key] = entry  # whatever happens from here on, the link will be closed
            known = entry.reported.shared if isinstance(entry.reported, Usable) else None
            shared = await self._shared.reconcile(key, raw, resource.spec.shared_workers, entry.link, before=known)
        except ConnectionUnusable as e:
            unanswered = e.reason == Reason.KAFKA_UNREACHABLE and entry.generation == generation
            if unanswered and isinstance(state, Usable):
                log.info("%s is looked at again: %s", key, e)
                entry.state = Unanswered(state)
                return 0.0
            entry.state = _unusable(e, before, as_before=unanswered)
        else:
            entry.state = as_usable(resource, connection, found, shared)
        entry.generation = generation
        self._entries[key] = entry
        if entry.state != before:
            log.info("%s: %s", key, entry.state.message if isinstance(entry.state, Unusable) else "Kafka answers")
        waited_for = self._unchecked_since.pop(key, None) is not None
        if entry.state != before or waited_for:
            self._changed(key)
        try:
            namespaces = await self._namespaces(key, entry)
            status = connection_status(raw, entry.reported, found=found, users=users, namespaces=namespaces)
            if await write_status(self._context, raw, status):
                await self._context.recorder.emit(raw, notices(status_of(KafkaConnectionStatus, raw), status))
            await self._elsewhere.withdraw(key)
        except NotFound:
            self._context.store.gone(raw)
            return 0.0
        return self._context.settings.resync_seconds / (1 if found is not None else 6)

    async def _recorded(self, key: Key, raw: Manifest) -> Manifest:
        """Returns the connection with the annotation that makes this installation the only one that serves it. Writes the annotation if it
        is missing. Raises ConnectionUnusable, NotYet."""
        namespace = self._context.settings.namespace
        if installation_of(raw) is not None or not self._context.tenants.may_use(key.namespace or namespace):
            return raw
        try:
            return await record(self._context.kube, self._context.store, raw, namespace=namespace)
        except KubeRefused as e:
            message = f"could not note in {key} that the installation in namespace {namespace} serves it: {e}"
            raise ConnectionUnusable(message, reason=reason_of(e)) from e

    async def _namespaces(self, key: Key, entry: _Entry) -> tuple[NamespaceQuota, ...] | None:
        """Returns the namespaces that use the connection, sorted by name. None: they are unknown, or the connection has no grants."""
        grants = entry.state.grants if isinstance(entry.state, Usable) else None
        if entry.link is None or grants is None:
            return None
        try:
            registry = await entry.link.registry()
        except KafkaCallError:
            return None  # the next pass reports the failure
        return self._usage.quotas(key, registry, grants)

    def _leads_elsewhere(self, key: Key) -> bool:
        """Whether the connection leads to another Kafka cluster than before. Nothing that was made through it is there, so nothing holds up
        its deletion. People delete it and create it again to begin anew there."""
        entry = self._entries.get(key)
        return entry is not None and isinstance(entry.state, Unusable) and entry.state.reason == Reason.CLUSTER_CHANGED

    def _users(self, key: Key) -> list[str]:
        """Returns the DelayedTopics that have, or had, something in Kafka through this connection."""
        return sorted(
            f"{topic['metadata']['namespace']}/{topic['metadata']['name']}"
            for topic in self._context.store.by_index("DelayedTopic", connections, key)
            if FINALIZER in topic["metadata"].get("finalizers", ())
        )

    async def _connected(self, key: Key, raw: Manifest, spec: KafkaConnectionSpec, entry: _Entry) -> Connection:
        """Returns how to connect. While the connection or its namespace is being deleted, and its Secret or the rights are gone, this is
        how the open link connects, because the removal of what was made through it needs the link. The same holds while the API server
        can't read Secrets, as when it can't decrypt them. Raises ConnectionUnusable, KubeUnreachable."""
        try:
            return await self._connection(key, spec)
        except ConnectionUnusable as e:
            namespace = self._context.store.get("Namespace", "", key.namespace)
            going = _deleting(raw) or (namespace is not None and _deleting(namespace))
            if entry.link is None or e.reason not in _WITHDRAWN or not going:
                raise
            return entry.link.connection
        except KubeUnreachable:
            if entry.link is None or entry.generation != raw["metadata"].get("generation"):
                raise
            return entry.link.connection

    async def _forget(self, key: Key) -> None:
        entry = self._entries.get(key)
        self._unchecked_since.pop(key, None)
        if entry is None or (entry.generation is None and entry.link is None):
            return  # known to be missing already
        self._entries[key] = _Entry(_missing(key))
        if entry.link is not None:
            await entry.link.close()
        self._changed(key)

    async def _reach(self, entry: _Entry, key: Key, connection: Connection, resource: Resource) -> Found:
        """Asks Kafka through the link, and replaces a link that has failed or has other settings. Raises ConnectionUnusable."""
        if entry.link is not None and (entry.link.connection != connection or entry.link.failure is not None):
            link, entry.link = entry.link, None
            await link.close()
        try:
            if entry.link is not None:
                return await find(key, resource, entry.link)
            link = KafkaLink(
                connection,
                timeout_seconds=self._context.settings.kafka_timeout_seconds,
                threads=self._context.settings.kafka_threads,
                registry_bytes=self._context.settings.registry_mebibytes * 2**20,
                woken=lambda topics: self._news(key, topics),
                transactional_id=transactional_id(self._context.cluster, self._context.settings.namespace, key),
                leadership=self._leadership,
            )
            try:
                found = await find(key, resource, link)
            except BaseException:
                await link.close()
                raise
        except KafkaCallError as e:
            raise refusal(key, e, resource.status.registry_topic_id) from e
        entry.link = link
        return found

    async def _connection(self, key: Key, spec: KafkaConnectionSpec) -> Connection:
        """Raises ConnectionUnusable."""
        home = key.namespace or self._context.settings.namespace
        if not self._context.tenants.may_use(home):  # otherwise any tenant could make the operator connect to anything
            raise ConnectionUnusable(
                f"the operator does not work in namespace {home}. Ask a cluster administrator to admit the namespace: {LET_IN}",
                reason=Reason.NOT_ALLOWED,
            )
        try:
            return Connection(
                bootstrap_servers=",".join(spec.bootstrap_servers),
                further=QUIET,
                **await security(self._context.kube, home, spec),
            )
        except ConnectionInvalid as e:
            raise ConnectionUnusable(str(e), reason=Reason.SPEC_INVALID) from e


def _parse(key: Key, raw: Manifest) -> Resource:
    try:
        return read(ClusterKafkaConnection, raw) if key.kind == "ClusterKafkaConnection" else read(KafkaConnection, raw)
    except (ValidationError, SpecInvalid) as e:
        raise ConnectionUnusable(f"{key} is invalid: {problems(e)}", reason=Reason.SPEC_INVALID) from e


def _held(raw: Manifest) -> bool:
    return FINALIZER in raw["metadata"].get("finalizers", ())


def _deleting(raw: Manifest) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


def _unusable(error: ConnectionUnusable, before: Usable | Unusable, *, as_before: bool) -> Unusable:
    """`as_before`: keeps the former message if the reason is the same. The messages of timeouts vary, which is no reason to write every
    status again."""
    if not isinstance(before, Unusable):
        return Unusable(reason=error.reason, message=str(error), since=_now())
    if as_before and before.reason == error.reason:
        return before
    return Unusable(reason=error.reason, message=str(error), since=before.since)


def _missing(key: Key) -> Unusable:
    return Unusable(reason=Reason.CONNECTION_MISSING, message=f"{key} does not exist. Create it", since=_now())


def _now() -> datetime:
    return datetime.now(UTC)
