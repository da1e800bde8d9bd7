"""The condition ServedElsewhere of resources that another installation serves.

The condition has a field manager of its own, so that it never overwrites what the operator that serves the resource writes. All operators
that do not serve the resource write the same condition.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from delayed_topics_core.reasons import Condition, Reason
from delayed_topics_crds import Condition as StatusCondition
from delayed_topics_crds import DelayedTopicStatus, KafkaConnectionStatus

from delayed_topics_operator.engine.context import ControllerContext
from delayed_topics_operator.engine.installation import INSTALLATION, connection_of, server_of
from delayed_topics_operator.engine.status import write_status
from delayed_topics_operator.errors import NotFound
from delayed_topics_operator.values.conditions import condition, status_of
from delayed_topics_operator.values.field_managers import ELSEWHERE_FIELD_MANAGER
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.values.plan import ConditionState

UNSERVED_SECONDS = 60.0
"""How long the operator that serves a DelayedTopic may take to look at it, before others report that."""


class ServedElsewhere:
    """`clock` counts monotonic seconds."""

    def __init__(self, context: ControllerContext, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._store = context.store
        self._clock = clock
        self._unobserved_since: dict[Key, tuple[str, int, float]] = {}
        """When this operator first saw that no other has looked at a DelayedTopic, after its UID and generation."""

    async def report(self, connection: Manifest, key: Key) -> None:
        """Writes the condition to a connection that this operator does not serve."""
        await self._write(connection, self._message(key))

    async def say_if_unserved(self, topic: Manifest) -> None:
        """Writes the condition to a DelayedTopic that this operator does not serve, if the operator that serves it has not looked at it for
        a while. Removes the condition when it has."""
        meta, now = topic["metadata"], self._clock()
        key = Key("DelayedTopic", meta["namespace"], meta["name"])
        if (topic.get("status") or {}).get("observedGeneration") == meta["generation"]:
            self.forget(key)
            await self._write(topic, None)
            return
        known = self._unobserved_since.get(key)
        if known is None or known[:2] != (meta["uid"], meta["generation"]):
            known = self._unobserved_since[key] = (meta["uid"], meta["generation"], now)
        if now - known[2] >= UNSERVED_SECONDS:
            message = f"no operator has looked at this resource yet. {self._message(connection_of(topic))}"
            await self._write(topic, message)

    def forget(self, topic: Key) -> None:
        """Forgets a DelayedTopic that is gone, or that is looked at."""
        self._unobserved_since.pop(topic, None)

    async def withdraw(self, key: Key) -> None:
        """Removes the condition from a resource that this operator serves, unless the condition rightly names this operator."""
        self.forget(key)
        resource = self._store.get(*key)
        if resource is not None and _message_of(resource) not in (None, self._message(key)):
            await self._write(resource, None)

    def _message(self, connection: Key) -> str:
        server = server_of(self._store, connection)
        gone = "" if self._store.get("Namespace", "", server or "") else " (this namespace does not exist)"
        where = f"--namespace={connection.namespace} " if connection.namespace else ""
        return (
            f"{connection} is served only by the installation in namespace {server}{gone}. If that installation no longer exists, run this "
            "command with the namespace of the installation that shall serve it: "
            f"kubectl annotate --overwrite {where}{connection.kind.lower()} {connection.name} {INSTALLATION}=NAMESPACE"
        )

    async def _write(self, resource: Manifest, message: str | None) -> None:
        """Writes the condition with this message. None removes it."""
        current = _message_of(resource)
        if message == current:
            return
        kind = DelayedTopicStatus if resource["kind"] == "DelayedTopic" else KafkaConnectionStatus
        status = kind(conditions=() if message is None else (_served_elsewhere(resource, kind, message),))
        try:
            await write_status(self._context, resource, status, field_manager=ELSEWHERE_FIELD_MANAGER)
        except NotFound:
            self._store.gone(resource)


def _message_of(resource: Manifest) -> str | None:
    conditions = (resource.get("status") or {}).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == Condition.SERVED_ELSEWHERE), None)


def _served_elsewhere(
    resource: Manifest, kind: type[DelayedTopicStatus] | type[KafkaConnectionStatus], message: str
) -> StatusCondition:
    state = ConditionState(status="True", reason=Reason.OTHER_INSTALLATION, message=message)
    return condition(
        Condition.SERVED_ELSEWHERE,
        state,
        known=status_of(kind, resource).conditions,
        now=datetime.now(UTC),
        generation=resource["metadata"].get("generation"),
    )
