"""Audits that can't begin yet take nothing from the quota of their namespace, and have no connection checked."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_core.registry_state import RegistryState
from delayed_topics_operator.audits.controller import Audits
from delayed_topics_operator.connection.controller import Connections
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator_testing.audit_simulation import audit_resource, topic_resource
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import usable

AUDIT = Key("DelayedTopicAudit", "shop", "orders-audit")
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


class Kubernetes:
    """Accepts any status."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def apply(self, body: Manifest, **_: Any) -> Manifest:
        live = self._store.get(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
        return {**(live or {}), "status": body["status"]}

    async def create(self, body: Manifest) -> Manifest:
        return body


@pytest.mark.parametrize(
    ("window", "words"), [({}, "topic orders does not belong to DelayedTopic"), ({"to": TOMORROW}, "waits until then")]
)
def test_an_audit_with_executors_that_can_not_begin_yet_leaves_its_connection_alone(
    window: dict[str, str], words: str
) -> None:
    """In the past, the connection was checked twice in each pass over such an audit."""

    async def registry() -> RegistryState:
        return RegistryState()

    store, checked = Store(), list[Key]()
    audit = audit_resource(spark={"executors": 2}, window=window)
    for manifest in (audit, topic_resource(), {"kind": "Namespace", "metadata": {"name": "shop"}}):
        store.put(manifest)
    given = context(Kubernetes(store), store, audit_executors=True)
    link = SimpleNamespace(registry=registry, registry_read=RegistryState())
    connections = SimpleNamespace(look=lambda _: (usable(), link))
    usage = Usage(given, changed=checked.append)
    audits = Audits(given, connections=cast(Connections, connections), usage=usage, changed=lambda _: None)
    asyncio.run(audits.reconcile(AUDIT))
    status = (store.get(*AUDIT) or {})["status"]
    (complete,) = (c for c in status["conditions"] if c["type"] == "Complete")
    assert words in complete["message"]
    assert checked == []
