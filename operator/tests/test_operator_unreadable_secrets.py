"""The API server can't read Secrets for a while, as when it can't decrypt them: the operator goes on with those that it knows."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from delayed_topics_crds import KafkaConnectionSpec
from delayed_topics_kafka.connection import Connection
from delayed_topics_operator.connection.controller import Connections, _Entry
from delayed_topics_operator.connection.usage import Usage
from delayed_topics_operator.engine.store import Store
from delayed_topics_operator.errors import KubeUnreachable
from delayed_topics_operator.gateways.kafka import KafkaLink
from delayed_topics_operator.gateways.leadership import Leadership
from delayed_topics_operator.values.key import Key
from delayed_topics_operator.values.manifest import Manifest
from delayed_topics_operator.workers.observe import children
from delayed_topics_operator_testing.context import context
from delayed_topics_operator_testing.simulation import usable

OURS = Key("KafkaConnection", "shop", "ours")
SECRET = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "orders-connection", "uid": "u"}}
WORKERS = {"kind": "StatefulSet", "metadata": {"namespace": "shop", "name": "orders", "uid": "u"}}


class Undecipherable:
    """A Kubernetes that can't read any Secret."""

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        raise KubeUnreachable(f"the API server can't serve GET {kind} {namespace}/{name} at present (500)")

    find = get


def test_workers_are_looked_after_with_the_secret_that_is_known() -> None:
    now = 0.0
    store = Store(lambda: now)
    given = context(Undecipherable(), store)

    def live() -> set[str]:
        return {kind for kind, _ in asyncio.run(children(given, home="shop", name="orders"))}

    store.put(WORKERS)
    with pytest.raises(KubeUnreachable):
        live()
    store.put(SECRET)
    assert live() == {"Secret", "StatefulSet"}
    now = 10_000.0
    assert live() == {"Secret", "StatefulSet"}


@pytest.mark.parametrize("generation", [1, 2])
def test_a_connection_is_used_on_as_it_was_opened_unless_it_was_edited(generation: int) -> None:
    given = context(Undecipherable(), tenant_namespaces=("shop",))
    nothing: dict[str, Any] = dict.fromkeys(("changed", "doubted", "news"), lambda *_: None)
    usage, leadership = Usage(given, changed=lambda _: None), Leadership.without_end()
    made = Connections(given, usage=usage, leadership=leadership, **nothing)
    opened = Connection(bootstrap_servers="127.0.0.1:1")
    entry = _Entry(usable(), link=cast(KafkaLink, SimpleNamespace(connection=opened)), generation=1)
    sasl = {"secretRef": {"name": "password"}}
    spec = KafkaConnectionSpec.model_validate({"bootstrapServers": ["127.0.0.1:1"], "sasl": sasl})

    async def connected() -> Connection:
        return await made._connected(OURS, {"metadata": {"generation": generation}}, spec, entry)

    if generation == 1:
        assert asyncio.run(connected()) is opened
    else:
        with pytest.raises(KubeUnreachable):
            asyncio.run(connected())
